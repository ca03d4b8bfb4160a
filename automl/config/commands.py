"""Settings of the commands that follow a sweep: refit, evaluate, export, predict, register, ui.

What the commands do with them is in `commands/` and `running/refit/`.
"""

from __future__ import annotations

import enum
import math
import re
from dataclasses import dataclass, field
from typing import Any

from automl.config.checks import check_setting, checker, is_count

TRAIN_ROWS, TRAIN_VALIDATION_ROWS, ALL_ROWS = "train", "train+validation", "all"
REFIT_ROWS = (TRAIN_ROWS, TRAIN_VALIDATION_ROWS, ALL_ROWS)


class ParallelKind(enum.Enum):
    """The way in which one training uses several devices."""

    auto = "auto"
    ddp = "ddp"
    dataparallel = "dataparallel"
    none = "none"


class RefitMembers(enum.Enum):
    """The members of an ensemble that are trained again."""

    all = "all"
    none = "none"


@dataclass
class RefitConfig:
    """The final training of a study's winner, by the command `refit`."""

    trial: int | None = None
    """Number of the trial that is trained again; none: the best, or the ensemble's members."""
    members: RefitMembers = RefitMembers.all
    """Members to train again where the ensemble is no worse than the best trial: all (each at its
    own length, with the weight that it has), or none (the best trial instead)."""
    rows: str = TRAIN_VALIDATION_ROWS
    """The rows to train on: train, train+validation, or all (the test part of `data.path` too)."""
    hold_out: float | None = None
    """Share of these rows that is held out, to decide when to stop; none: no row, and as many steps
    as the trial's best epoch took."""
    n_seeds: int = 1
    """Number of models that are trained, each with a seed of its own, and whose predictions are
    averaged."""
    batch_size: Any = None
    """Rows per step over all devices; auto: the trial's for each device, with the learning rate
    that fits; none: the trial's."""
    average: bool = True
    """Keep the moving average of the weights over the last epoch's steps (where training.ema_decay
    sets no other), which stands in for the choice among epochs; false: the last weights."""
    check: bool = True
    """After a search on a part of the rows (data.sweep_rows): try its learning rate and weight
    decay again on all training rows, by two or three trials; false: use them unchecked."""
    parallel: ParallelKind = ParallelKind.auto
    """The way to use several devices in the built-in training: ddp (a process for each),
    dataparallel (one process, GPUs only), none (one device), or auto: ddp on GPUs, on a CPU one
    process."""
    devices: Any = "all"
    """Number of devices to train on, GPUs or (ddp on a CPU) processes; all: every one."""
    of: str | None = None
    """Set by `refit` itself: the study whose winner is trained."""

    def __post_init__(self) -> None:
        check = checker("refit", self)
        check("trial", self.trial is None or self.trial >= 0, "must be the number of a trial.")
        check("rows", self.rows in REFIT_ROWS, f"must be one of {', '.join(REFIT_ROWS)}.")
        is_share = self.hold_out is None or 0 < self.hold_out < 1
        check("hold_out", is_share, "must be between 0 and 1.")
        check("n_seeds", self.n_seeds >= 1, "must be at least 1.")
        is_size = self.batch_size in (None, "auto") or is_count(self.batch_size)
        check("batch_size", is_size, "must be auto or a whole number of rows from 1.")
        is_number = self.devices == "all" or is_count(self.devices)
        check("devices", is_number, "must be all or a whole number from 1.")


class WhichModel(enum.Enum):
    """The model of a study that a command uses."""

    auto = "auto"
    """The refit if there is one and no trial is named, else the ensemble, else the best trial's."""
    trial = "trial"
    """A trial's own model, as the sweep trained it."""
    refit = "refit"
    """`refit.pt`: the winner trained again."""
    ensemble = "ensemble"
    """`ensemble.pt`: the weighted mean of trials' models."""


@dataclass
class EvaluateConfig:
    """The models that `evaluate` scores, and the precision of their intervals."""

    trials: list[int] = field(default_factory=list)
    """Numbers of the trials to score and compare; none: the best."""
    model: WhichModel = WhichModel.auto
    """The models to score. auto: the refit beside its trial where there is one and no trials are
    named, else trials. refit: the refit beside the trials that are named."""
    n_resamples: int = 1000
    """Number of bootstrap samples that the intervals are computed from."""
    repeats: int = 0
    """Number of times that the best of the scored trials is trained again, each with a seed that no
    trial had, and scored on the same rows; 0: it is not."""

    def __post_init__(self) -> None:
        check = checker("evaluate", self)
        are_different = len(set(self.trials)) == len(self.trials)
        check("trials", are_different, "names a trial twice: name each once.")
        rule = "must be at least 100: the ends of a 95 % interval are seldom samples."
        few = "must be 0 or at least 2: a spread needs two trainings."
        check("repeats", self.repeats == 0 or self.repeats >= 2, few)
        check("n_resamples", self.n_resamples >= 100, rule)


class ExportFormat(enum.Enum):
    onnx = "onnx"
    torch = "torch"
    aoti = "aoti"
    tensorrt = "tensorrt"


@dataclass
class ExportConfig:
    """The model that `export` writes, its format and its folder."""

    format: ExportFormat = ExportFormat.onnx
    """The format of the file. onnx: ONNX Runtime. torch: `torch.export`. aoti: compiled for this
    CPU. tensorrt: for this GPU."""
    trial: int | None = None
    """Number of the trial whose model is exported; none: the best."""
    model: WhichModel = WhichModel.auto
    """The model to export: auto is the refit where there is one and no trial is named, else the
    ensemble, else the best trial."""
    tune: bool = False
    """Measure each way of running the model here, and write the fastest that is a file; `format` is
    then ignored."""
    tolerance: float = 0.01
    """The share by which a way in int8 or bf16 may raise the model's loss on validation rows."""
    to: str | None = None
    """The folder to write to; none: one in the study, `exports/trial-…-FORMAT` or
    `exports/refit-…`."""

    def __post_init__(self) -> None:
        check = checker("export", self)
        check("trial", self.trial is None or self.trial >= 0, "must be ≥ 0.")
        check("tolerance", 0 <= self.tolerance < math.inf, "must be ≥ 0, finite.")
        check("to", self.to != "", "must name a folder.")


@dataclass
class PredictConfig:
    """The table that `predict` reads, the model that scores it, and the file that it writes."""

    input: str | None = None
    """The table: CSV or Parquet of any size, with the columns that the model learned from."""
    output: str | None = None
    """The scores: CSV, or Parquet where the name ends in .parquet; a row for each of the table."""
    trial: int | None = None
    """Number of the trial whose model predicts; none: the best."""
    model: WhichModel = WhichModel.auto
    """The model that predicts: auto is the refit where there is one and no trial is named, else the
    ensemble, else the best trial."""
    members: int | None = None
    """Number of members of an ensemble that predict, the heaviest; fewer are faster; none: all."""
    device: str = "auto"
    """The device of a network: cpu, cuda, cuda:1, or auto: on a GPU where that is faster."""
    keep: list[str] = field(default_factory=list)
    """Columns of the table that are copied beside the scores, such as an id."""

    def __post_init__(self) -> None:
        check = checker("predict", self)
        is_device = re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", self.device) is not None
        check("device", is_device, "must be auto, cpu, cuda or cuda:NUMBER.")
        check("trial", self.trial is None or self.trial >= 0, "must be ≥ 0.")
        check("members", self.members is None or self.members >= 1, "must be at least 1.")


_NAME = re.compile(r"[^/:'\"\\\x00-\x1f]{1,200}")


@dataclass
class RegisterConfig:
    """The model that `register` puts into MLflow's registry, and its name there."""

    name: str | None = None
    """Name of the registered model; none: the study's name. Studies may share one that they all
    name."""
    trial: int | None = None
    """Number of the trial whose model is registered; none: the best."""
    model: WhichModel = WhichModel.auto
    """The model to register: auto is the refit where there is one and no trial is named, else the
    ensemble, else the best trial."""

    def __post_init__(self) -> None:
        check = checker("register", self)
        check("trial", self.trial is None or self.trial >= 0, "must be ≥ 0.")
        is_name = self.name is None or bool(_NAME.fullmatch(self.name) and self.name.strip())
        rule = "must be 1 to 200 characters without slashes, colons, quotes and line ends."
        check("name", is_name, rule)


@dataclass
class StatusConfig:
    """The part of a study that `status` shows."""

    trial: int | None = None
    """Number of the trial to show, with its curve; none: the whole study."""

    def __post_init__(self) -> None:
        checker("status", self)("trial", self.trial is None or self.trial >= 0, "must be ≥ 0.")


@dataclass
class CompareConfig:
    """The studies that `compare` compares; `compare A B` names them, too."""

    studies: list[str] = field(default_factory=list)
    """Names of two or more studies of study.dir."""

    def __post_init__(self) -> None:
        rule = "names a study twice: name each once."
        checker("compare", self)("studies", len({*self.studies}) == len(self.studies), rule)


@dataclass
class EnqueueConfig:
    """The points that `enqueue` has a study try; `params=`, `from=` and `outside=` are short for
    them."""

    params: Any = None
    """Some or all params of a trial, `{lr: 0.01}`; those not named are drawn at random."""
    file: str | None = None
    """A CSV with a column for each param and a row for each trial; `from=` for short."""
    outside: bool = False
    """Allow values outside the space."""

    def __post_init__(self) -> None:
        is_point = self.params is None or isinstance(self.params, dict)
        checker("enqueue", self)("params", is_point, "must be {NAME: VALUE, …}.")


class StopOutcome(enum.Enum):
    """What becomes of a trial that `stop` ends."""

    pruned = "pruned"
    interrupted = "interrupted"


@dataclass
class StopConfig:
    """What `stop` stops; `trial=` and `as=` are short for its settings."""

    trial: int | None = None
    """Number of the trial to stop; none: the whole sweep, as by Ctrl-C."""
    outcome: StopOutcome = StopOutcome.pruned
    """pruned: the trial has ended, with its best value so far; interrupted: the next sweep goes on
    with it; `as=` for short."""

    def __post_init__(self) -> None:
        checker("stop", self)("trial", self.trial is None or self.trial >= 0, "must be ≥ 0.")


MAX_ASKED = 1000
"""Largest number of trials that one `ask` gives out."""


@dataclass
class AskConfig:
    """The trials that `ask` gives to an experiment outside; `n=` and `lease=` are short for its
    settings."""

    n: int = 1
    """Number of trials to give out."""
    lease_seconds: float | None = 86_400.0
    """Longest time from one `tell` of a trial to the next, after which somebody else may get the
    trial; none: nobody ever does; `lease=` for short."""

    def __post_init__(self) -> None:
        check = checker("ask", self)
        check("n", 1 <= self.n <= MAX_ASKED, f"must be from 1 to {MAX_ASKED}.")
        is_time = self.lease_seconds is None or self.lease_seconds > 0
        check("lease_seconds", is_time, "must be greater than 0, or null.")


class ToldState(enum.Enum):
    """The end of a trial that somebody outside tells."""

    finished = "finished"
    pruned = "pruned"
    failed = "failed"
    interrupted = "interrupted"


@dataclass
class TellConfig:
    """The result that `tell` has of a trial; the names of its settings are short for them."""

    trial: int | None = None
    """Number of the trial."""
    value: float | None = None
    """The trial's value; with `step` the metric at this step, and the trial goes on."""
    step: int | None = None
    """The step that `value` and `metrics` belong to; none: they are the result."""
    steps: Any = None
    """The metric at several steps, `{0: 0.9, 1: 0.5}`."""
    metrics: Any = None
    """More metrics of the step or the result, `{accuracy: 0.9}`."""
    state: ToldState | None = None
    """The trial's end. finished: by `value` or its best report. pruned: as the pruner said. failed:
    by an error. interrupted: given to whoever asks next. none: finished where there is a `value`
    without a `step`, else it goes on."""
    reason: str = ""
    """Why the trial failed, or is given back."""

    def __post_init__(self) -> None:
        check = checker("tell", self)
        check("trial", self.trial is None or self.trial >= 0, "must be ≥ 0.")
        check("step", self.step is None or self.step >= 0, "must be ≥ 0.")
        for name in ("steps", "metrics"):
            value = getattr(self, name)
            check(name, value is None or isinstance(value, dict), "must be {NAME: NUMBER, …}.")


@dataclass
class DeleteConfig:
    """The way in which `delete` removes a study."""

    yes: bool = False
    """Delete without asking; `--yes` says the same."""


@dataclass
class ArchiveConfig:
    """The file that `archive` makes of a study."""

    output: str | None = None
    """The file to write; none: `NAME.tar.gz` in the current folder."""


@dataclass
class RestoreConfig:
    """The file that `restore` makes a study of."""

    input: str | None = None
    """The file that `archive` wrote."""


class TableFormat(enum.Enum):
    csv = "csv"
    json = "json"
    parquet = "parquet"


@dataclass
class TrialsConfig:
    """The table of all trials that `trials` writes."""

    format: TableFormat = TableFormat.csv
    """The format of the table."""
    output: str | None = None
    """The file to write; none: the table is printed."""

    def __post_init__(self) -> None:
        is_text = self.output is not None or self.format is not TableFormat.parquet
        rule = "is no text, so it needs trials.output=FILE."
        check_setting(is_text, "trials.format", self.format.name, rule)


@dataclass
class UIConfig:
    """The MLflow UI that `ui` starts, on loopback."""

    port: int = 5000
    """The port that the UI listens on."""

    def __post_init__(self) -> None:
        check_setting(1 <= self.port <= 65535, "ui.port", self.port, "must be from 1 to 65535.")
