"""Defines the events of trials and of studies, which are the lines of the event log.

They are plain values. Writing them to disk, reading them back and folding them into a record is the
job of `automl/record/`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, TypeAlias

from automl.trial.placement import DeviceKind, ProcessId, RequestSource
from automl.trial.study_edited import StudyEdited
from automl.trial.study_metrics import standard_error
from automl.trial.trial_spec import (
    ENSEMBLE_NAME,
    CheckpointKind,
    Params,
    SpaceEntry,
    TrialState,
    refit_name,
    trial_name,
)


@dataclass(frozen=True)
class TrialEvent:
    """Something that happened to a trial; events of one trial come in the order of time."""

    trial: int
    time: float


@dataclass(frozen=True)
class TrialStarted(TrialEvent):
    """A trial starts, or resumes after an interruption, with an earlier `TrialStarted`."""

    params: Params
    device: str
    """Name of the device for people: `cpu`, or the GPU's name and UUID; `OUTSIDE_DEVICE` where no
    sweep runs the trial."""
    lease_seconds: float | None = None
    """Longest time from one event of the trial to the next while somebody outside has it; None: a
    sweep runs it."""
    request: str = ""
    """Id of the request that asked for the trial; empty: no request to a sweep did."""


@dataclass(frozen=True)
class ParamsSuggested(TrialEvent):
    """Params that the objective asked for while it ran, in addition to the ones it started with."""

    params: Params
    entries: Mapping[str, SpaceEntry] = field(default_factory=dict)
    """The range or the choices that it asked for, by param; none of a param that was drawn ahead,
    for which an earlier trial asked."""


@dataclass(frozen=True)
class MetricsReported(TrialEvent):
    """Metrics of one step, counted from 0; a step of the built-in objective is one epoch.

    A step may be reported in several events, each with metrics that the earlier ones lack.
    """

    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class TrialTagged(TrialEvent):
    """A text that the objective attached to its trial; a later one of the same name replaces it."""

    name: str
    text: str


class LoggedPoint(NamedTuple):
    """A value of a metric, as MLflow and other libraries that objectives log to have it."""

    name: str
    value: float
    step: int
    """The step of the value; libraries allow any, negative ones included."""
    time_ms: int
    """Unix time of the value in milliseconds, as the library recorded it."""


@dataclass(frozen=True)
class ValuesLogged(TrialEvent):
    """What an objective logged through another library (MLflow) in one call of that library.

    The metric of a step, or a param, is sent once. The study's own metric is sent as
    `MetricsReported` instead, and tags as `TrialTagged`.
    """

    points: tuple[LoggedPoint, ...] = ()
    params: Mapping[str, str] = field(default_factory=dict)
    """Params that the objective logged, apart from the params of the trial."""


@dataclass(frozen=True)
class CheckpointWritten(TrialEvent):
    """A checkpoint file is complete on disk."""

    step: int
    path: str
    """Path, in the event log relative to the study, since a study may be moved."""
    kind: CheckpointKind


@dataclass(frozen=True)
class MemoryPeakMeasured(TrialEvent):
    """The most memory that the trial held so far, on the one of its devices where it held most."""

    peak_bytes: int
    n_lanes: int = 1
    """Number of trials of the pack that held this memory together; 1: the trial was alone."""
    allocated_bytes: int = 0
    """The part of the peak that belonged to tensors; 0: not known."""
    predicted_bytes: int | None = None
    """The memory that was requested for the trial; filled in by the sweep, not by the trial."""
    source: RequestSource | None = None
    """How the requested memory was known; filled in by the sweep, not by the trial."""
    on_each_bytes: tuple[int, ...] = ()
    """Peak on each of several devices, in the order of the placement; empty for a single device,
    whose peak is `peak_bytes`."""

    @property
    def by_device(self) -> tuple[int, ...]:
        """Return the peak on each of the trial's devices, in the order of the placement."""
        return self.on_each_bytes or (self.peak_bytes,)


@dataclass(frozen=True)
class ProcessHosted(TrialEvent):
    """Tells which process runs the trial, so that its memory can be found there. Not logged."""

    process: ProcessId


@dataclass(frozen=True)
class StillRunning(TrialEvent):
    """Asks, for a trial that has nothing to report, whether the trial may go on. Not logged. A
    worker answers it by itself, from the last verdict that the sweep has sent."""


@dataclass(frozen=True)
class TrialOutcome(TrialEvent):
    """The last event of one execution of a trial: exactly one of the seven classes below."""

    state: ClassVar[TrialState]
    """State of the trial after this outcome."""


@dataclass(frozen=True)
class FinishedOutcome(TrialOutcome):
    """The trial ran to its end, and `value` is its result."""

    state = TrialState.FINISHED
    value: float
    part_values: tuple[float, ...] = ()
    """The values of the trial's repeats, whose mean is `value`, or else of its folds; empty for a
    trial with one model."""
    values: Mapping[str, float] = field(default_factory=dict)
    """The value of each metric, and of each metric with a limit, by name; empty for a study with
    one metric and no limit."""
    reported: Mapping[str, float] = field(default_factory=dict)
    """The value by the trial's reports of each metric for which another value was returned or told,
    by name; empty where they agree."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The metrics of the trial's model, by name, if the trial's value is of its end: out-of-fold.
    Empty where the value is that of a report, which has its metrics."""

    @property
    def standard_error(self) -> float | None:
        """The standard error of `value`; None for fewer than two parts."""
        return standard_error(self.part_values)


@dataclass(frozen=True)
class PrunedOutcome(TrialOutcome):
    """The trial was stopped early because others are better; `value` is its best so far."""

    state = TrialState.PRUNED
    step: int
    value: float
    values: Mapping[str, float] = field(default_factory=dict)
    """The values as `FinishedOutcome` has them, as far as they are known."""


@dataclass(frozen=True)
class TooLargeOutcome(TrialOutcome):
    """No device can hold the trial, by what it declared or was seen to need.

    This is no failure of the trial. It gets no value, whatever it reported, since it can never be
    trained to its end.
    """

    state = TrialState.PRUNED
    cause: str
    excess: float
    """log(needed memory / available memory), above 0, from which the sampler learns."""
    at_least: bool = False
    """Whether `excess` is a lower bound: the trial ran out of memory, and its need is unknown."""


@dataclass(frozen=True)
class InterruptedOutcome(TrialOutcome):
    """The trial was ended by Ctrl-C, a kill or a dead worker; its last checkpoint resumes it."""

    state = TrialState.INTERRUPTED
    cause: str
    by_worker_death: bool = False
    """Whether the trial's process or its GPU died under it. The second such death of a trial fails
    it, unless the devices are seen to have failed."""
    killed: bool = False
    """Whether somebody killed a program that the trial had started, while its own process lives."""
    pack_dissolved: bool = False
    """Whether the trial's pack broke through no fault of the trial, which then goes on alone."""
    node_lost: bool = False
    """Whether the trial's node was lost; the trial goes on elsewhere."""
    lease_ended: bool = False
    """Whether nobody renewed the trial's lease. It goes on, unless another sweep has taken it."""


@dataclass(frozen=True)
class PausedOutcome(TrialOutcome):
    """The trial wrote a checkpoint at a rung and gave its device back. It goes on if the pruner
    promotes it, and is pruned at the end of the sweep otherwise."""

    state = TrialState.PAUSED
    step: int
    """The last step that the trial reported."""


@dataclass(frozen=True)
class FailedOutcome(TrialOutcome):
    """The trial failed by an error of its own."""

    state = TrialState.FAILED
    cause: str
    """One line for people and logs: `ValueError: …`."""
    details: str = ""
    """The traceback or the last output, for MLflow."""
    hopeless: bool = False
    """Whether no trial can succeed, because the objective does not fit the config (it lacks a param
    or a metric)."""


@dataclass(frozen=True)
class OutOfMemoryOutcome(TrialOutcome):
    """The device had no room; this is a failure only once no larger request is left to try."""

    state = TrialState.INTERRUPTED
    cause: str


# --- what happens to a study --------------------------------------------------------------------


@dataclass(frozen=True)
class SweepStarted:
    """A sweep starts or resumes a study; the parent run in MLflow is made from this event."""

    time: float
    study: str
    study_uuid: str
    settings: Mapping[str, str]
    """Flat settings (`training.epochs` → `20`) without credentials: the parent run's params."""
    config: str = ""
    """The text of `config.yaml`, in case that is damaged; empty in earlier versions' events."""
    code: Mapping[str, str] = field(default_factory=dict)
    """Digests of the user's code by what it is (`objective.target`); empty where there is none, and
    in earlier versions' events."""
    n_trials: int = 0
    """The number of trials that earlier sweeps began; 0 in earlier versions' events, too."""
    judged_rows: str = ""
    """Digest of the targets of the rows that judge the trials, in their order; empty without a
    table, and in earlier versions' events."""
    loading_seconds: float = 0.0
    """The time from the call of the sweep to this event; 0 in earlier versions' events."""


@dataclass(frozen=True)
class SweepEnded:
    """A sweep ends, with a summary of the study so far; `done` is false when it was interrupted."""

    time: float
    done: bool
    n_by_state: Mapping[TrialState, int]
    best_trial: int | None
    best_value: float | None
    failed: bool = False
    """Whether the sweep stopped because its trials kept failing."""
    reason: str = ""
    """Why it asked for fewer trials than `study.n_trials`; empty: it did not, or was stopped."""
    front: tuple[int, ...] = ()
    """The trials that no other is better than, in a study of several metrics."""
    baseline: Mapping[str, float] = field(default_factory=dict)
    """The study's metric of the constant prediction on the judged rows, by the prediction's name;
    empty where there is none."""
    baseline_scores: Mapping[str, float] = field(default_factory=dict)
    """All metrics of the constant prediction (`loss`); empty in earlier versions' events."""


@dataclass(frozen=True)
class PaceMeasured:
    """The time that a training step took on a kind of device, in a probe or in an execution.

    Of one execution the last measurement counts.
    """

    time: float
    kind: DeviceKind
    step_flops: float
    step_seconds: float
    execution: int | None = None
    """Number of the execution's first trial; None: the measurement is a probe."""


class ScoreInterval(NamedTuple):
    """A score and its 95 % confidence interval (a bootstrap over rows)."""

    value: float
    low: float
    high: float


class RowsKind(enum.Enum):
    """Tells which rows a model is scored on."""

    KEPT = "kept"
    """The study's own test part."""
    GIVEN = "given"
    """A table that came after the study."""
    VALIDATION = "validation"
    """The validation rows. Trials were chosen by them, so the score is optimistic."""
    OUT_OF_FOLD = "out_of_fold"
    """All rows of a study with folds, each scored by the models that never saw it. Trials were
    chosen by these scores, so they are optimistic."""

    @property
    def unseen(self) -> bool:
        """Whether no sweep ever saw the rows."""
        return self in (RowsKind.KEPT, RowsKind.GIVEN)


class ScoreDifference(NamedTuple):
    """How much a score exceeds another score of the same rows, and whether that is more than
    chance.

    The interval holds with 95 % for all models that are compared together.
    """

    value: float
    low: float
    high: float
    verdict: str
    """The verdict for people: `better`, `worse`, `may be chance`."""


@dataclass(frozen=True)
class ModelsEvaluated:
    """Models of the study were scored, all on the same rows."""

    time: float
    kind: RowsKind
    n_rows: int
    digest: str
    """Digest of the rows; equal digests mean equal rows."""
    trials: tuple[int, ...]
    """Trials whose own models were scored; the best of the study comes first."""
    scores: Mapping[str, Mapping[str, ScoreInterval]]
    """Scores by metric (`loss`), by name of the model, and by name of each baseline (`linear`):
    `scores[model or baseline][metric]`."""
    differences: Mapping[str, Mapping[str, ScoreDifference]] = field(default_factory=dict)
    """Differences from the first model by metric, for every other model: same keys as `scores`."""
    refit_of: int | None = None
    """The trial whose refit was scored too, as the first model; None: no trial was refitted."""
    ensembled: bool = False
    """Whether the ensemble was scored too; only its refit comes before it."""
    refit_of_ensemble: bool = False
    """Whether the refit of the ensemble was scored too, as the first model."""
    repeated_trial: int | None = None
    """The trial that was trained again with other seeds; None: none was."""
    repeated_scores: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """The scores of these trainings by metric."""

    @property
    def models(self) -> tuple[str, ...]:
        """Return the scored models without baselines; the others are compared with the first."""
        refitted = self.refit_of_ensemble or self.refit_of is not None
        refit = (refit_name(self.refit_of),) if refitted else ()
        joined = (ENSEMBLE_NAME,) if self.ensembled else ()
        return (*refit, *joined, *map(trial_name, self.trials))

    @property
    def rows(self) -> str:
        """Return a description of the scored rows for people."""
        which = "no sweep saw"
        if self.kind is RowsKind.VALIDATION:
            which = "of validation, by which trials were chosen"
        if self.kind is RowsKind.OUT_OF_FOLD:
            which = "out-of-fold, by which trials were chosen"
        return f"{self.n_rows:,} rows {which}"


@dataclass(frozen=True)
class ExportTuned:
    """Ways of running a model for an export were measured on this machine."""

    time: float
    model: str
    """Name of the model: `trial-00003`."""
    chosen: str
    """Name of the way that the export uses; empty: none was chosen."""
    figures: Mapping[str, Mapping[str, float]]
    """Figures of each way, by the way's name. The name of a figure that depends on the rows of a
    call ends with their number: `…@4096`."""


class ColumnImportance(NamedTuple):
    """How much the loss of a model rises where a column of the table is shuffled."""

    name: str
    rise: float
    standard_deviation: float
    """The standard deviation of the rise over shuffles."""


class CalibrationPoint(NamedTuple):
    """Rows for which a model predicts about the same probability."""

    predicted: float
    """The mean probability that is predicted."""
    observed: float
    """The share of the rows that are of the class."""
    n_rows: int


class EnsembleFindings(NamedTuple):
    """What an ensemble goes by and where it errs, on rows that no model asked has seen."""

    n_columns: int
    """Number of the table's columns, of which `importances` has the first."""
    n_rows: int
    """Number of rows in which columns were shuffled; 0: there are too many columns."""
    loss: float
    """The loss on these rows before a column is shuffled."""
    importances: tuple[ColumnImportance, ...]
    """The columns that matter, the most important first."""
    classes: tuple[str, ...]
    """The classes, the last of which may stand for all others; empty: values are predicted."""
    confusion: tuple[tuple[int, ...], ...]
    """Numbers of rows by true class, and in each by the class that they are taken for."""
    calibration: tuple[CalibrationPoint, ...]
    """The calibration of the second of two classes, or of each of more against the rest."""
    pairs: tuple[tuple[float, ...], ...]
    """The true and the predicted value of some rows; empty: classes are predicted."""


@dataclass(frozen=True)
class EnsembleBuilt:
    """Models of the study were combined: an ensemble is the weighted mean of their predictions."""

    time: float
    n_rows: int
    """Number of rows by which the members were chosen; no member was trained on them."""
    members: Mapping[int, float]
    """Weight of each member by trial number, the heaviest first; the weights sum to 1."""
    scores: Mapping[str, float]
    """Each metric of the ensemble by name (`loss`), on these rows."""
    rows_per_second: Mapping[int, float] = field(default_factory=dict)
    """Prediction speed by trial number, for each model that was considered."""
    alone: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """Each metric of the best single trial on these rows, by trial number."""
    intervals: Mapping[str, Mapping[str, ScoreInterval]] = field(default_factory=dict)
    """The main metrics on these rows with their intervals, of the ensemble and of the best models
    that were considered: `intervals[model][metric]`. Empty: an earlier version computed none."""
    findings: EnsembleFindings | None = None
    """What it goes by; None: nobody asked."""


@dataclass(frozen=True)
class ReportWritten:
    """The page of the study's report was written, which MLflow gets as an artifact."""

    time: float


@dataclass(frozen=True)
class TrialFilesRemoved:
    """Checkpoints and program files of trials are removed, since others are better."""

    time: float
    trials: tuple[int, ...]
    """Numbers of the trials."""


@dataclass(frozen=True)
class TrialsWaited:
    """Trials waited for something else than their turn, from `time` on."""

    time: float
    until: float
    """When they waited no more, or for something else (Unix seconds)."""
    reason: str


Event: TypeAlias = (
    "TrialEvent | SweepStarted | SweepEnded | PaceMeasured | ModelsEvaluated | "
    "EnsembleBuilt | ExportTuned | ReportWritten | TrialFilesRemoved | TrialsWaited | "
    "StudyEdited"
)
