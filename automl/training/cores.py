"""How many cores a model computes with."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def usable_threads() -> int:
    """As many as OpenMP takes: OMP_NUM_THREADS, else the cores that this process may use."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    if said.isdecimal() and int(said) > 0:
        return int(said)
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


@contextmanager
def computing_with(n_threads: int) -> Iterator[None]:
    """So many threads of torch, and in the end as many as before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def leaving_a_core() -> Iterator[None]:
    """One fewer than there are, for a thread that reads beside: torch's threads wait for each other
    by turning round, and where one of them has no core that costs ten times the CPU.

    Where nobody has loaded torch (a model of trees) there are none of its threads."""
    if (torch := sys.modules.get("torch")) is None:
        yield
        return
    with computing_with(max(1, torch.get_num_threads() - 1)):
        yield
