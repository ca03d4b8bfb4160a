"""The record of a study: all that its events tell, read once. Pure.

A resume, the delivery to MLflow and the commands read the state of a study from here (the commands
by `studies.read_study`). The record is small however much its trials reported, unless reports are
kept. Reading and writing the log is done in `event_log.py`.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from automl.config.range_text import entry_text
from automl.config.study import is_shared_storage
from automl.record.device_time import DeviceTime, merge_spans
from automl.record.texts import fit_line
from automl.record.trial_record import (
    RANKED_STATES,
    Rank,
    TrialRecord,
    TrialRecordBuilder,
    is_value_returned,
    may_be_best,
    metrics_from_settings,
    rank_trial,
)
from automl.trial import (
    Direction,
    EnsembleBuilt,
    Event,
    MetricPoint,
    MetricsReported,
    ModelsEvaluated,
    PaceMeasured,
    ParamsSuggested,
    SpaceEntry,
    StudyEdited,
    StudyMetric,
    StudyMetrics,
    SweepEnded,
    SweepStarted,
    TrialEvent,
    TrialOutcome,
    TrialState,
    TrialTagged,
    ValuesLogged,
    find_front,
    find_knee,
)
from automl.trial.step_runs import StepRuns

FILE_OF = "the file of "
"""Beginning of the name of a digest of a file; the name of the setting follows."""
TOTAL_SETTING = "study.n_trials"
STORAGE_SETTING = "study.storage"
"""The setting that names a database; of one that sweeps share, `is_shared_storage` is true."""


@dataclass(frozen=True)
class SweepRecord:
    """One sweep over a study."""

    start: SweepStarted
    changed: Mapping[str, str]
    """Settings that differ from those of the sweep before."""
    end: SweepEnded | None = None
    """The end of the sweep; None: it runs or was killed, and the study's lock tells which."""
    changed_code: tuple[str, ...] = ()
    """The parts of the user's code that differed in the sweep before: `objective.target`."""
    last_seconds: float = 0.0
    """The time of the sweep's last event (Unix seconds)."""

    @property
    def called_span(self) -> tuple[float, float]:
        """The time from the call of the sweep to its last event (Unix seconds)."""
        return self.start.time - self.start.loading_seconds, self.last_seconds


@dataclass(frozen=True)
class StudyRecord:
    """All that the events of a study tell about it; made by `StudyRecordBuilder`."""

    name: str
    """The study's name in its last sweep; its folder may have been renamed since."""
    uuid: str
    """The study's uuid since its last sweep; empty: no sweep has begun."""
    sweeps: tuple[SweepRecord, ...] = ()
    trials: Mapping[int, TrialRecord] = field(default_factory=dict)
    """The trials by number, in ascending order."""
    paces: tuple[PaceMeasured, ...] = ()
    """Measured durations of steps, of sweeps with several kinds of device."""
    evaluations: tuple[ModelsEvaluated, ...] = ()
    """Scores of the study's models: for the same models and rows the newest, in log order."""
    ensemble: EnsembleBuilt | None = None
    """The newest ensemble; None: there is none."""
    n_trials: int | None = None
    """The total of trials by the last sweep, or by an edit since; None: the log has none."""
    device_seconds: float = 0.0
    """The time in which devices had a trial to run, summed over the devices."""
    edits: tuple[StudyEdited, ...] = ()
    """The edits of the study, those that were taken back included, in log order."""
    code: Mapping[str, str] = field(default_factory=dict)
    """The last digest of each part of the user's code."""
    asked_entries: Mapping[str, Sequence[SpaceEntry]] = field(default_factory=dict)
    """The different ranges or choices with which trials asked for each param while they ran."""

    @property
    def n_begun(self) -> int:
        """The number of trials that were begun."""
        return max(self.trials, default=-1) + 1

    def code_changes(self) -> list[str]:
        """Return a line for each sweep whose code was other than that of the sweep before."""
        return [
            f"{code_change_text(sweep.changed_code, sweep.start.n_trials)}: {MIXED_CODE}"
            for sweep in self.sweeps
            if sweep.changed_code
        ]

    @property
    def settings(self) -> Mapping[str, str]:
        """The flat settings of the last sweep (`training.epochs` → `20`), without credentials."""
        return self.sweeps[-1].start.settings if self.sweeps else {}

    @property
    def changed(self) -> Mapping[str, str]:
        """The current values of all settings that ever changed between sweeps."""
        return {key: value for sweep in self.sweeps for key, value in sweep.changed.items()}

    @property
    def former_names(self) -> tuple[str, ...]:
        """Earlier names of this study, without those of other studies in the same log."""
        names = (s.start.study for s in self.sweeps if s.start.study_uuid == self.uuid)
        return tuple(dict.fromkeys(name for name in names if name != self.name))

    @property
    def metrics(self) -> StudyMetrics:
        return metrics_from_settings(self.settings)

    @property
    def metric(self) -> StudyMetric:
        """The study's metric; of several the leading one."""
        return self.metrics.leading

    @property
    def is_shared(self) -> bool:
        """Whether sweeps of several machines work on the study, by a database."""
        return is_shared_storage(self.settings.get(STORAGE_SETTING, ""))

    def as_left(self, now_seconds: float) -> StudyRecord:
        """Return the record of the study when no sweep works on it, at `now_seconds` (Unix
        seconds)."""
        left = {number: trial.as_left(now_seconds) for number, trial in self.trials.items()}
        return replace(self, trials=left)

    @property
    def spans(self) -> Sequence[tuple[float, float]]:
        """The times in which sweeps worked, disjoint and in their order (Unix seconds)."""
        return merge_spans((sweep.start.time, sweep.last_seconds) for sweep in self.sweeps)

    def how_ended(self) -> str:
        """Return a word for how the last sweep ended: interrupted, timeout, failing, done or
        failed. The study must have had a sweep that is over."""
        end, counts = self.sweeps[-1].end, self.counts()
        if end is None or not (end.done or end.failed):
            return "interrupted"
        n_ended = sum(n for state, n in counts.items() if state.is_final)
        if end.done and not end.reason and n_ended < (self.n_trials or 0):
            return "timeout"
        return "failing" if end.failed else "done" if counts[TrialState.FINISHED] else "failed"

    def counts(self) -> Mapping[TrialState, int]:
        """Return the number of trials in each state; every state has an entry."""
        counts = dict.fromkeys(TrialState, 0)
        for trial in self.trials.values():
            counts[trial.state] += 1
        return counts

    def ranking(self) -> tuple[TrialRecord, ...]:
        """Return the trials that ended with a value, the best first; those of the front of several
        metrics come before all others."""
        if not self.metrics.are_several:
            return self._by_value()
        by_value = self._by_value()
        points = {trial.number: self.point(trial) for trial in by_value}
        beyond = {number for number, p in points.items() if p is not None and p.excess > 0}
        others = sorted(by_value, key=lambda trial: trial.number in beyond)
        everyone = (*filter(None, [self.best()]), *self.front(), *others)
        return tuple({trial.number: trial for trial in everyone}.values())

    def front(self) -> tuple[TrialRecord, ...]:
        """Return the trials that no other trial beats; with one metric, only the best one."""
        metrics = self.metrics
        if not metrics.are_several:
            first, returned = self._by_value()[:1], self.returns_values
            return tuple(trial for trial in first if may_be_best(trial.state, returned=returned))
        finished = [t for t in self.trials.values() if t.state is TrialState.FINISHED]
        points = {n: metrics.point(trial.values) for n, trial in enumerate(finished)}
        known = {n: point for n, point in points.items() if point is not None}
        numbers = [*known]
        return tuple(finished[numbers[place]] for place in find_front([*known.values()]))

    def point(self, trial: TrialRecord) -> MetricPoint | None:
        """Return what a trial is worth by several metrics; None: one of them is not known."""
        return self.metrics.point(trial.values)

    def best(self) -> TrialRecord | None:
        """Return the best trial, pruned or not, or the one at the knee of the front of several
        metrics; None: no trial can be compared."""
        front = self.front()
        if len(front) < 2:
            return next(iter(front), None)
        return front[find_knee([p for trial in front if (p := self.point(trial)) is not None])]

    def _by_value(self) -> tuple[TrialRecord, ...]:
        sign = 1.0 if self.metric.direction is Direction.minimize else -1.0
        ranked = [
            trial
            for trial in self.trials.values()
            if trial.state in RANKED_STATES
            and trial.value is not None
            and math.isfinite(trial.value)
        ]
        returned = self.returns_values

        def rank(trial: TrialRecord) -> Rank:
            assert trial.value is not None
            return rank_trial(sign * trial.value, trial.state, trial.number, returned=returned)

        return tuple(sorted(ranked, key=rank))

    def best_values(self) -> list[float]:
        """Return the best value so far after each trial that ended, from the first value on; none
        in a study of several metrics."""
        if self.metrics.are_several:
            return []
        returned, better = self.returns_values, self.metric.direction.better
        comparable = [t for t in self._by_value() if may_be_best(t.state, returned=returned)]
        values = {trial.number: trial.value for trial in comparable}
        ended = [trial for trial in self.trials.values() if trial.ended is not None]
        found: list[float] = []
        for trial in sorted(ended, key=lambda trial: trial.ended or 0.0):
            value = values.get(trial.number)
            if value is not None and (not found or better(value, found[-1])):
                found.append(value)
            else:
                found += found[-1:]
        return found

    @property
    def best_ensemble(self) -> EnsembleBuilt | None:
        """The ensemble, if it is the study's best result; else None.

        It must have two models or more, and be no worse than the best trial by the study's metric.
        In a study of several metrics it is not: it was chosen by one of them.
        """
        if self.metrics.are_several:
            return None
        ensemble, best = self.ensemble, self.best()
        if ensemble is None or best is None or best.value is None or len(ensemble.members) < 2:
            return None
        name = self.metric.name.removeprefix("val_")
        score = ensemble.scores.get(name)
        if score is None or not math.isfinite(score):
            return None
        # The best trial's score on the ensemble's rows, if it is known, compares best.
        best_score = ensemble.alone.get(best.number, {}).get(name, best.value)
        return None if self.metric.direction.better(best_score, score) else ensemble

    @property
    def returns_values(self) -> bool:
        """Whether the objective returns its values; one trial shows this."""
        return any(
            trial.state is TrialState.FINISHED
            and trial.value is not None
            and is_value_returned(trial.value, trial.best_value)
            for trial in self.trials.values()
        )


def changed_code(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the digests that differ, without a file whose function differs."""
    changed = [name for name, digest in now.items() if before.get(name, digest) != digest]
    return tuple(name for name in changed if name.partition(FILE_OF)[2] not in changed)


def code_change_text(changed: Sequence[str], n_trials: int) -> str:
    """Return what changed after so many trials."""
    verb = "have" if len(changed) > 1 else "has"
    return f"{' and '.join(changed)} {verb} changed since trial {n_trials - 1}"


MIXED_CODE = "later values are those of other code, and the sampler learns from both"
"""What a change of code means for the values of a study."""


def last_standing_edit(edits: Sequence[StudyEdited]) -> StudyEdited | None:
    """Return the last edit that takes none back and was not taken back; None: there is none."""
    taken_back = {edit.undoes for edit in edits}
    standing = [edit for edit in edits if not edit.undoes and edit.id not in taken_back]
    return standing[-1] if standing else None


def edit_lines(edit: StudyEdited) -> list[str]:
    """Return what an edit changed, a line for each setting: `space.lr.high: 0.1 → 0.3`."""
    before, after = ({k: json.loads(v) for k, v in m.items()} for m in (edit.before, edit.after))
    lines = []
    for key in dict.fromkeys((*before, *after)):
        old, new = before.get(key), after.get(key)
        if key not in before:
            default = f", earlier trials had {edit.defaults[key]}" if key in edit.defaults else ""
            lines.append(f"{key}: added, {entry_text(new)}{default}")
        elif key not in after:
            lines.append(f"{key}: taken out, was {entry_text(old)}")
        elif isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys():
            changed = [name for name in new if old[name] != new[name]]
            lines += [f"{key}.{n}: {entry_text(old[n])} → {entry_text(new[n])}" for n in changed]
        else:
            lines.append(f"{key}: {entry_text(old)} → {entry_text(new)}")
    return [fit_line(line) for line in lines]


class LoggedHistory:
    """Remembers what the log has of each trial, so that no value of a step is logged twice."""

    def __init__(self) -> None:
        self._known: defaultdict[int, _TrialLogged] = defaultdict(_TrialLogged)
        """The logged values of each trial that has not ended."""
        self._ended: set[int] = set()

    def new_part(self, event: Event) -> Event | None:
        """Return the part of `event` that is not logged yet, and remember it; None: no news."""
        if not isinstance(event, TrialEvent):
            return event
        if event.trial in self._ended:
            return None
        if isinstance(event, MetricsReported):
            return self._new_report(event, self._known[event.trial])
        if isinstance(event, ValuesLogged):
            return self._new_logged(event, self._known[event.trial])
        if isinstance(event, TrialTagged):
            tags = self._known[event.trial].tags
            if tags.get(event.name) == event.text:
                return None
            tags[event.name] = event.text
        elif isinstance(event, TrialOutcome) and event.state.is_final:
            self._ended.add(event.trial)
            self._known.pop(event.trial, None)
        return event

    def forget(self, trial: int) -> None:
        """Forget the trial, as if nothing of it were logged."""
        self._ended.discard(trial)
        self._known.pop(trial, None)

    def _new_report(self, event: MetricsReported, known: _TrialLogged) -> MetricsReported | None:
        step, steps = event.step, known.steps
        if not event.metrics:  # a report of its step alone
            if any(step in runs for runs in steps.values()):
                return None
            steps[""].add(step)
            return event
        new = {name: value for name, value in event.metrics.items() if step not in steps[name]}
        for name in new:
            steps[name].add(step)
        if len(new) == len(event.metrics):
            return event
        return replace(event, metrics=new) if new else None

    def _new_logged(self, event: ValuesLogged, known: _TrialLogged) -> ValuesLogged | None:
        """Return the new part of `event`; metrics count by name and step, reported or logged."""
        points = []
        for point in event.points:
            if point.step not in known.steps[point.name]:
                known.steps[point.name].add(point.step)
                points.append(point)
        params = {name: text for name, text in event.params.items() if name not in known.params}
        known.params.update(params)
        if not points and not params:
            return None
        if len(points) == len(event.points) and len(params) == len(event.params):
            return event
        return replace(event, points=tuple(points), params=params)


@dataclass
class _TrialLogged:
    """The logged values of one trial."""

    steps: defaultdict[str, StepRuns] = field(default_factory=lambda: defaultdict(StepRuns))
    """The steps at which each metric was logged."""
    tags: dict[str, str] = field(default_factory=dict)
    params: set[str] = field(default_factory=set)
    """The names of the logged params."""


class StudyRecordBuilder:
    """Makes a `StudyRecord` from the events of a study, one after another."""

    def __init__(self, *, keep_reports: bool = False) -> None:
        self.history = LoggedHistory()
        self.device_time = DeviceTime()
        self._keep_reports = keep_reports
        self._sweeps: list[SweepRecord] = []
        self._last_seconds: list[float] = []
        """The time of the last event of each sweep."""
        self._last_settings: dict[str, str] = {}
        """The last value of each setting that a sweep had."""
        self._metrics = StudyMetrics()
        self._trials: dict[int, TrialRecordBuilder] = {}
        self._early: list[TrialEvent] = []
        """The events from before the first sweep, which says what judges trials: those of trials
        that a study began with."""
        self._paces: dict[object, PaceMeasured] = {}
        """The paces by execution; those of probes by kind of device and size."""
        self._evaluations: dict[object, ModelsEvaluated] = {}
        """The evaluations by digest of the rows and by models."""
        self._ensemble: EnsembleBuilt | None = None
        self._edits: dict[str, StudyEdited] = {}
        self._code: dict[str, str] = {}
        """The last digest of each part of the user's code."""
        self._n_trials: int | None = None
        self._asked: defaultdict[str, dict[str, SpaceEntry]] = defaultdict(dict)
        """The entries with which trials asked for each param, by their text."""

    def take(self, event: Event) -> None:
        """Update the record with the next event; a repeated one changes nothing."""
        if isinstance(event, TrialEvent):
            new = self.history.new_part(event)
            if isinstance(new, TrialEvent):
                self._trial(new).take(new)
                if isinstance(new, ParamsSuggested):
                    for name, entry in new.entries.items():
                        self._asked[name].setdefault(str(entry), entry)
                if not self._sweeps:
                    self._early.append(new)
                is_of_sweep = self.device_time.runs(new.trial)
                self.device_time.take(new)
                if self._sweeps and (is_of_sweep or self.device_time.runs(new.trial)):
                    self._last_seconds[-1] = max(self._last_seconds[-1], new.time)
        elif isinstance(event, SweepStarted):
            self._begin(event)
        elif isinstance(event, PaceMeasured):
            probe = event.kind, event.step_flops
            self._paces[probe if event.execution is None else event.execution] = event
        elif isinstance(event, ModelsEvaluated):
            self._evaluations[event.digest, event.models] = event
        elif isinstance(event, EnsembleBuilt):
            self._ensemble = event
        elif isinstance(event, StudyEdited):
            self._edits.setdefault(event.id, event)
            self._take_total(json.loads(event.after.get(TOTAL_SETTING, "null")))
        elif isinstance(event, SweepEnded) and self._sweeps:  # else the line of its begin is lost
            self._sweeps[-1] = replace(self._sweeps[-1], end=event)
            self._last_seconds[-1] = max(self._last_seconds[-1], event.time)

    def record(self) -> StudyRecord:
        """Return the record of the study after all events taken so far."""
        last = self._sweeps[-1].start if self._sweeps else None
        return StudyRecord(
            name="" if last is None else last.study,
            uuid="" if last is None else last.study_uuid,
            sweeps=tuple(map(_with_last_time, self._sweeps, self._last_seconds)),
            trials={number: builder.record() for number, builder in sorted(self._trials.items())},
            paces=tuple(self._paces.values()),
            evaluations=tuple(self._evaluations.values()),
            ensemble=self._ensemble,
            n_trials=self._n_trials,
            device_seconds=self.device_time.seconds(),
            edits=tuple(self._edits.values()),
            code=dict(self._code),
            asked_entries={name: tuple(entries.values()) for name, entries in self._asked.items()},
        )

    def _begin(self, event: SweepStarted) -> None:
        if not self._sweeps:
            self._metrics = metrics_from_settings(event.settings)
            self._last_settings = dict(event.settings)
            self._judge_early_trials()
        settings = event.settings.items()
        changed = {key: value for key, value in settings if self._last_settings.get(key) != value}
        self._last_settings |= event.settings
        code = changed_code(self._code, event.code) if event.n_trials else ()
        self._code |= event.code
        self._sweeps.append(SweepRecord(event, changed, changed_code=code))
        self._last_seconds.append(event.time)
        self._take_total(event.settings.get(TOTAL_SETTING))
        self.device_time.take(event)
        if not is_shared_storage(event.settings.get(STORAGE_SETTING, "")):  # nobody else has trials
            for trial in self._trials.values():
                trial.leave(event.time)

    def _judge_early_trials(self) -> None:
        """Make the records of trials from before the first sweep again, by its metrics."""
        early, self._early = self._early, []
        if self._metrics != StudyMetrics():
            self._trials.clear()
            for event in early:
                self._trial(event).take(event)

    def _take_total(self, value: object) -> None:
        with suppress(ValueError, TypeError):  # the log may be a stranger's
            self._n_trials = int(str(value)) if value is not None else self._n_trials

    def _trial(self, event: TrialEvent) -> TrialRecordBuilder:
        builder = self._trials.get(event.trial)
        if builder is None:
            reports: dict[int, Mapping[str, float]] | None = {} if self._keep_reports else None
            builder = TrialRecordBuilder(event.trial, event.time, reports, metrics=self._metrics)
            self._trials[event.trial] = builder
        return builder


def _with_last_time(sweep: SweepRecord, last_seconds: float) -> SweepRecord:
    return replace(sweep, last_seconds=last_seconds)


def record_from_events(events: Iterable[Event], *, keep_reports: bool = False) -> StudyRecord:
    """Return the record of a study from its events, which come in log order."""
    study = StudyRecordBuilder(keep_reports=keep_reports)
    for event in events:
        study.take(event)
    return study.record()
