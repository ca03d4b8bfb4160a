"""What it costs to find the descendants of a process, by psutil and by ourselves: see README.md."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import psutil

from automl.execution.process_tree import find_descendants


def main() -> None:
    children = [subprocess.Popen(["sleep", "600"]) for _ in range(3)]
    others: list[subprocess.Popen[bytes]] = []
    try:
        compare("this process, which has three children", os.getpid())
        others = [subprocess.Popen(["sleep", "600"]) for _ in range(600)]
        compare("one of its children, which has none", children[0].pid)
    finally:
        for process in (*children, *others):
            process.kill()
            process.wait()


def compare(what: str, pid: int) -> None:
    process = psutil.Process(pid)
    ours = milliseconds(lambda: find_descendants(pid))
    theirs = milliseconds(lambda: process.children(recursive=True))
    sys.stdout.write(
        f"{what}, beside {len(psutil.pids())} processes: {ours:.2f} ms, psutil {theirs:.2f} ms\n"
    )


def milliseconds(look: Callable[[], object]) -> float:
    took = []
    for _ in range(50):
        began = time.perf_counter()
        look()
        took.append(time.perf_counter() - began)
    return 1000 * statistics.median(took)


if __name__ == "__main__":
    main()
