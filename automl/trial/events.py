"""What happens to a trial and to a study: the lines of the event log."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, TypeAlias

from automl.trial.placement import DeviceKind, ProcessId, RequestSource
from automl.trial.trial_spec import (
    ENSEMBLE_NAME,
    CheckpointKind,
    Params,
    TrialState,
    refit_name,
    trial_name,
)


@dataclass(frozen=True)
class TrialEvent:
    """Something that happened to a trial, in the order in which it happened."""

    trial: int
    time: float


@dataclass(frozen=True)
class TrialStarted(TrialEvent):
    """A trial begins, or goes on after an interruption (then it was started before)."""

    params: Params
    device: str
    """Name of the device for people: `cpu`, or the GPU's name and UUID."""


@dataclass(frozen=True)
class ParamsSuggested(TrialEvent):
    """Params that the objective asked for while it ran, beside those that it was started with."""

    params: Params


@dataclass(frozen=True)
class MetricsReported(TrialEvent):
    """Metrics of one step (for the built-in objective: one epoch, counted from 0).

    A step may be told in several parts, each with metrics that those before it lack.
    """

    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class TrialTagged(TrialEvent):
    """Something that the objective noted about its trial; a later text of the name replaces it."""

    name: str
    text: str


class LoggedPoint(NamedTuple):
    """A value of a metric that an objective logged through another library."""

    name: str
    value: float
    step: int
    """Below 0 too: libraries take any."""
    time_ms: int
    """Unix time, as the library had it."""


@dataclass(frozen=True)
class ValuesLogged(TrialEvent):
    """What an objective logged through another library (MLflow), in one call of it.

    A metric of a step and a param are told once. The study's own metric is `MetricsReported`
    instead, and
    tags are `TrialTagged`.
    """

    points: tuple[LoggedPoint, ...] = ()
    params: Mapping[str, str] = field(default_factory=dict)
    """Of its own, beside the trial's."""


@dataclass(frozen=True)
class CheckpointWritten(TrialEvent):
    """A checkpoint file is complete on disk."""

    step: int
    path: str
    """Relative to the study in its event log, since a study may be moved; absolute before."""
    kind: CheckpointKind


@dataclass(frozen=True)
class MemoryPeakMeasured(TrialEvent):
    """The most memory that the trial held so far on the one of its devices where it held most."""

    peak_bytes: int
    n_lanes: int = 1
    """Above 1: what a pack held that this trial was of, with so many at once."""
    allocated_bytes: int = 0
    """The part of it that tensors had; 0: not known."""
    predicted_bytes: int | None = None
    """What was asked for, and how that was known; the sweep notes it, not the trial."""
    source: RequestSource | None = None
    on_each_bytes: tuple[int, ...] = ()
    """Of several devices the most on each, in the placement's order; one has `peak_bytes`."""

    @property
    def by_device(self) -> tuple[int, ...]:
        """The most on each of its devices, in their order."""
        return self.on_each_bytes or (self.peak_bytes,)


@dataclass(frozen=True)
class ProcessHosted(TrialEvent):
    """The process that carries the trial out is known, and its memory is seen there. Not logged."""

    process: ProcessId


@dataclass(frozen=True)
class StillRunning(TrialEvent):
    """A trial that has nothing to report asks whether it may go on. Not logged; in a worker it is
    answered there, by what has come from the sweep."""


@dataclass(frozen=True)
class TrialOutcome(TrialEvent):
    """The last event of one execution of a trial: exactly one of the six below."""

    state: ClassVar[TrialState]
    """Where the trial stands after it."""


@dataclass(frozen=True)
class FinishedOutcome(TrialOutcome):
    state = TrialState.FINISHED
    value: float


@dataclass(frozen=True)
class PrunedOutcome(TrialOutcome):
    """Stopped early because others are better. `value` is its best so far."""

    state = TrialState.PRUNED
    step: int
    value: float


@dataclass(frozen=True)
class TooLargeOutcome(TrialOutcome):
    """No device can hold it, which it was seen or declared to want: no failure of its own, and no
    value, whatever it reported, since it can never be trained to its end."""

    state = TrialState.PRUNED
    cause: str
    excess: float
    """log(what it needs / what there is), above 0: the sampler learns from it where memory ends."""
    at_least: bool = False
    """It may be more: it ran out of memory, and nothing tells what it needs."""


@dataclass(frozen=True)
class InterruptedOutcome(TrialOutcome):
    """Ended by Ctrl-C, a kill or a dead worker; goes on later from its last checkpoint."""

    state = TrialState.INTERRUPTED
    cause: str
    by_worker_death: bool = False
    """The process died under the trial, or its GPU did: the second such death in one trial fails
    it, unless the devices are seen to have failed."""
    killed: bool = False
    """Somebody killed a program of the trial's; its own process lives."""
    pack_dissolved: bool = False
    """Its pack broke, by no fault of the trial's: it goes on alone."""
    node_lost: bool = False
    """Its node was lost, likewise: it goes on elsewhere."""
    lease_ended: bool = False
    """Nobody renewed its lease, likewise: it goes on, unless another sweep has taken it."""


@dataclass(frozen=True)
class FailedOutcome(TrialOutcome):
    state = TrialState.FAILED
    cause: str
    """One line for people and logs: `ValueError: …`."""
    details: str = ""
    """Traceback or last output, for MLflow."""
    hopeless: bool = False
    """The objective does not fit the config (a param or metric it lacks): no trial can succeed."""


@dataclass(frozen=True)
class OutOfMemoryOutcome(TrialOutcome):
    """The device had no room; not a failure until nothing larger is left to try."""

    state = TrialState.INTERRUPTED
    cause: str


# --- what happens to a study --------------------------------------------------------------------


@dataclass(frozen=True)
class SweepStarted:
    """A sweep begins or goes on with a study: what the parent run in MLflow is made from."""

    time: float
    study: str
    study_uuid: str
    settings: Mapping[str, str]
    """Flat settings (`training.epochs` → `20`) without credentials; params of the parent run."""


@dataclass(frozen=True)
class SweepEnded:
    """A sweep ends: the study's summary so far. `done` is false when it was interrupted."""

    time: float
    done: bool
    n_by_state: Mapping[TrialState, int]
    best_trial: int | None
    best_value: float | None
    failed: bool = False
    """It stopped because its trials kept failing."""


@dataclass(frozen=True)
class PaceMeasured:
    """Steps of training took so long on a kind of device, of a probe or of an execution; of the
    latter what is told last counts."""

    time: float
    kind: DeviceKind
    step_flops: float
    step_seconds: float
    execution: int | None = None
    """Number of its first trial; None: a probe."""


class ScoreInterval(NamedTuple):
    """A score, and where it lies with 95 % (a bootstrap over rows)."""

    value: float
    low: float
    high: float


class RowsKind(enum.Enum):
    """Which rows a model is scored on."""

    KEPT = "kept"
    """The study's own test part."""
    GIVEN = "given"
    """A table that came later."""
    VALIDATION = "validation"
    """By which trials were chosen: the score flatters."""
    OUT_OF_FOLD = "out_of_fold"
    """Likewise, of trials with folds: all rows, each by the models that never saw it."""

    @property
    def unseen(self) -> bool:
        """Whether no sweep ever saw them."""
        return self in (RowsKind.KEPT, RowsKind.GIVEN)


class ScoreDifference(NamedTuple):
    """By how much a score is above another of the same rows, and whether that is more than chance:
    where it lies with 95 %, of all that are compared together."""

    value: float
    low: float
    high: float
    verdict: str
    """For people: `better`, `worse`, `may be chance`."""


@dataclass(frozen=True)
class ModelsEvaluated:
    """Models of the study were scored, all on the same rows."""

    time: float
    kind: RowsKind
    n_rows: int
    digest: str
    """Of the rows: equal ones are the same."""
    trials: tuple[int, ...]
    """Whose own models; the best of the study first."""
    scores: Mapping[str, Mapping[str, ScoreInterval]]
    """Each metric by name (`loss`), of each model by its name, and of each baseline (`linear`)."""
    differences: Mapping[str, Mapping[str, ScoreDifference]] = field(default_factory=dict)
    """Likewise, of all but the first model."""
    refit_of: int | None = None
    """The trial whose refit was scored too, as the first model; None: it was not."""
    ensembled: bool = False
    """The ensemble was scored too, as the first model but for its refit."""
    refit_of_ensemble: bool = False
    """The refit of the ensemble was scored too, as the first model."""

    @property
    def models(self) -> tuple[str, ...]:
        """Names of what was scored but for baselines, the first of which the others are compared
        with."""
        refitted = self.refit_of_ensemble or self.refit_of is not None
        refit = (refit_name(self.refit_of),) if refitted else ()
        joined = (ENSEMBLE_NAME,) if self.ensembled else ()
        return (*refit, *joined, *map(trial_name, self.trials))

    @property
    def rows(self) -> str:
        """Which rows, for people."""
        which = "no sweep saw"
        if self.kind is RowsKind.VALIDATION:
            which = "of validation, by which trials were chosen"
        if self.kind is RowsKind.OUT_OF_FOLD:
            which = "out-of-fold, by which trials were chosen"
        return f"{self.n_rows:,} rows {which}"


@dataclass(frozen=True)
class ExportTuned:
    """Ways of running a model were measured on this machine, for an export."""

    time: float
    model: str
    """Its name: `trial-00003`."""
    chosen: str
    """The way that the export is; empty: none."""
    figures: Mapping[str, Mapping[str, float]]
    """Of each way by its name; those by the rows of a call have names that end so: `…@4096`."""


@dataclass(frozen=True)
class EnsembleBuilt:
    """Models of the study were made one: the weighted mean of what they say."""

    time: float
    n_rows: int
    """By which the members were chosen; none of them has seen those."""
    members: Mapping[int, float]
    """The weight of each trial's model, the heaviest first; they sum to 1."""
    scores: Mapping[str, float]
    """Each metric by name (`loss`), on those rows."""
    rows_per_second: Mapping[int, float] = field(default_factory=dict)
    """How fast the model of each trial predicts that was looked at."""
    alone: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """Each metric of the best trial by itself, on those rows, by its number."""


Event: TypeAlias = (
    "TrialEvent | SweepStarted | SweepEnded | PaceMeasured | ModelsEvaluated | "
    "EnsembleBuilt | ExportTuned"
)
