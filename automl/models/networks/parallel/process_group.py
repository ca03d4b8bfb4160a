"""The group of processes that train one network together, each on its share of every batch.

A trainer asks its `RankGroup` for its own rows, and sums its results over all processes. Gradients
are weighted by rows. A last batch that does not divide, and a batch with fewer rows than there are
processes, therefore have exactly the gradients of one process. Each process then takes the same
step on its own copy of the weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist


class LostRankError(Exception):
    """Raised when another process of the group does not answer any more."""


class RankGroup:
    """One process's view of the processes that train together, which are torch's default group.

    Process 0 reports. A process that trains alone needs no group of torch's.
    """

    def __init__(self, rank: int = 0, n_ranks: int = 1) -> None:
        self.rank, self.n_ranks = rank, n_ranks

    def share(self, rows: torch.Tensor) -> tuple[torch.Tensor, float]:
        """Return this process's rows of a batch, and the weight of their mean in the batch's mean.

        Batch norm needs two rows. If a batch has fewer than two rows for each process, each process
        takes the whole batch.
        """
        if self.n_ranks == 1 or len(rows) < 2 * self.n_ranks:
            return rows, 1 / self.n_ranks
        own = self.part(rows)
        return own, len(own) / len(rows)

    def part(self, rows: torch.Tensor) -> torch.Tensor:
        """Return this process's part of rows that are evaluated; it may be empty."""
        return rows.tensor_split(self.n_ranks)[self.rank]

    def add(self, numbers: torch.Tensor) -> None:
        """Sum numbers over all processes, in place; all get the same bits. Raises LostRankError."""
        if self.n_ranks > 1:
            with _lost_rank_errors():
                dist.all_reduce(numbers)

    def follow_first(self, tensors: Iterable[torch.Tensor]) -> None:
        """Overwrite tensors with those of rank 0. Raises LostRankError."""
        if self.n_ranks > 1:
            with _lost_rank_errors():
                for tensor in tensors:
                    dist.broadcast(tensor, src=0)


SINGLE_RANK = RankGroup()


@contextmanager
def _lost_rank_errors() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # in these calls every error of the library is about the others
        raise LostRankError(str(error)) from error
