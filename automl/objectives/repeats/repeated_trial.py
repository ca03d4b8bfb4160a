"""Makes one trial of its repeats, which train the same params with different seeds.

A step is reported once all repeats have reached it: with the mean of each metric, and with the
standard error of the study's. The trial's value is the mean of its repeats' values.
`repeats_session.py` trains the repeats.
"""

from __future__ import annotations

import heapq
import logging
import math
import shutil
import threading
import time
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from automl.record.disk import open_replacing
from automl.record.lease import FolderTakenOverError, TrialFolderFence
from automl.record.study_files import BEST_CHECKPOINT_FILE
from automl.record.trial_record import ERROR_SUFFIX
from automl.trial import (
    CheckpointKind,
    CheckpointWritten,
    Direction,
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    MemoryPeakMeasured,
    MetricsReported,
    OnEvents,
    OutOfMemoryOutcome,
    PrunedOutcome,
    TrialEvent,
    TrialOutcome,
    TrialSource,
    TrialSpec,
    ValuesLogged,
    Verdict,
    standard_error,
)

logger = logging.getLogger(__name__)
_BEFORE_VALUES = (FailedOutcome, OutOfMemoryOutcome, InterruptedOutcome)
"""Outcomes of a repeat that are the trial's, whatever the other repeats came to."""
StepMeans: TypeAlias = dict[int, dict[str, float]]
"""The metrics that a trial reports, by step."""


@dataclass
class RepeatsProgress:
    """The repeats of one trial while they train."""

    trial: int
    n_repeats: int
    metric: str
    """Name of the study's metric."""
    outcomes: dict[int, TrialOutcome] = field(default_factory=dict)
    """The outcomes of the repeats that have ended."""
    verdict: Verdict = Verdict.GO_ON
    """The first verdict on the trial that ends it, which all repeats get."""
    _last_steps: dict[int, int] = field(default_factory=dict)
    _latest: dict[int, dict[str, float]] = field(default_factory=dict)
    """The latest value of each metric, by repeat."""
    _pending: dict[int, dict[int, dict[str, float]]] = field(default_factory=dict)
    """Metrics by step and repeat that some repeats have not reached."""
    _pending_steps: list[int] = field(default_factory=list)
    """The steps of `_pending`, as a heap, so that a report need not look at all of them."""

    def take(self, repeat: int, step: int, metrics: Mapping[str, float]) -> list[MetricsReported]:
        """Take a report of a repeat; return the trial's reports that are complete now."""
        self._last_steps[repeat] = max(step, self._last_steps.get(repeat, -1))
        self._latest.setdefault(repeat, {}).update(metrics)
        if step not in self._pending:
            heapq.heappush(self._pending_steps, step)
        by_repeat = self._pending.setdefault(step, {})
        by_repeat.setdefault(repeat, {}).update(metrics)
        return self._complete()

    def end(self, repeat: int, outcome: TrialOutcome) -> list[MetricsReported]:
        """Take the outcome of a repeat, which has reached all steps then; return as `take`.

        A repeat that did not finish ends the others, too.
        """
        self.outcomes[repeat] = outcome
        if isinstance(outcome, PrunedOutcome):
            self.stop(Verdict.PRUNE)
        elif not isinstance(outcome, FinishedOutcome):
            self.stop(Verdict.STOP)
        return self._complete()

    def stop(self, verdict: Verdict) -> None:
        """Keep the first verdict that ends the trial."""
        self.verdict = verdict if self.verdict is Verdict.GO_ON else self.verdict

    def outcome(self) -> TrialOutcome:
        """Return the outcome of the trial, whose repeats have ended."""
        ended = [self.outcomes[repeat] for repeat in sorted(self.outcomes)]
        for kind in _BEFORE_VALUES:
            for outcome in ended:
                if isinstance(outcome, kind):
                    return replace(outcome, trial=self.trial)
        values = tuple(o.value for o in ended if isinstance(o, FinishedOutcome | PrunedOutcome))
        mean, now = sum(values) / len(values), time.time()
        steps = [outcome.step for outcome in ended if isinstance(outcome, PrunedOutcome)]
        if steps:
            return PrunedOutcome(self.trial, now, max(steps), mean)
        if len(values) < self.n_repeats:
            return InterruptedOutcome(self.trial, now, "the sweep stopped before its last repeats")
        finished = [outcome for outcome in ended if isinstance(outcome, FinishedOutcome)]
        by_reports = [outcome.reported.get(self.metric, outcome.value) for outcome in finished]
        contradicted = any(outcome.reported for outcome in finished)
        reported = {self.metric: sum(by_reports) / len(by_reports)} if contradicted else {}
        metrics = _mean_metrics([outcome.metrics for outcome in finished])
        return FinishedOutcome(self.trial, now, mean, values, reported=reported, metrics=metrics)

    def has_equal_values(self) -> bool:
        """Return whether all repeats finished with the same value, as if they had no seed."""
        values = [o.value for o in self.outcomes.values() if isinstance(o, FinishedOutcome)]
        return len(values) == self.n_repeats > 1 and len({*values}) == 1

    def _complete(self) -> list[MetricsReported]:
        """Return the reports of steps that all repeats have reached, and forget these values."""
        means: StepMeans = defaultdict(dict)
        training = {*range(self.n_repeats)} - {*self.outcomes}
        reached = min((self._last_steps.get(r, -1) for r in training), default=math.inf)
        while self._pending_steps and (step := self._pending_steps[0]) <= reached:
            by_repeat = self._pending[step]
            for name in dict.fromkeys(name for own in by_repeat.values() for name in own):
                if all(self._has_reached(r, step, name) for r in range(self.n_repeats)):
                    means[step] |= self._mean(name, by_repeat)
                    for own in by_repeat.values():
                        own.pop(name, None)
            if any(by_repeat.values()):
                break  # a repeat that is at this step may report more there
            del self._pending[heapq.heappop(self._pending_steps)]
        now = time.time()
        return [MetricsReported(self.trial, now, step, metrics) for step, metrics in means.items()]

    def _has_reached(self, repeat: int, step: int, name: str) -> bool:
        """Return whether a repeat has reported a metric of a step, or never will."""
        is_past = repeat in self.outcomes or self._last_steps.get(repeat, -1) > step
        return is_past or name in self._pending[step].get(repeat, ())

    def _mean(self, name: str, by_repeat: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
        """Return the mean of a metric; a repeat that has skipped the step counts with its latest
        value."""
        values = [
            {**self._latest.get(repeat, {}), **by_repeat.get(repeat, {})}.get(name)
            for repeat in range(self.n_repeats)
        ]
        known = [value for value in values if value is not None]
        mean = sum(known) / len(known)
        error = standard_error(known) if name == self.metric and math.isfinite(mean) else None
        return {name: mean} | ({} if error is None else {f"{name}{ERROR_SUFFIX}": error})


@dataclass(frozen=True)
class RepeatSettings:
    """The settings that all repeats of a study share."""

    n_repeats: int
    metric: str
    direction: Direction
    are_programs: bool = False
    """Each repeat is a program, whose memory peak is its own and not that of the process."""


@dataclass
class RepeatedTrial:
    """A trial whose repeats train."""

    spec: TrialSpec
    progress: RepeatsProgress
    n_begun: int = 0
    best_steps: dict[int, int] = field(default_factory=dict)
    """The step of the newest `best.pt` of each repeat, as far as this process knows."""
    peaks_bytes: dict[int, int] = field(default_factory=dict)
    """The memory peak of each repeat that trains, if repeats are programs: they add up."""

    @property
    def has_ended(self) -> bool:
        """Whether no repeat trains any longer, and none will begin."""
        n_ended, goes_on = len(self.progress.outcomes), self.progress.verdict is Verdict.GO_ON
        return n_ended == (self.progress.n_repeats if goes_on else self.n_begun)


class RepeatEvents:
    """Takes the events of repeats, and passes on those of their trials; any thread may call it."""

    def __init__(self, rules: RepeatSettings, on_events: OnEvents) -> None:
        self._rules, self._on_events = rules, on_events
        self._lock = threading.RLock()
        self.trials: dict[int, RepeatedTrial] = {}
        """The trials that have not ended, by number."""

    def begin(self, spec: TrialSpec) -> RepeatedTrial:
        """Begin a trial, and return it."""
        n_repeats, metric = self._rules.n_repeats, self._rules.metric
        trial = RepeatedTrial(spec, RepeatsProgress(spec.number, n_repeats, metric))
        self.trials[spec.number] = trial
        return trial

    def __call__(self, events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        n = self._rules.n_repeats
        with self._lock:
            begun = {event.trial: self.trials.get(event.trial // n) for event in events}
            reports = [event for event in events if isinstance(event, MetricsReported)]
            self._pass_on(
                [
                    mean
                    for event in reports
                    if (own := begun[event.trial]) is not None
                    for mean in own.progress.take(event.trial % n, event.step, event.metrics)
                ]
            )
            for event in events:
                trial = begun[event.trial]
                if trial is not None and not isinstance(event, MetricsReported):
                    self._take(trial, event.trial % n, event)
            return {
                number: Verdict.STOP if trial is None else trial.progress.verdict
                for number, trial in begun.items()
            }

    def _take(self, trial: RepeatedTrial, repeat: int, event: TrialEvent) -> None:
        """Take an event of a repeat that is no report."""
        number = trial.spec.number
        match event:
            case TrialOutcome():
                trial.peaks_bytes.pop(repeat, None)
                self._pass_on(trial.progress.end(repeat, event))
                if trial.has_ended:
                    self._end(trial)
                return
            case CheckpointWritten(kind=CheckpointKind.BEST):
                trial.best_steps[repeat] = event.step
            case MemoryPeakMeasured() if self._rules.are_programs:
                trial.peaks_bytes[repeat] = event.peak_bytes
                event = replace(event, peak_bytes=sum(trial.peaks_bytes.values()))
            case MemoryPeakMeasured():  # the lanes of a trial are one to the sweep
                event = replace(event, n_lanes=max(1, event.n_lanes // self._rules.n_repeats))
        if repeat and isinstance(event, CheckpointWritten | ValuesLogged):
            return  # the first repeat stands for the trial
        self._pass_on([replace(event, trial=number)])

    def _end(self, trial: RepeatedTrial) -> None:
        """Pass on the outcome of a trial, whose `best.pt` is that of its best repeat."""
        outcome = trial.progress.outcome()
        if isinstance(outcome, FinishedOutcome | PrunedOutcome):
            self._keep_best(trial)
        if trial.progress.has_equal_values():
            logger.warning(
                "study.repeats=%d: all repeats of a trial have the same value, as if nothing in it "
                "depended on its seed: seed it from trial.seed (a program: {seed} in "
                "objective.command), or leave study.repeats out: repeats then only cost time.",
                self._rules.n_repeats,
            )
        self._pass_on([outcome])
        del self.trials[trial.spec.number]

    def _keep_best(self, trial: RepeatedTrial) -> None:
        """Make the model of the best repeat that of the trial."""
        sign = 1.0 if self._rules.direction is Direction.minimize else -1.0
        values = {
            repeat: sign * outcome.value
            for repeat, outcome in trial.progress.outcomes.items()
            if isinstance(outcome, FinishedOutcome | PrunedOutcome) and math.isfinite(outcome.value)
        }
        if not values:
            return
        best = min(values, key=values.__getitem__)
        n_repeats, folder = self._rules.n_repeats, Path(trial.spec.checkpoint_dir)
        source = Path(trial.spec.repeat(best, n_repeats).checkpoint_dir) / BEST_CHECKPOINT_FILE
        if not best or not source.exists():
            return
        path, fence = folder / BEST_CHECKPOINT_FILE, TrialFolderFence(folder, trial.spec.attempt)
        with suppress(FolderTakenOverError):
            with open(source, "rb") as file, open_replacing(path, fence.check) as copy:
                shutil.copyfileobj(file, copy)
            step = trial.best_steps.get(best, 0)
            number = trial.spec.number
            self._pass_on(
                [CheckpointWritten(number, time.time(), step, str(path), CheckpointKind.BEST)]
            )

    def _pass_on(self, events: Sequence[TrialEvent]) -> None:
        """Pass events of trials on, and keep the verdicts."""
        if not events:
            return
        for number, verdict in self._on_events(events).items():
            if verdict is not Verdict.GO_ON and number in self.trials:
                self.trials[number].progress.stop(verdict)


def _mean_metrics(by_repeat: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of each metric that all repeats have."""
    names = [n for n in by_repeat[0] if all(n in metrics for metrics in by_repeat)]
    return {n: sum(metrics[n] for metrics in by_repeat) / len(by_repeat) for n in names}


class RepeatsFeed:
    """A `TrialSource` that hands out the repeats of a feed's trials, all of a trial together."""

    def __init__(self, feed: TrialSource, n_repeats: int, events: RepeatEvents) -> None:
        self._feed, self._n_repeats, self._events = feed, n_repeats, events
        self._pending: deque[TrialSpec] = deque()
        self.n_lanes = feed.n_lanes * n_repeats
        self.newest: TrialSpec | None = None
        """The trial that was taken last."""

    def next(self) -> TrialSpec | None:
        if not self._pending and len(self._events.trials) < self._feed.n_lanes:
            self.newest = self._feed.next()
            if self.newest is not None:
                self._events.begin(self.newest).n_begun = self._n_repeats
                n = self._n_repeats
                self._pending.extend(self.newest.repeat(repeat, n) for repeat in range(n))
        return self._pending.popleft() if self._pending else None
