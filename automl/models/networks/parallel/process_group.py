"""Processes that train one network together, each on its share of every batch.

A trainer asks its `RankGroup` for its own rows, and adds up over all what it found on them.
Gradients
are weighted by rows, so that a last batch that does not divide, and one with fewer rows than there
are processes, are exactly those of one process. Each then takes the same step on its own copy of
the weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
import torch.distributed as dist


class LostRankError(Exception):
    """Raised where another process does not answer any more."""


class RankGroup(Protocol):
    """This process among those that train together."""

    rank: int
    """0 is the one that reports."""
    n_ranks: int

    def share(self, rows: torch.Tensor) -> tuple[torch.Tensor, float]:
        """The rows of a batch that it trains on, and what their mean counts in that of the batch.

        Of a batch that gives not each of them two rows (batch norm needs them) each takes all.
        """

    def part(self, rows: torch.Tensor) -> torch.Tensor:
        """Its own part of what all of them look at; may be empty."""

    def add(self, numbers: torch.Tensor) -> None:
        """Sum over all processes, in place; returns in each with the same bits. Raises
        LostRankError."""

    def follow_first(self, tensors: Iterable[torch.Tensor]) -> None:
        """Take those of rank 0. Raises LostRankError."""


class _SingleRank:
    """One process."""

    rank, n_ranks = 0, 1

    def share(self, rows: torch.Tensor) -> tuple[torch.Tensor, float]:
        return rows, 1.0

    def part(self, rows: torch.Tensor) -> torch.Tensor:
        return rows

    def add(self, numbers: torch.Tensor) -> None:
        """They are the sums."""

    def follow_first(self, tensors: Iterable[torch.Tensor]) -> None:
        """They are its own."""


SINGLE_RANK: RankGroup = _SingleRank()


class TorchRankGroup:
    """A process of torch's default group, which is open."""

    def __init__(self) -> None:
        self.rank, self.n_ranks = dist.get_rank(), dist.get_world_size()

    def share(self, rows: torch.Tensor) -> tuple[torch.Tensor, float]:
        if len(rows) < 2 * self.n_ranks:
            return rows, 1 / self.n_ranks
        own = self.part(rows)
        return own, len(own) / len(rows)

    def part(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.tensor_split(self.n_ranks)[self.rank]

    def add(self, numbers: torch.Tensor) -> None:
        with _together():
            dist.all_reduce(numbers)

    def follow_first(self, tensors: Iterable[torch.Tensor]) -> None:
        with _together():
            for tensor in tensors:
                dist.broadcast(tensor, src=0)


@contextmanager
def _together() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # whatever the library says, it is about the others
        raise LostRankError(str(error)) from error
