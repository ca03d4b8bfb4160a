"""A cluster's head alone is killed while trials run: when does what is ours end, and how?

    PYTHONPATH=. python experiments/016-ray/lost_head.py --rounds 3

Two nodes on this machine; the sweep's process and that of its agents live on. See README.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from tests.end_to_end.program import Program, objective_words
from tests.end_to_end.records import Records
from tests.end_to_end.test_ray import agents, of_ray
from tests.execution.cluster.clusters import ray_cluster
from tests.processes import is_running

LIMIT_SECONDS = 100.0
"""Ray itself ends what is connected to it after 60."""


def ended(processes: Sequence[psutil.Process]) -> bool:
    return not any(is_running(process.pid) for process in processes)


def of_agent(agent: psutil.Process) -> Sequence[psutil.Process]:
    """Its workers."""
    return [worker for server in agent.children() for worker in server.children()]


def all_work() -> bool:
    return all(of_agent(agent) for agent in agents())


def play(folder: Path) -> tuple[dict[str, float], int | None]:
    """Seconds from the head's death to the end of workers, agents and sweep, and its exit code."""
    with ray_cluster(2) as cluster:
        program, records = Program(folder), Records(folder, "headless")
        words = ("study.name=headless", "study.n_trials=200", "tracking.uri=none")
        sweep = program.start_module(
            "automl", *words, *of_ray(program, cluster), *objective_words("counts")
        )
        sweep.wait_until(lambda: records.n_lines() > 12 and all_work(), "some reports")
        ours, workers = agents(), [worker for agent in agents() for worker in of_agent(agent)]
        cluster.head_node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)
        begun, found = time.monotonic(), dict[str, float]()
        while len(found) < 3 and time.monotonic() - begun < LIMIT_SECONDS:
            over = {"workers": ended(workers), "agents": ended(ours)}
            over["sweep"] = sweep.process.poll() is not None
            for name in over.keys() - found.keys():
                if over[name]:
                    found[name] = time.monotonic() - begun
            time.sleep(0.05)
        program.end_all()
        return found, sweep.process.returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    sys.stdout.write("| workers, s | agents, s | sweep, s | exit |\n|---|---|---|---|\n")
    for _ in range(parser.parse_args().rounds):
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            found, code = play(Path(folder))
        cells = [f"{found[n]:.1f}" if n in found else "not" for n in ("workers", "agents", "sweep")]
        sys.stdout.write(f"| {' | '.join(cells)} | {code} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
