"""Which models are scored, and how surely.

A trained model as files that other programs run.

A table scored by a trained model.

A study's model in MLflow's registry.

The final training of a study's winner.

Which of a study's models a command means.

The MLflow UI.
"""

from __future__ import annotations

import enum
import math
import re
from dataclasses import dataclass, field
from typing import Any

from automl.config.checks import check

TRAIN, TRAIN_VALIDATION, ALL = "train", "train+validation", "all"
ROWS = (TRAIN, TRAIN_VALIDATION, ALL)


class ParallelKind(enum.Enum):
    """How one training takes several devices."""

    auto = "auto"
    ddp = "ddp"
    dataparallel = "dataparallel"
    none = "none"


class RefitMembers(enum.Enum):
    """Which members of an ensemble are trained again."""

    all = "all"
    none = "none"


@dataclass
class RefitConfig:
    """The final training of a study's winner, by `refit`."""

    trial: int | None = None
    """Number of the trial that is trained again; none: the best, or the ensemble's members."""
    members: RefitMembers = RefitMembers.all
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
    parallel: ParallelKind = ParallelKind.auto
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


class WhichModel(enum.Enum):
    """A trial's own model, `refit.pt`, the winner trained again, or `ensemble.pt`."""

    auto = "auto"
    """The refit if there is one and no trial is named, else the ensemble, else the best trial's."""
    trial = "trial"
    refit = "refit"
    ensemble = "ensemble"
    """`ensemble.pt`: the weighted mean of trials' models."""


@dataclass
class EvaluateConfig:
    """Which models are scored, and how surely."""

    trials: list[int] = field(default_factory=list)
    """Numbers of the trials to score and compare; none: the best."""
    model: WhichModel = WhichModel.auto
    """auto: the refit beside its trial where there is one and no trials are named, else trials.
    refit: beside those that are named."""
    n_resamples: int = 1000
    """Bootstrap samples that the intervals are taken from."""

    def __post_init__(self) -> None:
        rule = "names a trial twice: name each once."
        check(len(set(self.trials)) == len(self.trials), "evaluate.trials", self.trials, rule)
        rule = "must be at least 100: the ends of a 95 % interval are seldom samples."
        check(self.n_resamples >= 100, "evaluate.n_resamples", self.n_resamples, rule)


class ExportFormat(enum.Enum):
    onnx = "onnx"
    torch = "torch"
    aoti = "aoti"
    tensorrt = "tensorrt"


@dataclass
class ExportConfig:
    """What `export` writes, and where."""

    format: ExportFormat = ExportFormat.onnx
    """onnx: ONNX Runtime. torch: `torch.export`. aoti: compiled for this CPU. tensorrt: for this
    GPU."""
    trial: int | None = None
    """Of which trial; none: the best."""
    model: WhichModel = WhichModel.auto
    """Of which: auto is the refit where there is one and no trial is named, else the ensemble, else
    the best trial."""
    tune: bool = False
    """Measure each way of running the model here, and write the fastest that is a file: `format`
    says nothing then."""
    tolerance: float = 0.01
    """The share by which a way in int8 or bf16 may raise the model's loss on validation rows."""
    to: str | None = None
    """The folder; none: one in the study, `exports/trial-…-FORMAT` or `exports/refit-…`."""

    def __post_init__(self) -> None:
        check(self.trial is None or self.trial >= 0, "export.trial", self.trial, "must be ≥ 0.")
        check(
            0 <= self.tolerance < math.inf,
            "export.tolerance",
            self.tolerance,
            "must be ≥ 0, finite.",
        )
        check(self.to != "", "export.to", self.to, "must name a folder.")


@dataclass
class PredictConfig:
    """What `predict` reads and writes."""

    input: str | None = None
    """The table: CSV or Parquet of any size, with the columns that the model learned from."""
    output: str | None = None
    """The scores: CSV, or Parquet where the name ends in .parquet; a row for each of the table."""
    trial: int | None = None
    """By which trial; none: the best."""
    model: WhichModel = WhichModel.auto
    """By which: auto is the refit where there is one and no trial is named, else the ensemble, else
    the best trial."""
    members: int | None = None
    """By so many members of an ensemble, the heaviest, which is faster; none: by all."""
    device: str = "auto"
    """Where a network computes: cpu, cuda, cuda:1, or auto: on a GPU where that is faster."""
    keep: list[str] = field(default_factory=list)
    """Columns of the table that are copied beside the scores, such as an id."""

    def __post_init__(self) -> None:
        check(
            re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", self.device) is not None,
            "predict.device",
            self.device,
            "must be auto, cpu, cuda or cuda:NUMBER.",
        )
        check(self.trial is None or self.trial >= 0, "predict.trial", self.trial, "must be ≥ 0.")
        check(
            self.members is None or self.members >= 1,
            "predict.members",
            self.members,
            "must be at least 1.",
        )


_NAME = re.compile(r"[^/:'\"\\\x00-\x1f]{1,200}")


@dataclass
class RegisterConfig:
    """What `register` registers, and under which name."""

    name: str | None = None
    """The registered model; none: the study's name. Studies may share one that they all name."""
    trial: int | None = None
    """Of which trial; none: the best."""
    model: WhichModel = WhichModel.auto
    """Which model: auto is the refit where there is one and no trial is named, else the ensemble,
    else the best trial."""

    def __post_init__(self) -> None:
        check(self.trial is None or self.trial >= 0, "register.trial", self.trial, "must be ≥ 0.")
        check(
            self.name is None or bool(_NAME.fullmatch(self.name) and self.name.strip()),
            "register.name",
            self.name,
            "must be 1 to 200 characters without slashes, colons, quotes and line ends.",
        )


@dataclass
class UIConfig:
    """The MLflow UI that `ui` starts, on loopback."""

    port: int = 5000

    def __post_init__(self) -> None:
        check(1 <= self.port <= 65535, "ui.port", self.port, "must be from 1 to 65535.")
