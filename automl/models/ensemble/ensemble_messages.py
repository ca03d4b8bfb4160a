"""Defines the questions to the process that makes an ensemble, and its answers.

It is a file of its own because the asking process must not load what asks the models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from automl.data.dataset import Dataset


@dataclass(frozen=True)
class EnsembleFileJob:
    """Describes an `ensemble.pt` to write, and the models to choose from. Picklable."""

    path: str
    """Path of the file to write."""
    models: Mapping[int, str]
    """The `best.pt` of each trial, the best first."""
    dataset: Dataset
    study: str
    build: str | None = None
    """Target (`module:function`) that builds a network of the user; None: there is none."""
    plots: str | None = None
    """Folder for pictures of the findings; None: none are drawn."""


@dataclass(frozen=True)
class EnsembleFileResult:
    """Describes the ensemble that was written."""

    members: Mapping[int, float]
    """Weights of the members by trial, the heaviest first."""
    scores: Mapping[str, float]
    """Metrics of the ensemble on the rows by which its members were chosen."""
    alone: Mapping[int, Mapping[str, float]]
    """Metrics of the best trial by itself on the same rows, by trial."""
    rows_per_second: Mapping[int, float]
    """How many rows each model that could be chosen predicts per second, by trial."""
    not_drawn: str = ""
    """Pictures that were asked for and not drawn, with the reason; empty: all were drawn."""


@dataclass(frozen=True)
class EnsembleWorkerSetup:
    """Starts the process that previews an ensemble during a sweep, and writes it at the end."""

    dataset: Dataset
    build: str | None = None
    """Target (`module:function`) that builds a network of the user; None: there is none."""


@dataclass(frozen=True)
class EnsembleQuery:
    """Asks how good an ensemble of these models is."""

    models: Mapping[int, str]
    """The `best.pt` of each trial, the best first."""


@dataclass(frozen=True)
class EnsembleQueryResult:
    """Answers an `EnsembleQuery` with the members that were chosen."""

    members: Mapping[int, float]
    """Weights of the members by trial, the heaviest first; empty if no model gives numbers."""
    scores: Mapping[str, float]
    """Metrics of the ensemble on the rows by which its members were chosen."""
    seconds: float
    """Time that the choice of the members took."""
