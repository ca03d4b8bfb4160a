"""The record of one trial, made of its events as they come, and the ranking of trials. Pure.

One rule ranks trials, both in a running sweep and in the record of a study. A trial is worth its
best report, pruned or not, unless the objective returns the value: then the reports of a pruned
trial cannot be compared with the values of other trials.

`study_record.py` makes that of a whole study; nothing here reads a file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from automl.config import Task, parse_limit
from automl.config.metrics import reported_metric
from automl.config.study import LIMIT_PREFIX
from automl.record.device_time import NO_DEVICES
from automl.trial import (
    DEFAULT_METRIC,
    MAX_STEP,
    CheckpointKind,
    CheckpointWritten,
    DeviceKind,
    Direction,
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    MemoryPeakMeasured,
    MetricLimit,
    MetricsReported,
    OutOfMemoryOutcome,
    Params,
    ParamsSuggested,
    PrunedOutcome,
    RequestSource,
    StudyMetric,
    StudyMetrics,
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
"""A value this near (relative) to a trial's best report is that report. Equality would be too
strict: epochs repeated after an interruption differ a little on a GPU, and a kill can lose the last
report."""
LIST_SEPARATOR = ", "
"""Separates the metrics of a study, and their directions, in the flat settings of a sweep."""
ERROR_SUFFIX = "_se"
"""Ends the name of the standard error of a metric over the repeats of a trial: `val_loss_se`."""
KILLED_CAUSE = "its sweep was killed"
"""The cause of an interruption that no event tells of."""
LEASE_ENDED_CAUSE = "its lease ended: nobody told its result in time"
RANKED_STATES = (TrialState.FINISHED, TrialState.PRUNED)
"""The states in which a trial with a value has a rank."""
Rank: TypeAlias = tuple[bool, float, bool, int]
"""Sort key of trials; the best comes first."""


def metrics_from_settings(settings: Mapping[str, str]) -> StudyMetrics:
    """Read the metrics from the flat settings of a sweep; missing ones take their defaults.

    Several are written as `val_error, latency_ms`, and so are their directions.
    """
    names = settings.get("study.metric", DEFAULT_METRIC)
    directions = settings.get("study.direction", "").split(LIST_SEPARATOR)
    each = names.split(LIST_SEPARATOR) if len(directions) > 1 else [names]
    known = [Direction.__members__.get(name, Direction.minimize) for name in directions]
    limits = {
        key.removeprefix(LIMIT_PREFIX): parse_limit(key, text)
        for key, text in settings.items()
        if key.startswith(LIMIT_PREFIX)
    }
    return StudyMetrics(
        tuple(map(StudyMetric, each, known)),
        tuple(MetricLimit(name, largest) for name, largest in limits.items()),
    )


def is_value_returned(value: float, best_report: float | None) -> bool:
    """Return whether the objective returned the value, which the finished trial never reported."""
    return best_report is None or not math.isclose(value, best_report, rel_tol=NEAR)


def rank_trial(key: float, state: TrialState, number: int, *, returned: bool) -> Rank:
    """Return the rank of a trial with the value `key`; a lower value is better.

    `returned` says that the objective of the study returns its values. Among equals, finished
    trials come first, then trials that were begun earlier.
    """
    is_pruned = state is TrialState.PRUNED
    return (returned and is_pruned, key, is_pruned, number)


def may_be_best(state: TrialState, *, returned: bool) -> bool:
    """Return whether the first trial of a ranking is the best; a pruned one may not compare."""
    return not (returned and state is TrialState.PRUNED)


_BUILT_IN_METRICS = frozenset(reported_metric(Task.auto))


@dataclass(slots=True)
class TrialRecord:
    """All that the events of a trial tell about it; made by `TrialRecordBuilder`, and not changed
    after."""

    number: int
    started: float
    """When the trial was first started (Unix seconds)."""
    reports: dict[int, Mapping[str, float]] | None = None
    """Metrics by step, including values logged through another library; None: the builder keeps no
    reports."""
    params: Params = field(default_factory=dict)
    outcome: TrialOutcome | None = None
    """How the last execution ended, without a traceback; None: it ran at the last event."""
    device: str = ""
    """The label of the device where the trial ran last."""
    n_starts: int = 0
    n_deaths: int = 0
    """The number of executions that ended because their process died."""
    n_out_of_memory: int = 0
    """The number of executions that ended because the device had no memory left."""
    peaks: dict[int, int] = field(default_factory=dict)
    """Peak memory (bytes) on a device, by the number of trials that trained together there, with
    this one; 1: it trained alone."""
    predicted_bytes: int | None = None
    """Memory that the trial asked for when it was last measured alone; None: the size was unknown,
    or the trial was not measured."""
    predicted_by: RequestSource | None = None
    """The source of `predicted_bytes`."""
    report_seconds: dict[int, float] = field(default_factory=dict)
    """The time in which the trial had run at each report that is kept (seconds), by step."""
    best_value: float | None = None
    """The best finite value of the study's metric among the trial's reports."""
    best_step: int | None = None
    """The step of `best_value`."""
    n_reports: int = 0
    last_step: int = 0
    """The largest reported step that a store can hold; 0 before the first report."""
    checkpoints: dict[CheckpointKind, str] = field(default_factory=dict)
    """Paths as the log has them, relative to the study; a stranger may have written them."""
    tags: dict[str, str] = field(default_factory=dict)
    """Texts that the objective tagged the trial with, by name."""
    best_metrics: dict[str, float] = field(default_factory=dict)
    """Metrics that the built-in training knows (`config.metrics`), by name: of the trial's end if
    its value is of there, else of its best report."""
    lease_seconds: float | None = None
    """Longest time between events of a trial that somebody outside has; None: a sweep ran it."""
    lease_until: float | None = None
    """Time at which the lease of a trial that runs outside ends (Unix seconds); None: nobody
    has."""
    request: str = ""
    """Id of the request that asked for the trial; empty: no request to a sweep did."""
    seconds: float = 0.0
    """The time in which the trial ran, each attempt up to its last event; pauses do not count."""
    last_seconds: float = 0.0
    """The time of the trial's last event (Unix seconds)."""

    @property
    def state(self) -> TrialState:
        """The state of the trial; RUNNING also if its sweep was killed, before `as_left`."""
        return TrialState.RUNNING if self.outcome is None else self.outcome.state

    @property
    def kind(self) -> DeviceKind | None:
        """The kind of the device where the trial ran last; None: it ran on no device."""
        if self.device in NO_DEVICES:
            return None
        return kind_of_label(self.device)

    @property
    def peak_bytes(self) -> int:
        """Peak memory of the trial when it trained alone (bytes); 0: not known."""
        return self.peaks.get(1, 0)

    @property
    def value(self) -> float | None:
        """The final value of a finished trial, or the best of a pruned one; None: no value."""
        return (
            self.outcome.value
            if isinstance(self.outcome, FinishedOutcome | PrunedOutcome)
            else None
        )

    @property
    def values(self) -> Mapping[str, float]:
        """The value of each metric by name, in a study of several; empty: of one, or unknown."""
        return (
            self.outcome.values if isinstance(self.outcome, FinishedOutcome | PrunedOutcome) else {}
        )

    @property
    def reported(self) -> Mapping[str, float]:
        """The reported value of each metric whose returned value differs, by name."""
        return self.outcome.reported if isinstance(self.outcome, FinishedOutcome) else {}

    @property
    def standard_error(self) -> float | None:
        """The standard error of the value over repeats or folds; None: the trial has one model."""
        return self.outcome.standard_error if isinstance(self.outcome, FinishedOutcome) else None

    @property
    def cause(self) -> str | None:
        """One line that says why the trial failed, stopped or fits nowhere; None: it did not, or it
        was started again since."""
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
        """When the trial ended for good (Unix seconds); None: it has not."""
        return self.outcome.time if self.outcome is not None and self.state.is_final else None

    def as_left(self, now_seconds: float) -> TrialRecord:
        """Return the record of the trial when no sweep works on its study: one that ran is
        interrupted, unless somebody outside has it at `now_seconds` (Unix seconds)."""
        if self.outcome is not None or (self.lease_until or 0.0) > now_seconds:
            return self
        cause = KILLED_CAUSE if self.lease_until is None else LEASE_ENDED_CAUSE
        return replace(self, outcome=InterruptedOutcome(self.number, self.last_seconds, cause))


@dataclass(slots=True)
class TrialRecordBuilder(TrialRecord):
    """Makes a `TrialRecord` from the events of a trial, one after another."""

    metrics: StudyMetrics = field(default_factory=StudyMetrics)
    _newest_step: int | None = None

    def take(self, event: TrialEvent) -> None:
        """Update the record with the next event."""
        if isinstance(event, TrialStarted):
            self.last_seconds = event.time
        elif self.n_starts and self.outcome is None:  # threads write events not quite in order
            self.seconds += max(0.0, event.time - self.last_seconds)
        self.last_seconds = max(self.last_seconds, event.time)
        match event:
            case MetricsReported():
                self._take_report(event)
            case TrialStarted():
                self.params, self.device, self.outcome = event.params, event.device, None
                self.n_starts += 1
                self.lease_seconds, self.request = event.lease_seconds, event.request
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
        is_leased = self.lease_seconds is not None and self.outcome is None
        self.lease_until = event.time + (self.lease_seconds or 0.0) if is_leased else None

    def leave(self, now_seconds: float) -> None:
        """Note that the sweep that had the trial is over at `now_seconds` (Unix seconds)."""
        self.outcome = self.as_left(now_seconds).outcome

    def record(self) -> TrialRecord:
        """Return the record of the trial after all events taken so far."""
        values: dict[str, Any] = {name: getattr(self, name) for name in TrialRecord.__slots__}
        for name, value in values.items():
            values[name] = dict(value) if isinstance(value, dict) else value
        return TrialRecord(**values)

    def _take_report(self, event: MetricsReported) -> None:
        self.n_reports += event.step != self._newest_step  # a later part of the same report
        self._newest_step = event.step
        if event.step <= MAX_STEP:  # older versions took steps that no store can hold
            self.last_step = max(self.last_step, event.step)
        value = event.metrics.get(self.metrics.leading.name)
        if value is not None and math.isfinite(value) and self._is_best(value):
            self.best_value, self.best_step = value, event.step
            self.best_metrics = {}
        if event.step == self.best_step:
            self._keep_best(event.metrics)
        if self.reports is not None:
            self.reports[event.step] = {**self.reports.get(event.step, {}), **event.metrics}
            self.report_seconds[event.step] = self.seconds

    def _keep_best(self, metrics: Mapping[str, float]) -> None:
        """Keep the study's metric and the built-in ones of the best report; there may be any number
        of others."""
        leading = self.metrics.leading.name
        for name, value in metrics.items():
            if name == leading or name in _BUILT_IN_METRICS:
                self.best_metrics.setdefault(name, value)

    def _take_logged(self, event: ValuesLogged) -> None:
        """Keep logged values where they are wanted; they never change the trial's value."""
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
        better = self.metrics.leading.direction.better
        return self.best_value is None or better(value, self.best_value)

    def _take_outcome(self, event: TrialOutcome) -> None:
        # No reader needs the tracebacks, and there may be ten thousand of them.
        self.outcome = replace(event, details="") if isinstance(event, FailedOutcome) else event
        if isinstance(event, FinishedOutcome) and event.metrics:
            self.best_metrics = {}
            self._keep_best(event.metrics)
        self.n_deaths += isinstance(event, InterruptedOutcome) and event.by_worker_death
        self.n_out_of_memory += isinstance(event, OutOfMemoryOutcome)


TRIAL_COLUMNS = ("trial", "state", "value")
"""First columns of a table of trials."""


def trial_row(trial: TrialRecord) -> dict[str, Any]:
    """Return the row of a trial in a table of trials, by the names of its columns."""
    row = {"trial": trial.number, "state": trial.state.value, "value": _value(trial)}
    if trial.standard_error is not None:
        row["value_se"] = trial.standard_error
    row |= {f"values.{name}": value for name, value in trial.values.items()}
    row |= {f"params.{name}": value for name, value in trial.params.items()}
    row |= {f"tags.{name}": text for name, text in trial.tags.items()}
    if trial.reported:
        row["best_report"] = trial.best_value
    return row | {
        "best_step": trial.best_step,
        "n_reports": trial.n_reports,
        "started": trial.started,
        "ended": trial.ended,
        "seconds": round(trial.seconds, 3),
        "device": trial.device,
        "cause": trial.cause,
    }


def _value(trial: TrialRecord) -> float | None:
    """Return the trial's value; while it has not ended, its best value so far."""
    return trial.value if trial.state.is_final else trial.best_value
