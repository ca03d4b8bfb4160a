"""The record of a study: all that is known of it, folded once from its events. Pure.

Whoever asks how a study stands or stood has it from here: a resume, the delivery to MLflow, and
commands, by `studies.read_study`. It is small whatever its trials reported, unless reports are to
be kept.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from automl.record.trial_record import (
    RANKED,
    Rank,
    StudyMetric,
    TrialFold,
    TrialRecord,
    is_returned,
    may_win,
    rank,
)
from automl.trial import (
    Direction,
    EnsembleBuilt,
    Event,
    MetricsReported,
    ModelsEvaluated,
    PaceMeasured,
    SweepEnded,
    SweepStarted,
    TrialEvent,
    TrialOutcome,
    TrialState,
    TrialTagged,
    ValuesLogged,
)


@dataclass(frozen=True)
class SweepRecord:
    """One sweep over a study."""

    start: SweepStarted
    changed: Mapping[str, str]
    """Settings that are not as they were in the sweep before."""
    end: SweepEnded | None = None
    """None: it runs, or was killed; the study's lock tells which."""


@dataclass(frozen=True)
class StudyRecord:
    """A study as its events tell it."""

    name: str
    """Of its last sweep; a folder may have been renamed since."""
    uuid: str
    """Of the study that it is since its last sweep; empty: no sweep has begun."""
    sweeps: tuple[SweepRecord, ...] = ()
    trials: Mapping[int, TrialRecord] = field(default_factory=dict)
    """By number, in that order."""
    paces: tuple[PaceMeasured, ...] = ()
    """What steps took where a sweep had several kinds of device."""
    evaluations: tuple[ModelsEvaluated, ...] = ()
    """Scores of its models, the newest of each models on the same rows, in their order."""
    ensemble: EnsembleBuilt | None = None
    """The newest; None: there is none."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Flat settings of the last sweep (`training.epochs` → `20`), without credentials."""
        return self.sweeps[-1].start.settings if self.sweeps else {}

    @property
    def changed(self) -> Mapping[str, str]:
        """Settings that are not what they always were, as they are now."""
        return {key: value for sweep in self.sweeps for key, value in sweep.changed.items()}

    @property
    def former_names(self) -> tuple[str, ...]:
        """Names that this study, and no other in the same log, had before."""
        own = (s.start.study for s in self.sweeps if s.start.study_uuid == self.uuid)
        return tuple(dict.fromkeys(name for name in own if name != self.name))

    @property
    def metric(self) -> StudyMetric:
        return StudyMetric.of(self.settings)

    def counts(self) -> Mapping[TrialState, int]:
        """Trials by state, all states named."""
        counts = dict.fromkeys(TrialState, 0)
        for trial in self.trials.values():
            counts[trial.state] += 1
        return counts

    def ranking(self) -> tuple[TrialRecord, ...]:
        """Trials that ended with a value, the best first."""
        ranked = [trial for trial in self.trials.values() if _has_rank(trial)]
        returned = self._returned
        return tuple(sorted(ranked, key=lambda trial: self._rank(trial, returned)))

    def best(self) -> TrialRecord | None:
        """The trial that ended with the best value, pruned or not; None: none can be compared."""
        first = next(iter(self.ranking()), None)
        if first is None or not may_win(first.state, returned=self._returned):
            return None
        return first

    @property
    def best_ensemble(self) -> EnsembleBuilt | None:
        """The ensemble, where it is what the study comes to: of two models or more, and by the
        study's metric no worse than the best trial."""
        made, best = self.ensemble, self.best()
        if made is None or best is None or best.value is None or len(made.members) < 2:
            return None
        name = self.metric.name.removeprefix("val_")
        own = made.scores.get(name)
        if own is None or not math.isfinite(own):
            return None
        theirs = made.alone.get(best.number, {}).get(name, best.value)  # measured alike, if known
        return None if self.metric.direction.better(theirs, own) else made

    @property
    def _returned(self) -> bool:
        """Whether the objective returns its values; one trial shows it."""
        return any(
            trial.state is TrialState.FINISHED
            and trial.value is not None
            and is_returned(trial.value, trial.best_value)
            for trial in self.trials.values()
        )

    def _rank(self, trial: TrialRecord, returned: bool) -> Rank:
        assert trial.value is not None
        sign = 1.0 if self.metric.direction is Direction.minimize else -1.0
        return rank(sign * trial.value, trial.state, trial.number, returned=returned)


def _has_rank(trial: TrialRecord) -> bool:
    return trial.state in RANKED and trial.value is not None and math.isfinite(trial.value)


class LoggedHistory:
    """What of which trials is logged, and who has ended: a metric of a step is logged once."""

    def __init__(self) -> None:
        self._known: defaultdict[int, _TrialLogged] = defaultdict(_TrialLogged)
        """Of trials that have not ended."""
        self._names: dict[frozenset[str], frozenset[str]] = {}
        """Nearly all steps have the same names, which are kept once."""
        self._ended: set[int] = set()

    def news(self, event: Event) -> Event | None:
        """What of it is new, and known from then on; None: nothing."""
        if not isinstance(event, TrialEvent):
            return event
        if event.trial in self._ended:
            return None
        if isinstance(event, MetricsReported):
            return self._new_part(event, self._known[event.trial])
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
        """Nothing of it is logged, as far as is known from here on."""
        self._ended.discard(trial)
        self._known.pop(trial, None)

    def _new_part(self, event: MetricsReported, known: _TrialLogged) -> MetricsReported | None:
        names, before = frozenset(event.metrics), known.steps.get(event.step)
        if before is not None and names <= before:
            return None
        self._know(known, event.step, names)
        if not before or names.isdisjoint(before):
            return event
        return replace(event, metrics={n: v for n, v in event.metrics.items() if n not in before})

    def _new_logged(self, event: ValuesLogged, known: _TrialLogged) -> ValuesLogged | None:
        """Metrics are known by name and step, whether they were reported or logged."""
        points = []
        for point in event.points:
            if point.name not in known.steps.get(point.step, ()):
                self._know(known, point.step, frozenset((point.name,)))
                points.append(point)
        params = {name: text for name, text in event.params.items() if name not in known.params}
        known.params.update(params)
        if not points and not params:
            return None
        if len(points) == len(event.points) and len(params) == len(event.params):
            return event
        return replace(event, points=tuple(points), params=params)

    def _know(self, known: _TrialLogged, step: int, names: frozenset[str]) -> None:
        together = names | known.steps.get(step, names)
        known.steps[step] = self._names.setdefault(together, together)


@dataclass
class _TrialLogged:
    """What of one trial is logged."""

    steps: dict[int, frozenset[str]] = field(default_factory=dict)
    """Names of the metrics of each."""
    tags: dict[str, str] = field(default_factory=dict)
    params: set[str] = field(default_factory=set)
    """Names of those that it logged."""


class StudyFold:
    """Takes the events of a study one after another; `record` is what they say so far."""

    def __init__(self, *, keep_reports: bool = False) -> None:
        self.seen = LoggedHistory()
        self._keep_reports = keep_reports
        self._sweeps: list[SweepRecord] = []
        self._known: dict[str, str] = {}
        """Each setting that a sweep had, as it was last."""
        self._metric = StudyMetric()
        self._trials: dict[int, TrialFold] = {}
        self._paces: dict[object, PaceMeasured] = {}
        """By execution; of probes by kind of device and size."""
        self._evaluations: dict[object, ModelsEvaluated] = {}
        """By rows and models."""
        self._ensemble: EnsembleBuilt | None = None

    def take(self, event: Event) -> None:
        """Learn from the next event; what is known already changes nothing."""
        if isinstance(event, TrialEvent):
            new = self.seen.news(event)
            if isinstance(new, TrialEvent):
                self._trial(new).take(new)
        elif isinstance(event, SweepStarted):
            self._begin(event)
        elif isinstance(event, PaceMeasured):
            probe = event.kind, event.step_flops
            self._paces[probe if event.execution is None else event.execution] = event
        elif isinstance(event, ModelsEvaluated):
            self._evaluations[event.digest, event.models] = event
        elif isinstance(event, EnsembleBuilt):
            self._ensemble = event
        elif isinstance(event, SweepEnded) and self._sweeps:  # else the line that began it is lost
            self._sweeps[-1] = replace(self._sweeps[-1], end=event)

    def record(self) -> StudyRecord:
        """The study as it stands."""
        last = self._sweeps[-1].start if self._sweeps else None
        return StudyRecord(
            name="" if last is None else last.study,
            uuid="" if last is None else last.study_uuid,
            sweeps=tuple(self._sweeps),
            trials={number: fold.record() for number, fold in sorted(self._trials.items())},
            paces=tuple(self._paces.values()),
            evaluations=tuple(self._evaluations.values()),
            ensemble=self._ensemble,
        )

    def _begin(self, event: SweepStarted) -> None:
        if not self._sweeps:
            self._metric, self._known = StudyMetric.of(event.settings), dict(event.settings)
        settings = event.settings.items()
        changed = {key: value for key, value in settings if self._known.get(key) != value}
        self._known |= event.settings
        self._sweeps.append(SweepRecord(event, changed))

    def _trial(self, event: TrialEvent) -> TrialFold:
        fold = self._trials.get(event.trial)
        if fold is None:
            reports: dict[int, Mapping[str, float]] | None = {} if self._keep_reports else None
            fold = TrialFold(event.trial, event.time, self._metric, reports)
            self._trials[event.trial] = fold
        return fold


def fold_events(events: Iterable[Event], *, keep_reports: bool = False) -> StudyRecord:
    """The record of a study whose events these are, in their order."""
    study = StudyFold(keep_reports=keep_reports)
    for event in events:
        study.take(event)
    return study.record()
