"""What a `refit.pt` is of, and what it is written from: plain values, no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Refitted:
    """The final training that a `refit.pt` came of."""

    trial: int
    """The one that was trained again; of an ensemble the heaviest."""
    rows: str
    """On which rows: one of `config.refit.ROWS`."""
    n_seeds: int
    data: str
    """Digest of the table and split that its study was searched with, in hex; empty: the training
    has rows of its own."""
    members: tuple[int, ...] = ()
    """Of an ensemble the trials, each of which was trained again, the heaviest first."""


@dataclass(frozen=True)
class RefitFile:
    """What is written, and of what. Picklable."""

    path: str
    seeds: Sequence[str]
    """The `best.pt` of each; of an ensemble those of a member stand together."""
    study: str
    refitted: Refitted
    searched: str | None = None
    """The `best.pt` of the trial, whose threshold of labels is kept: a refit has no rows to find
    one by."""
    weights: Mapping[int, float] = field(default_factory=dict)
    """Of an ensemble by trial, in the order of `seeds`."""
