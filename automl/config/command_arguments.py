"""The arguments of commands: their names, types, defaults and checks.

An argument counts for one call of a command. It is no setting: it is neither composed nor stored,
and `--cfg job` does not print it. The word of an argument is its field's name (`rows=all`); a name
that Python keeps for itself has a `_` behind it here (`as_` for `as=`). What the commands do with
their arguments is in `commands/` and `running/refit/`.
"""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from automl.config.checks import check_setting, is_count
from automl.config.study import check_study_name
from automl.config.which_models import parse_which

TRAIN_ROWS, TRAIN_VALIDATION_ROWS, ALL_ROWS = "train", "train+validation", "all"
REFIT_ROWS = (TRAIN_ROWS, TRAIN_VALIDATION_ROWS, ALL_ROWS)


def argument_word(field_name: str) -> str:
    """Return the word of an argument by its field: `as_` → `as`."""
    return field_name.removesuffix("_")


def argument_fields(cls: type[CommandArguments]) -> dict[str, str]:
    """Return the field of each argument by its word, in the order of the class."""
    return {argument_word(known.name): known.name for known in fields(cls)}


def is_listed(cls: type[CommandArguments], field_name: str) -> bool:
    """Return whether help lists the argument, which is false for one that hardly anyone gives."""
    known = cls.__dataclass_fields__[field_name]
    return bool(known.metadata.get("is_listed", True))


_UNLISTED = {"is_listed": False}
"""Marks the field of an argument that hardly anyone gives."""


@dataclass
class CommandArguments:
    """The arguments that every command takes. A command with more of them has a class of its
    own."""

    copy: bool | None = field(default=None, metadata=_UNLISTED)
    """Whether a study that stands elsewhere than before is a copy, with runs of its own in MLflow;
    false: it was moved; none: the program sees for itself, and asks where nothing tells."""

    def checker(self) -> Callable[[str, bool, str], None]:
        """Return a function `check(name, holds, rule)`, which checks the argument of a field."""

        def check(name: str, holds: bool, rule: str) -> None:
            check_setting(holds, argument_word(name), getattr(self, name), rule)

        return check

    def __post_init__(self) -> None:
        for name in ("trial", "step"):
            value = getattr(self, name, None)
            check_setting(value is None or value >= 0, name, value, "must be ≥ 0.")
        if "which" in argument_fields(type(self)):
            parse_which(getattr(self, "which", None))


class ParallelKind(enum.Enum):
    """The way in which one training uses several devices."""

    auto = "auto"
    ddp = "ddp"
    dataparallel = "dataparallel"
    none = "none"


@dataclass
class RefitArguments(CommandArguments):
    """The final training of a study's winner, by the command `refit`."""

    which: str | None = None
    """The trial that is trained again: best, a number, knee or a metric's name, or ensemble for its
    members; none: the ensemble's members where it is no worse than the best trial, else that."""
    rows: str = TRAIN_VALIDATION_ROWS
    """The rows to train on: train, train+validation, or all (the test part of the table too)."""
    hold_out: float | None = None
    """Share of these rows that is held out, to decide when to stop; none: no row, and as many steps
    as the trial's best epoch took."""
    seeds: int = 1
    """Number of models that are trained, each with a seed of its own, and whose predictions are
    averaged."""
    batch_size: Any = field(default=None, metadata=_UNLISTED)
    """Rows per step over all devices; auto: the trial's for each device, with the learning rate
    that fits; none: the trial's."""
    check: bool = field(default=True, metadata=_UNLISTED)
    """After a search on a part of the rows (data.sweep_rows): try its learning rate and weight
    decay again on all training rows, by two or three trials; false: use them unchecked."""
    parallel: ParallelKind = field(default=ParallelKind.auto, metadata=_UNLISTED)
    """The way to use several devices in the built-in training: ddp (a process for each),
    dataparallel (one process, GPUs only), none (one device), or auto: ddp on GPUs, on a CPU one
    process."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check = self.checker()
        check("rows", self.rows in REFIT_ROWS, f"must be one of {', '.join(REFIT_ROWS)}.")
        is_share = self.hold_out is None or 0 < self.hold_out < 1
        check("hold_out", is_share, "must be between 0 and 1.")
        check("seeds", self.seeds >= 1, "must be at least 1.")
        is_size = self.batch_size in (None, "auto") or is_count(self.batch_size)
        check("batch_size", is_size, "must be auto or a whole number of rows from 1.")


@dataclass(frozen=True)
class RefitOrigin:
    """The study and the arguments that a refit's own study was made from."""

    study: str
    trial: int | None
    """Number of the trial that is trained again; None: the ensemble's members are."""
    arguments: RefitArguments


@dataclass
class EvaluateArguments(CommandArguments):
    """The models that `evaluate` scores."""

    which: str | None = None
    """The models to score and compare, such as 3,7 or refit,ensemble; none: the refit beside its
    trial where there is one, else the ensemble, else the best trial."""
    seeds: int = 0
    """Number of times that the best of the scored trials is trained again, each with a seed that no
    trial had, and scored on the same rows; 0: it is not."""
    to: str | None = None
    """Folder that the parts of the table are written to as CSV: train, validation, test; none: they
    are not written."""

    def __post_init__(self) -> None:
        super().__post_init__()
        few = "must be 0 or at least 2: a spread needs two trainings."
        check = self.checker()
        check("seeds", self.seeds == 0 or self.seeds >= 2, few)
        check("to", self.to != "", "must name a folder.")


class ExportFormat(enum.Enum):
    onnx = "onnx"
    torch = "torch"
    aoti = "aoti"
    tensorrt = "tensorrt"


@dataclass
class ExportArguments(CommandArguments):
    """The model that `export` writes, its format and its folder."""

    which: str | None = None
    """The model to export: refit, ensemble, best, a trial's number, knee or a metric's name; none:
    the refit where there is one, else the ensemble, else the best trial."""
    format: ExportFormat = ExportFormat.onnx
    """The format of the file. onnx: ONNX Runtime. torch: `torch.export`. aoti: compiled for this
    CPU. tensorrt: for this GPU. registry: a version in MLflow's registry, from ONNX."""
    as_: str | None = None
    """With format=registry, the name of the registered model; none: the study's name."""
    to: str | None = None
    """The folder to write to; none: one in the study, `exports/trial-…-FORMAT` or
    `exports/refit-…`."""
    tune: bool = False
    """Measure each way of running the model here, and write the fastest that is a file; `format` is
    then ignored."""
    tolerance: float = field(default=0.01, metadata=_UNLISTED)
    """The share by which a way in int8 or bf16 may raise the model's loss on validation rows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check = self.checker()
        check("as_", self.as_ is None, "names a registered model: add format=registry.")
        check("tolerance", 0 <= self.tolerance < math.inf, "must be ≥ 0, finite.")
        check("to", self.to != "", "must name a folder.")


@dataclass
class PredictArguments(CommandArguments):
    """The table that `predict` reads, the model that scores it, and the file that it writes."""

    table: str | None = None
    """The table, which may stand behind the study's name alone: CSV or Parquet of any size, with
    the columns that the model learned from."""
    to: str | None = None
    """The scores: CSV, or Parquet where the name ends in .parquet; a row for each of the table."""
    which: str | None = None
    """The model that predicts: refit, ensemble, best, a trial's number, knee or a metric's name;
    none: the refit where there is one, else the ensemble, else the best trial."""
    members: int | None = field(default=None, metadata=_UNLISTED)
    """Number of members of an ensemble that predict, the heaviest; fewer are faster; none: all."""
    keep: list[str] = field(default_factory=list)
    """Columns of the table that are copied beside the scores, such as an id."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.checker()("members", self.members is None or self.members >= 1, "must be at least 1.")


_NAME = re.compile(r"[^/:'\"\\\x00-\x1f]{1,200}")


@dataclass
class RegistryArguments(CommandArguments):
    """The place in MLflow's registry of what a command puts there."""

    as_: str | None = None
    """Name of the registered model; none: the study's name. Studies may share one that they all
    name."""
    to: str | None = field(default=None, metadata=_UNLISTED)
    """The folder of the export that is registered; none: one in the study."""

    def __post_init__(self) -> None:
        super().__post_init__()
        is_name = self.as_ is None or bool(_NAME.fullmatch(self.as_) and self.as_.strip())
        rule = "must be 1 to 200 characters without slashes, colons, quotes and line ends."
        check = self.checker()
        check("as_", is_name, rule)
        check("to", self.to != "", "must name a folder.")


@dataclass
class RegisterArguments(RegistryArguments):
    """The model that `register` puts into MLflow's registry, and its name there."""

    which: str | None = None
    """The model to register: refit, ensemble, best, a trial's number, knee or a metric's name;
    none: the refit where there is one, else the ensemble, else the best trial."""


@dataclass
class ReleaseArguments(RegistryArguments, RefitArguments):
    """The winner that `release` evaluates, trains again, exports and registers."""


@dataclass
class StatusArguments(CommandArguments):
    """The part of a study that `status` shows."""

    trial: int | None = None
    """Number of the trial to show, with its curve; none: the whole study."""
    trials: str | None = None
    """all: print the table of all trials, as CSV; none: the whole study."""
    all: bool = False
    """Below the study, list all other studies of the folder, and not ten alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check = self.checker()
        check("trials", self.trials in (None, "all"), "must be all; trial=7 shows one trial.")
        is_one = self.trial is None or self.trials is None
        check("trials", is_one, "shows all trials, and trial=… one: leave one out.")


class TrialColumns(enum.Enum):
    """Whose names the columns of the table of all trials have."""

    automl = "automl"
    optuna = "optuna"


@dataclass
class ReportArguments(CommandArguments):
    """The studies that `report` is about, and the file that it writes."""

    studies: list[str] = field(default_factory=list)
    """Further studies to compare with the first, which may stand behind it: `report A B`."""
    to: str | None = None
    """The file to write: a page where the name ends in .html, all trials as a table where it ends
    in .csv, .parquet or .json; none: the page, in the study's folder."""
    columns: TrialColumns = TrialColumns.automl
    """The names of the table's columns: automl, or optuna for those of its trials_dataframe."""
    from_: str | None = None
    """The address of a study of Optuna's (sqlite:///old.db:NAME), whose page is written to
    report.html here, or to=; nothing else is made of it."""
    watch: bool = False
    """Open the page in the browser; while a sweep runs, it stays up to date."""

    def __post_init__(self) -> None:
        super().__post_init__()
        is_page = self.to is None and not self.studies
        self.checker()("watch", is_page or not self.watch, "watches one study: leave out the rest.")
        endings = (".html", *(f".{kind.value}" for kind in TableFormat))
        is_known = self.to is None or self.to.lower().endswith(endings)
        self.checker()("to", is_known, f"must end in {', '.join(endings)}.")
        is_table = bool(self.to) and not str(self.to).lower().endswith(".html")
        is_one = not (self.studies and is_table)
        self.checker()("to", is_one, "a table is of one study: leave the others out.")
        has_columns = is_table or self.columns is TrialColumns.automl
        rule = "a table has columns: write one, to=FILE.csv."
        check_setting(has_columns, "columns", self.columns.value, rule)


@dataclass
class OptunaReportArguments(CommandArguments):
    """The file that `report from=ADDRESS` writes, and the study of Optuna's that it is about."""

    to: str | None = None
    """The page to write; none: report.html here."""
    from_: str | None = None
    """The address of the study, such as sqlite:///old.db:NAME."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check = self.checker()
        check("to", self.to is None or self.to.lower().endswith(".html"), "must end in .html.")
        rule = "must be the address of a study of Optuna's; one of yours has a name: report NAME."
        check("from_", self.from_ is None, rule)


@dataclass
class CompareArguments(CommandArguments):
    """The studies that `compare` compares; `compare A B` names them, too."""

    studies: list[str] = field(default_factory=list)
    """Names of two or more studies of study.dir."""

    def __post_init__(self) -> None:
        super().__post_init__()
        are_different = len({*self.studies}) == len(self.studies)
        self.checker()("studies", are_different, "names a study twice: name each once.")


@dataclass
class EnqueueArguments(CommandArguments):
    """The points that `enqueue` has a study try."""

    params: Any = None
    """Some or all params of a trial, `{lr: 0.01}`; those not named are drawn at random."""
    from_: str | None = None
    """A CSV with a column for each param and a row for each trial."""
    outside: bool = False
    """Allow values outside the space."""

    def __post_init__(self) -> None:
        super().__post_init__()
        is_point = self.params is None or isinstance(self.params, dict)
        self.checker()("params", is_point, "must be {NAME: VALUE, …}.")


class StopOutcome(enum.Enum):
    """What becomes of a trial that `stop` ends."""

    pruned = "pruned"
    interrupted = "interrupted"


@dataclass
class StopArguments(CommandArguments):
    """What `stop` stops."""

    trial: int | None = None
    """Number of the trial to stop; none: the whole sweep, as by Ctrl-C."""
    as_: StopOutcome = StopOutcome.pruned
    """pruned: the trial has ended, with its best value so far; interrupted: the next sweep goes on
    with it."""


MAX_ASKED = 1000
"""Largest number of trials that one `ask` gives out."""


@dataclass
class AskArguments(CommandArguments):
    """The trials that `ask` gives to an experiment outside."""

    n: int = 1
    """Number of trials to give out."""
    lease: float | None = 86_400.0
    """Longest seconds from one `tell` of a trial to the next, after which somebody else may get the
    trial; none: nobody ever does."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check = self.checker()
        check("n", 1 <= self.n <= MAX_ASKED, f"must be from 1 to {MAX_ASKED}.")
        is_time = self.lease is None or self.lease > 0
        check("lease", is_time, "must be greater than 0, or none.")


class ToldState(enum.Enum):
    """The end of a trial that somebody outside tells."""

    finished = "finished"
    pruned = "pruned"
    failed = "failed"
    interrupted = "interrupted"


@dataclass
class TellArguments(CommandArguments):
    """The result that `tell` has of a trial."""

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
        super().__post_init__()
        for name in ("steps", "metrics"):
            value = getattr(self, name)
            is_mapping = value is None or isinstance(value, dict)
            self.checker()(name, is_mapping, "must be {NAME: NUMBER, …}.")


@dataclass
class EditArguments(CommandArguments):
    """What `edit` does beside changing settings."""

    undo: bool = False
    """Take the last edit of the study back."""
    name: str | None = None
    """Give the study this name, here and in MLflow, and change nothing else."""


@dataclass
class RenameArguments(CommandArguments):
    """The new name that `rename` gives a study."""

    name: str | None = None
    """The name that the study gets, here and in MLflow."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_study_name("name", self.name)


@dataclass
class SweepArguments(CommandArguments):
    """The study that a new one begins with."""

    from_: str | None = None
    """A study to begin with: one of yours by its name, whose settings the new study takes, except
    those of the line; or one of Optuna's by its address (sqlite:///old.db:NAME), whose trials it
    takes; none: `conf/`."""
    warm: bool = False
    """With from=NAME, have the new study learn from the trials of the old one."""
    start: bool = True
    """With from=NAME, start the new study; false: only make it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check = self.checker()
        check(
            "from_",
            self.from_ is None,
            "must be the name of a study, or an address such as sqlite:///old.db:NAME.",
        )
        rule = "needs from=NAME, which names the study that the new one begins with."
        for name, default in (("warm", False), ("start", True)):
            check(name, getattr(self, name) is default, rule)


@dataclass
class CloneArguments(CommandArguments):
    """The study that `clone` makes."""

    name: str | None = None
    """Name of the new study."""
    warm: bool = False
    """Have the new study learn from the trials of the old one."""
    start: bool = False
    """Start the new study."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_study_name("name", self.name)


@dataclass
class PlanArguments(CommandArguments):
    """What `plan` does beyond reading."""

    measure: bool = False
    """Time some steps of a small, a middle and a large trial, by device, threads, precision and in
    packs."""
    timing_seconds: float = 12.0
    """Seconds for timing the first trial of each family on a table, all together; 0: none is
    timed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        seconds = self.timing_seconds
        check_setting(
            0 <= seconds < math.inf, "timing_seconds", seconds, "must be ≥ 0 seconds, and finite."
        )


@dataclass
class DevicesArguments(CommandArguments):
    """The way in which `devices` shows the devices."""

    watch: bool | None = field(default=None, metadata=_UNLISTED)
    """Show the devices, and the trials on them, until Ctrl-C; none: in a terminal."""


@dataclass
class DeleteArguments(CommandArguments):
    """The way in which `delete` removes a study."""

    yes: bool = False
    """Delete without asking; `--yes` says the same."""


@dataclass
class ArchiveArguments(CommandArguments):
    """The file that `archive` makes of a study."""

    to: str | None = None
    """The file to write; none: `NAME.tar.gz` in the current folder."""


@dataclass
class RestoreArguments(CommandArguments):
    """The file that `restore` makes a study of."""

    file: str | None = None
    """The file that `archive` wrote, which may stand alone: `restore FILE`."""


class TableFormat(enum.Enum):
    csv = "csv"
    json = "json"
    parquet = "parquet"


@dataclass
class TrialsArguments(CommandArguments):
    """The table of all trials that `trials` writes."""

    to: str | None = None
    """The file to write: CSV, or Parquet or JSON by its ending; none: the table is printed."""
    format: TableFormat | None = field(default=None, metadata=_UNLISTED)
    """The format of the table; none: that of the ending, else CSV."""
    columns: TrialColumns = field(default=TrialColumns.automl, metadata=_UNLISTED)
    """The names of the columns, as `report` has them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        is_text = self.to is not None or self.format is not TableFormat.parquet
        check_setting(is_text, "format", "parquet", "is no text, so it needs to=FILE.")


@dataclass
class UIArguments(CommandArguments):
    """The MLflow UI that `ui` starts, on loopback."""

    port: int = 5000
    """The port that the UI listens on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.checker()("port", 1 <= self.port <= 65535, "must be from 1 to 65535.")
