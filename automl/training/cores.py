"""How many cores torch computes with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def leaving_a_core() -> Iterator[None]:
    """One fewer than there are, for a thread that reads beside: its threads wait for each other by
    turning round, and where one of them has no core that costs ten times the CPU."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, before - 1))
    try:
        yield
    finally:
        torch.set_num_threads(before)
