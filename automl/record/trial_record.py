"""All that is known of one trial, folded from its events as they come.

Which trial of a study is the best: one rule, for a running sweep and for the record of any.

A trial is worth its best report, pruned or not, unless the objective returns its value: then what
a pruned trial reported compares with no other trial's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from automl.config import StudyConfig, Task
from automl.config.metrics import reported_metric
from automl.trial import (
    MAX_STEP,
    CheckpointKind,
    CheckpointWritten,
    DeviceKind,
    Direction,
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    MemoryPeakMeasured,
    MetricsReported,
    OutOfMemoryOutcome,
    Params,
    ParamsSuggested,
    PrunedOutcome,
    RequestSource,
    TooLargeOutcome,
    TrialEvent,
    TrialOutcome,
    TrialStarted,
    TrialState,
    TrialTagged,
    ValuesLogged,
    kind_of_label,
)

NEAR = 0.01
"""A value so near to a trial's best report is that report. Not equal, because epochs that a trial
repeats after an interruption differ a little on a GPU, and a kill can lose the last report."""
RANKED = (TrialState.FINISHED, TrialState.PRUNED)
"""States in which a trial that has a value has a rank."""
Rank: TypeAlias = tuple[bool, float, bool, int]
"""Sorts trials, the best first."""


@dataclass(frozen=True)
class StudyMetric:
    """What a study optimises."""

    name: str = StudyConfig.metric
    direction: Direction = Direction.minimize

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> StudyMetric:
        """As the flat settings of a sweep tell it; what they lack takes its default."""
        direction = Direction.__members__.get(settings.get("study.direction", ""), cls.direction)
        return cls(settings.get("study.metric", cls.name), direction)


def is_returned(value: float, best_report: float | None) -> bool:
    """Whether a finished trial's value is none that it reported: the objective returned it."""
    return best_report is None or not math.isclose(value, best_report, rel_tol=NEAR)


def rank(key: float, state: TrialState, number: int, *, returned: bool) -> Rank:
    """Of a trial worth `key`, of which less is better, in a study whose values are `returned`.

    Of equals finished ones come first, then those begun first.
    """
    pruned = state is TrialState.PRUNED
    return (returned and pruned, key, pruned, number)


def may_win(state: TrialState, *, returned: bool) -> bool:
    """Whether the first of a ranking is the best trial: a pruned one has no value to compare."""
    return not (returned and state is TrialState.PRUNED)


_OURS = frozenset(reported_metric(Task.auto))
_NO_DEVICE = "none"
"""What is written of a trial that ended before it ran."""


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """A trial as its events tell it."""

    number: int
    params: Params
    outcome: TrialOutcome | None
    """How its last execution ended, without a traceback; None: it was running at the last event."""
    device: str
    """Where it ran last, for people."""
    started: float
    """When it was first started (Unix seconds)."""
    n_starts: int
    n_deaths: int
    """Executions that ended because the process died under them."""
    n_out_of_memory: int
    """Executions that ended because the device had no room."""
    peaks: Mapping[int, int]
    """The most memory (bytes) that was held on a device by so many trials that trained together, it
    among them; 1: by itself."""
    predicted_bytes: int | None
    """What it asked for when it was last measured by itself, and how that was known; None: it was
    of unknown size, or not measured:"""
    predicted_by: RequestSource | None
    best_value: float | None
    """The best finite value of the study's metric among its reports, and its step:"""
    best_step: int | None
    n_reports: int
    last_step: int
    """The largest step that a store can hold; 0 before the first report."""
    checkpoints: Mapping[CheckpointKind, str]
    """Paths as the log says them: relative to the study, and whatever a stranger wrote."""
    reports: Mapping[int, Mapping[str, float]] | None
    """Metrics by step, those that were logged through another library among them; None: the fold
    was to keep none."""
    tags: Mapping[str, str]
    """What the objective noted, by name."""
    best_metrics: Mapping[str, float] = field(default_factory=dict)
    """Of its best report, what a training on a table tells (`config.metrics`), by name."""

    @property
    def state(self) -> TrialState:
        """RUNNING may be a trial whose sweep was killed: the log does not tell."""
        return _state(self.outcome)

    @property
    def kind(self) -> DeviceKind | None:
        """Of the device where it ran last; None: on none."""
        if self.device in ("", _NO_DEVICE):
            return None
        return kind_of_label(self.device)

    @property
    def peak_bytes(self) -> int:
        """The most memory that it held by itself; 0: not known."""
        return self.peaks.get(1, 0)

    @property
    def value(self) -> float | None:
        """What it finished with, or the best of a pruned one; None: it has no value."""
        return (
            self.outcome.value
            if isinstance(self.outcome, FinishedOutcome | PrunedOutcome)
            else None
        )

    @property
    def cause(self) -> str | None:
        """Why it failed, stopped or fits nowhere, one line; None: it did not, or goes on since."""
        match self.outcome:
            case (
                FailedOutcome()
                | TooLargeOutcome()
                | InterruptedOutcome()
                | OutOfMemoryOutcome() as outcome
            ):
                return outcome.cause
        return None

    @property
    def ended(self) -> float | None:
        """When it came to its end for good (Unix seconds); None: it has not."""
        return self.outcome.time if self.outcome is not None and self.state.is_final else None


@dataclass(slots=True)
class TrialFold:
    """Takes the events of a trial one after another; `record` is what they say so far."""

    number: int
    started: float
    metric: StudyMetric = field(default_factory=StudyMetric)
    reports: dict[int, Mapping[str, float]] | None = None
    """Where reports are kept; None: they are not."""
    params: Params = field(default_factory=dict)
    outcome: TrialOutcome | None = None
    device: str = ""
    n_starts: int = 0
    n_deaths: int = 0
    n_out_of_memory: int = 0
    peaks: dict[int, int] = field(default_factory=dict)
    predicted_bytes: int | None = None
    predicted_by: RequestSource | None = None
    best_value: float | None = None
    best_step: int | None = None
    n_reports: int = 0
    last_step: int = 0
    checkpoints: dict[CheckpointKind, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    best_metrics: dict[str, float] = field(default_factory=dict)
    _newest_step: int | None = None

    @property
    def state(self) -> TrialState:
        return _state(self.outcome)

    def take(self, event: TrialEvent) -> None:
        """Learn from the next event."""
        match event:
            case MetricsReported():
                self._take_report(event)
            case TrialStarted():
                self.params, self.device, self.outcome = event.params, event.device, None
                self.n_starts += 1
            case ParamsSuggested():
                self.params = {**self.params, **event.params}
            case TrialTagged():
                self.tags[event.name] = event.text
            case ValuesLogged():
                self._take_logged(event)
            case CheckpointWritten():
                self.checkpoints[event.kind] = event.path
            case MemoryPeakMeasured():
                self._take_peak(event)
            case TrialOutcome():
                self._take_outcome(event)

    def record(self) -> TrialRecord:
        """The trial as it stands."""
        return TrialRecord(
            number=self.number,
            params=self.params,
            outcome=self.outcome,
            device=self.device,
            started=self.started,
            n_starts=self.n_starts,
            n_deaths=self.n_deaths,
            n_out_of_memory=self.n_out_of_memory,
            peaks=dict(self.peaks),
            predicted_bytes=self.predicted_bytes,
            predicted_by=self.predicted_by,
            best_value=self.best_value,
            best_step=self.best_step,
            n_reports=self.n_reports,
            last_step=self.last_step,
            checkpoints=dict(self.checkpoints),
            reports=None if self.reports is None else dict(self.reports),
            tags=dict(self.tags),
            best_metrics=dict(self.best_metrics),
        )

    def _take_report(self, event: MetricsReported) -> None:
        self.n_reports += event.step != self._newest_step  # a later part of the same report
        self._newest_step = event.step
        if event.step <= MAX_STEP:  # older versions took what no store can hold
            self.last_step = max(self.last_step, event.step)
        value = event.metrics.get(self.metric.name)
        if value is not None and math.isfinite(value) and self._is_best(value):
            self.best_value, self.best_step = value, event.step
            self.best_metrics = {}
        if event.step == self.best_step:
            self._keep_best(event.metrics)
        if self.reports is not None:
            self.reports[event.step] = {**self.reports.get(event.step, {}), **event.metrics}

    def _keep_best(self, metrics: Mapping[str, float]) -> None:
        """Those that are known by name: others may be without number."""
        for name in metrics.keys() & _OURS:
            self.best_metrics.setdefault(name, metrics[name])

    def _take_logged(self, event: ValuesLogged) -> None:
        """Nothing that the study goes by."""
        self._keep_best({p.name: p.value for p in event.points if p.step == self.best_step})
        if self.reports is not None:
            for point in event.points:
                known = self.reports.get(point.step, {})
                self.reports[point.step] = {**known, point.name: point.value}

    def _take_peak(self, event: MemoryPeakMeasured) -> None:
        before = self.peaks.get(event.n_lanes, 0)
        self.peaks[event.n_lanes] = max(before, event.peak_bytes)
        if event.n_lanes == 1:
            self.predicted_bytes, self.predicted_by = event.predicted_bytes, event.source

    def _is_best(self, value: float) -> bool:
        return self.best_value is None or self.metric.direction.better(value, self.best_value)

    def _take_outcome(self, event: TrialOutcome) -> None:
        # Nobody asks for its traceback here, and there may be ten thousand of them.
        self.outcome = replace(event, details="") if isinstance(event, FailedOutcome) else event
        self.n_deaths += isinstance(event, InterruptedOutcome) and event.by_worker_death
        self.n_out_of_memory += isinstance(event, OutOfMemoryOutcome)


def _state(outcome: TrialOutcome | None) -> TrialState:
    return TrialState.RUNNING if outcome is None else outcome.state
