"""What the process that makes an ensemble is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from automl.data.dataset import Dataset


@dataclass(frozen=True)
class EnsembleFileJob:
    """What is written, and of what. Picklable."""

    path: str
    models: Mapping[int, str]
    """The `best.pt` of each trial, the best first."""
    dataset: Dataset
    study: str
    build: str | None = None
    """What builds a network of the user's."""
    plots: str | None = None
    """The folder for pictures of what it found; None: none are drawn."""


@dataclass(frozen=True)
class EnsembleFileResult:
    """What was written."""

    members: Mapping[int, float]
    """Weights by trial, the heaviest first."""
    scores: Mapping[str, float]
    """On the rows by which they were chosen."""
    alone: Mapping[int, Mapping[str, float]]
    """Likewise of the best trial by itself."""
    rows_per_second: Mapping[int, float]
    """How fast each model predicts that could be chosen."""
    not_drawn: str = ""
    """Which pictures that were asked for there are not, and why."""


@dataclass(frozen=True)
class EnsembleWorkerSetup:
    """What the process is given that makes the ensemble again and again."""

    dataset: Dataset
    build: str | None = None
    """As of `EnsembleFileJob`."""


@dataclass(frozen=True)
class EnsembleQuery:
    """A question to it: how good are these together?"""

    models: Mapping[int, str]
    """The `best.pt` of each trial, the best first."""


@dataclass(frozen=True)
class EnsembleQueryResult:
    """Its answer."""

    members: Mapping[int, float]
    """Weights by trial, the heaviest first; none where no model gives numbers."""
    scores: Mapping[str, float]
    """On the rows by which they were chosen."""
    seconds: float
    """That it took."""
