"""What it costs to fork trees and networks from servers of their own, each with its library alone,
and what a worker takes of either. See README.md."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

from automl.models.family import load_families

WAYS = {
    "one": (("linear", "boosting", "trees", "mlp"),),
    "two": (("linear", "boosting", "trees"), ("mlp",)),
}
CHILD = """
import gc, importlib, json, os, resource, sys, time
begun = time.perf_counter()
import automl.execution.fork_server
for name in sys.argv[1:]:
    importlib.import_module(name)
gc.freeze()
seconds, used = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF)
sys.stdout.write(json.dumps([seconds, used.ru_utime + used.ru_stime, os.getpid()]) + "\\n")
sys.stdout.flush()
child = os.fork()
if child == 0:
    from sklearn.ensemble import ExtraTreesClassifier
    import numpy as np
    x = np.random.default_rng(0).normal(size=(2000, 10))
    ExtraTreesClassifier(50).fit(x, x[:, 0] > 0)
    rollup = dict(line.split(":", 1) for line in open("/proc/self/smaps_rollup").readlines()[1:])
    held = [int(rollup[name].split()[0]) for name in ("Private_Dirty", "Private_Clean", "Pss")]
    sys.stdout.write(json.dumps(held) + "\\n")
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
rollup = dict(line.split(":", 1) for line in open("/proc/self/smaps_rollup").readlines()[1:])
sys.stdout.write(json.dumps(int(rollup["Pss"].split()[0])) + "\\n")
sys.stdout.flush()
sys.stdin.read()
"""


def modules_of(names: tuple[str, ...]) -> list[str]:
    """What a server of these families loads."""
    own = [module for name in names for module in load_families()[name]().modules]
    return ["automl.objectives.training_session", load_families()["auto"].heavy, *own]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    titles = ("servers", "trees, s", "all, s", "CPU s", "a worker's own MiB", "of all, MiB")
    lines = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    seen: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, groups in WAYS.items():
            seen[way].append(measured(groups))
    for way, each in seen.items():
        middle = [statistics.median(column) for column in zip(*each, strict=True)]
        lines.append(f"| {way} | " + " | ".join(f"{value:.2f}" for value in middle) + " |")
    sys.stdout.write("\n".join(lines) + "\n")


def measured(groups: tuple[tuple[str, ...], ...]) -> list[float]:
    """All begin at once, as a sweep's start has them; the first server has the trees."""
    begun, servers = time.perf_counter(), []
    for names in groups:
        command = [sys.executable, "-c", CHILD, *modules_of(names)]
        servers.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    ready, cpu, own, whole = [], 0.0, [], 0.0
    for server in servers:
        assert server.stdout is not None
        _, used, _ = json.loads(server.stdout.readline())
        ready.append(time.perf_counter() - begun)
        cpu += used
    for server in servers:
        assert server.stdout is not None
        dirty, clean, _ = json.loads(server.stdout.readline())
        own.append((dirty + clean) / 1024)
        whole += json.loads(server.stdout.readline()) / 1024
    for server in servers:
        server.communicate()
    return [ready[0], max(ready), cpu, own[0], whole]


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
