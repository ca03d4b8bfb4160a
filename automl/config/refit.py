"""The final training of a study's winner."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from automl.config.checks import check

TRAIN, TRAIN_VALIDATION, ALL = "train", "train+validation", "all"
ROWS = (TRAIN, TRAIN_VALIDATION, ALL)


class Parallel(enum.Enum):
    """How one training takes several devices."""

    auto = "auto"
    ddp = "ddp"
    dataparallel = "dataparallel"
    none = "none"


class Members(enum.Enum):
    """Which members of an ensemble are trained again."""

    all = "all"
    none = "none"


@dataclass
class RefitConfig:
    """The final training of a study's winner, by `refit`."""

    trial: int | None = None
    """Number of the trial that is trained again; none: the best, or the ensemble's members."""
    members: Members = Members.all
    """Where the ensemble is no worse than the best trial: all (each of its members again, at its
    own length, with the weight that it has), or none (the best trial)."""
    rows: str = TRAIN_VALIDATION
    """The rows that it trains on: train, train+validation, or all (the test part of `data.path`
    too)."""
    hold_out: float | None = None
    """Share of these rows that is kept to stop by; none: as many steps as its best epoch took."""
    n_seeds: int = 1
    """So many are trained with seeds of their own, and their predictions averaged."""
    batch_size: Any = None
    """Rows per step over all devices; auto: the trial's for each device, with the learning rate
    that fits; none: the trial's."""
    average: bool = True
    """Keep the moving average of the weights over the last epoch's steps (where training.ema_decay
    says no other), which stands in for the choice among epochs; false: the last weights."""
    check: bool = True
    """After a search on a part of the rows (data.sweep_rows): try its learning rate and weight
    decay again on all that train, by two or three trials; false: take them as they are."""
    parallel: Parallel = Parallel.auto
    """How the built-in training takes several devices: ddp (a process for each), dataparallel (one
    process, GPUs only), none (one device), or auto: ddp on GPUs, on a CPU one process."""
    devices: Any = "all"
    """How many devices it takes, GPUs or (ddp on a CPU) processes; all: those that there are."""
    of: str | None = None
    """Set by `refit` itself: the study whose winner it is."""

    def __post_init__(self) -> None:
        check(
            self.trial is None or self.trial >= 0,
            "refit.trial",
            self.trial,
            "must be the number of a trial.",
        )
        check(self.rows in ROWS, "refit.rows", self.rows, f"must be one of {', '.join(ROWS)}.")
        check(
            self.hold_out is None or 0 < self.hold_out < 1,
            "refit.hold_out",
            self.hold_out,
            "must be between 0 and 1.",
        )
        check(self.n_seeds >= 1, "refit.n_seeds", self.n_seeds, "must be at least 1.")
        check(
            self.batch_size in (None, "auto") or _is_count(self.batch_size),
            "refit.batch_size",
            self.batch_size,
            "must be auto or a whole number of rows from 1.",
        )
        check(
            self.devices == "all" or _is_count(self.devices),
            "refit.devices",
            self.devices,
            "must be all or a whole number from 1.",
        )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
