"""How many cores torch computes with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


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
