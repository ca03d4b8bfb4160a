"""Gives trials of a study to experiments outside of any sweep, and takes their results.

An asked trial is a trial of the record as any other: events of the log tell of its start, its
reports and its end. It is leased to whoever asked. If its lease ends without news, it is
interrupted and given again. A running sweep answers `ask` and `tell` by this module, and where none
runs `outside_study.py` opens the study for a moment. Nothing here trains.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from automl.errors import ConfigError
from automl.in_trial.reports.report_values import (
    parse_metric_name,
    parse_metric_value,
    parse_step,
)
from automl.record.event_log import EventLog
from automl.record.study_record import StudyRecord
from automl.record.study_requests import RequestAnswer, StudyRequest
from automl.record.texts import counted
from automl.record.trial_record import (
    LEASE_ENDED_CAUSE,
    TrialRecord,
    TrialRecordBuilder,
    is_value_returned,
)
from automl.search.study import AskedTrial, Study
from automl.trial import (
    OUTSIDE_DEVICE,
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    MetricsReported,
    PrunedOutcome,
    StudyMetrics,
    TrialOutcome,
    TrialStarted,
    TrialState,
    Verdict,
)

ASK, TELL = "ask", "tell"
"""The kinds of requests that are about trials outside."""
ASK_SECONDS = 60.0
"""Age of a request from which on its sender waits no more; nobody would get its trials."""
EndTrial = Callable[[TrialOutcome], None]
"""Tells the study that a trial has ended, after the event log has it."""


@dataclass(frozen=True)
class OutsideResult:
    """The reports and the end of a trial, as somebody outside tells them."""

    trial: int
    reports: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """Metrics by step, in the order of the steps."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Metrics of the result, which count for the trial's last step."""
    state: TrialState | None = None
    """The state that the trial ends in; None: it goes on."""
    value: float | None = None
    """The value of a finished trial; None: the best that it reported."""
    reason: str = ""
    """Why the trial failed or is given back, for people."""

    @classmethod
    def from_request(cls, arguments: Mapping[str, Any]) -> OutsideResult:
        """Return the result that a request tells. Raises TypeError, ValueError, and KeyError."""
        state, value = arguments["state"], arguments["value"]
        reports = {
            parse_step(int(step)): _metrics(metrics)
            for step, metrics in arguments["reports"].items()
        }
        return cls(
            int(arguments["trial"]),
            dict(sorted(reports.items())),
            _metrics(arguments["metrics"]),
            None if state is None else TrialState(state),
            None if value is None else float(value),
            str(arguments["reason"]),
        )


class OutsideTrials:
    """The trials of a study that run outside of its sweeps. For the main thread.

    `trials` are leased, `free` wait to be given again.
    """

    def __init__(
        self,
        study: Study,
        log: EventLog,
        record: StudyRecord,
        *,
        metrics: StudyMetrics,
        only: bool,
    ) -> None:
        """Take what earlier processes gave out. `only`: no trial of the study runs inside, so that
        all its unfinished trials are given again. `record`: what `log` has; with its reports, if
        the study has several metrics."""
        self._study, self._log, self._metrics, self.only = study, log, metrics, only
        self.trials: dict[int, TrialRecordBuilder] = {}
        """The leased trials by number."""
        self.free: dict[int, TrialRecordBuilder | None] = {}
        """The trials to give out next, in this order; None: nothing is logged of the trial yet."""
        self._exhausted = False
        for asked in study.interrupted():
            self._take_over(asked.number, record)

    def _take_over(self, number: int, record: StudyRecord) -> None:
        known = record.trials.get(number)
        if known is not None and known.state.is_final:
            return  # the study is told of it (`take_over_trials`)
        builder = None if known is None else _builder_of(known, self._metrics)
        if builder is not None and builder.lease_until is not None:
            self.trials[number] = builder
        elif self.only or (builder is not None and builder.lease_seconds is not None):
            self.free[number] = builder

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers of the trials that are leased, or that wait to be given out."""
        return frozenset((*self.trials, *self.free))

    def may_come(self, n_trials: int) -> bool:
        """Return whether results are still to be told, of at most `n_trials` trials in all."""
        is_open = self.only and self._study.n_asked < n_trials and not self._exhausted
        return is_open or bool(self.trials or self.free)

    def leave_free(self) -> list[int]:
        """Leave the trials that are free to a sweep that runs them itself; return their numbers."""
        numbers = [] if self.only else [*self.free]
        for number in numbers:
            del self.free[number]
        return numbers

    def end_leases(self, now: float) -> list[int]:
        """Interrupt the trials whose lease has ended at `now`, and return their numbers.

        They are free then. Raises StorageError.
        """
        ended = [n for n, trial in self.trials.items() if (trial.lease_until or now) <= now]
        for number in ended:
            outcome = InterruptedOutcome(number, now, LEASE_ENDED_CAUSE, lease_ended=True)
            self._give_back(outcome)
        return ended

    def answer(self, request: StudyRequest, n_trials: int, end: EndTrial) -> RequestAnswer:
        """Answer a request; the study has at most `n_trials` trials in all.

        Raises ConfigError for what cannot be done, and StorageError.
        """
        if request.kind == ASK and time.time() - request.time > ASK_SECONDS:
            raise ConfigError("ask: whoever asked has gone")
        if request.kind == ASK:
            n, lease_seconds = int(request.arguments["n"]), request.arguments["lease_seconds"]
            return self._answer_ask(request.id, n, float(lease_seconds), n_trials)
        try:
            result = OutsideResult.from_request(request.arguments)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"tell: {error}") from error
        return self.tell(result, end)

    # --- ask ---

    def _answer_ask(
        self, request: str, n: int, lease_seconds: float, n_trials: int
    ) -> RequestAnswer:
        if self._study.suggester is not None:
            raise ConfigError(
                "ask: objective=optuna asks for its params while it runs, so that no trial has "
                "them before. Begin a study with a written space: ask NAME space.PARAM=…"
            )
        given = [t.number for t in self.trials.values() if request and t.request == request]
        while len(given) < n and (asked := self._next(n_trials)) is not None:
            self._start(asked, lease_seconds, request)
            given.append(asked.number)
        if not given:
            raise ConfigError(f"ask: {self._why_none(n_trials)}")
        rows = [self._row(number) for number in given]
        words = ", ".join(map(str, given))
        text = f"trial{'s' * (len(given) > 1)} {words}: given out"
        if len(given) < n:
            text += f"; {n} were asked for, and {self._why_none(n_trials)}"
        return RequestAnswer(text, values={"trials": rows})

    def _next(self, n_trials: int) -> AskedTrial | None:
        for number in self.free:
            return AskedTrial(number, self._study.params(number))
        asked = self._study.ask() if self._study.n_asked < n_trials else None
        self._exhausted = asked is None and self._study.n_asked < n_trials
        return asked

    def _why_none(self, n_trials: int) -> str:
        if self._exhausted:
            return "the sampler has no combination left that was not tried"
        n_out = len(self.trials)
        waiting = f" ({n_out} not told yet)" if n_out else ""
        return (
            f"all {n_trials} trials of study.n_trials={n_trials} were asked for{waiting}: raise "
            f"it, python -m automl edit {self._study.name} n_trials=…"
        )

    def _start(self, asked: AskedTrial, lease_seconds: float, request: str = "") -> None:
        now = time.time()
        started = TrialStarted(
            asked.number, now, asked.params, OUTSIDE_DEVICE, lease_seconds, request
        )
        self._log.append(started)
        builder = self.free.pop(asked.number, None)
        builder = builder or TrialRecordBuilder(asked.number, now, {}, metrics=self._metrics)
        builder.take(started)
        self.trials[asked.number] = builder

    def _row(self, number: int) -> dict[str, Any]:
        trial = self.trials[number]
        return {
            "trial": number,
            "params": dict(trial.params),
            "lease_until": trial.lease_until,
        }

    def take_free(self, asked: AskedTrial) -> None:
        """Take a trial that the user enqueued, which the next `ask` gets."""
        self.free[asked.number] = None

    # --- tell ---

    def tell(self, result: OutsideResult, end: EndTrial) -> RequestAnswer:
        """Record what is told of a trial, and whether the trial should go on.

        A trial that has ended may be told the same again. Raises ConfigError and StorageError.
        """
        builder = self.free.get(result.trial)
        if builder is not None:  # its lease has ended, and nobody has asked for it since
            asked = AskedTrial(result.trial, self._study.params(result.trial))
            self._start(asked, builder.lease_seconds or math.inf)
        trial = self.trials.get(result.trial)
        if trial is None:
            return self._tell_again(result)
        reports = _reports_of(result, trial)
        draft = _builder_of(trial.record(), self._metrics)
        for report in reports:
            draft.take(report)
        if result.state is not None:  # refused before anything is recorded
            _outcome_of(result, draft, self._metrics)
        prune = self._report(trial, reports)
        if result.state is None:
            n = result.trial
            words = "the pruner would stop it" if prune else "it goes on"
            return _answer(f"trial {n}: {words}", n, TrialState.RUNNING, trial.best_value, prune)
        outcome = _outcome_of(result, trial, self._metrics)
        if not outcome.state.is_final:
            self._give_back(outcome)
            return _answer(f"trial {result.trial} is given again", result.trial, outcome.state)
        self._log.append(outcome)
        del self.trials[result.trial]
        end(outcome)
        return _answer_of_outcome(outcome)

    def _report(self, trial: TrialRecordBuilder, reports: Sequence[MetricsReported]) -> bool:
        """Record reports, and return whether the pruner would stop the trial."""
        for report in reports:
            if self._log.append(report):  # a step counts once
                trial.take(report)
        verdict = self._study.report(reports).get(trial.number, Verdict.GO_ON)
        return verdict is not Verdict.GO_ON  # it cannot pause, as `asha` would have it

    def _give_back(self, outcome: TrialOutcome) -> None:
        self._log.append(outcome)
        builder = self.free[outcome.trial] = self.trials.pop(outcome.trial)
        builder.take(outcome)

    def _tell_again(self, result: OutsideResult) -> RequestAnswer:
        """Answer what is told of a trial that is not outside (any more). Raises ConfigError."""
        number, n_asked = result.trial, self._study.n_asked
        if number >= n_asked:
            raise ConfigError(
                f"trial={number}: never asked for; the study has {counted(n_asked, 'trial')}, "
                "from 0 on."
            )
        if number in self.free:
            raise ConfigError(f"trial={number}: nobody was given it yet; the next ask is.")
        if self._study.is_running(number):
            raise ConfigError(
                f"trial={number}: the study's own sweep has it, and takes its result itself."
            )
        outcome = self._log.outcome(number)
        assert outcome is not None, "the log has the end of each trial that has ended"
        if not _says_the_same(result, outcome):
            how = _answer_of_outcome(outcome).text
            raise ConfigError(
                f"trial={number}: it has ended ({how}), and a trial that has ended stays as "
                "it is. To try its params once more, enqueue them."
            )
        return _answer_of_outcome(outcome)


def _reports_of(result: OutsideResult, trial: TrialRecord) -> list[MetricsReported]:
    """Return the reports that a result has, its own metrics last."""
    now, last_step = time.time(), max(trial.last_step, *result.reports, 0)
    by_step = [*result.reports.items(), *([(last_step, result.metrics)] if result.metrics else [])]
    return [MetricsReported(trial.number, now, step, metrics) for step, metrics in by_step]


def _metrics(plain: Mapping[str, Any]) -> dict[str, float]:
    """Return metrics as they are reported. Raises TypeError and ValueError."""
    return {parse_metric_name(n): parse_metric_value(n, value) for n, value in plain.items()}


def _builder_of(record: TrialRecord, metrics: StudyMetrics) -> TrialRecordBuilder:
    return TrialRecordBuilder(
        **{f.name: getattr(record, f.name) for f in fields(record)}, metrics=metrics
    )


def _outcome_of(
    result: OutsideResult, trial: TrialRecordBuilder, metrics: StudyMetrics
) -> TrialOutcome:
    """Return the outcome of a trial that ends. Raises ConfigError for one without a value."""
    number, now, state = result.trial, time.time(), result.state
    value = trial.best_value if result.value is None else result.value
    if state is TrialState.INTERRUPTED:
        return InterruptedOutcome(number, now, result.reason or "it was given back")
    if state is TrialState.FAILED:
        return FailedOutcome(number, now, result.reason or "told as failed, without a reason")
    values = _values_of(result, trial, metrics, value)
    if state is TrialState.PRUNED:
        value = math.nan if value is None else value
        return PrunedOutcome(number, now, trial.last_step, value, values)
    if value is None:
        raise ConfigError(
            f"trial={number}: a finished trial has a value, and none was reported: value=0.3, "
            "or state=failed reason=…"
        )
    if not math.isfinite(value):
        return FailedOutcome(number, now, f"ValueError: the value {value} is no result")
    missing = [name for name in metrics.more_names if name not in values]
    if missing:
        raise ConfigError(
            f"trial={number}: study.metric or study.constraints name {', '.join(missing)}, of "
            f"which no finite value was told: metrics={{{missing[0]}: 4.5}}"
        )
    best = trial.best_value
    contradicts = best is not None and is_value_returned(value, best)
    reported = {metrics.leading.name: best} if best is not None and contradicts else {}
    return FinishedOutcome(number, now, value, values=values, reported=reported)


def _values_of(
    result: OutsideResult, trial: TrialRecordBuilder, metrics: StudyMetrics, value: float | None
) -> dict[str, float]:
    """Return the trial's values by metric, as far as they are finite: those of the result, else of
    the report that counts, else the newest. Empty for a study with one metric."""
    if not metrics.are_several:
        return {}
    reports = trial.reports or {}
    known = {name: value for _, report in sorted(reports.items()) for name, value in report.items()}
    known |= {**reports.get(trial.best_step or 0, {}), **result.metrics}
    known |= {} if value is None else {metrics.leading.name: value}
    names = (metrics.leading.name, *metrics.more_names)
    return {name: known[name] for name in names if math.isfinite(known.get(name, math.nan))}


def _says_the_same(result: OutsideResult, outcome: TrialOutcome) -> bool:
    """Return whether a result agrees with the outcome that is recorded."""
    if result.state is None:  # a report of a trial that somebody has stopped
        return isinstance(outcome, PrunedOutcome)
    if isinstance(outcome, FinishedOutcome | PrunedOutcome) and result.state is outcome.state:
        return result.value is None or result.value == outcome.value
    if isinstance(outcome, FailedOutcome) and result.value is not None:
        return not math.isfinite(result.value)
    return result.state is outcome.state


def _answer_of_outcome(outcome: TrialOutcome) -> RequestAnswer:
    number, state = outcome.trial, outcome.state
    if isinstance(outcome, FailedOutcome):
        return _answer(f"trial {number} failed: {outcome.cause}", number, state)
    value = outcome.value if isinstance(outcome, FinishedOutcome | PrunedOutcome) else None
    words = "" if value is None or math.isnan(value) else f" with {value:.6g}"
    if isinstance(outcome, FinishedOutcome) and outcome.reported:
        (best,) = outcome.reported.values()
        words += f"; the best of its steps has {best:.6g}, which would count without value="
    is_pruned = state is TrialState.PRUNED
    return _answer(f"trial {number} {state.value}{words}", number, state, value, is_pruned)


def _answer(
    text: str, trial: int, state: TrialState, value: float | None = None, prune: bool = False
) -> RequestAnswer:
    values: Sequence[tuple[str, Any]] = (
        *(("trial", trial), ("state", state.value), ("value", value)),
        ("prune", prune),
    )
    return RequestAnswer(text, values=dict(values))
