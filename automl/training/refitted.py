"""What a `refit.pt` is of, and what it is written from: plain values, no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Refitted:
    """The final training that a `refit.pt` came of."""

    trial: int
    """The one that was trained again."""
    rows: str
    """On which rows: one of `config.refit.ROWS`."""
    n_seeds: int
    data: str
    """Digest of the table and split that its study was searched with, in hex; empty: the training
    has rows of its own."""


@dataclass(frozen=True)
class RefitFile:
    """What is written, and of what. Picklable."""

    path: str
    seeds: Sequence[str]
    """The `best.pt` of each."""
    study: str
    refitted: Refitted
    searched: str | None = None
    """The `best.pt` of the trial, whose threshold of labels is kept: a refit has no rows to find
    one by."""
