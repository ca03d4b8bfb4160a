"""Reads from a study's event log what its report shows. Nothing of the study is run or written.

The record has the trials; the report needs their executions besides, and the scale of each param.
"""

from __future__ import annotations

import ast
import itertools
import math
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from automl.config import ObjectiveKind, StudyConfig
from automl.errors import ConfigError
from automl.record.device_time import Attempt, OpenAttempts, merge_spans
from automl.record.event_log import read_events
from automl.record.leaderboard import LeaderboardRow, leaderboard, model_file_sizes
from automl.record.studies import unreadable_text
from automl.record.study_directory import study_command
from automl.record.study_files import EXPORTS, StudyFiles
from automl.record.study_record import StudyRecord, StudyRecordBuilder
from automl.record.texts import parse_json
from automl.record.trial_record import TrialRecord
from automl.search.domains import ChoiceDomain, RangeDomain
from automl.search.search_space import SearchSpace, asked_space, parse_space
from automl.trial import (
    Event,
    FinishedOutcome,
    InterruptedOutcome,
    MemoryPeakMeasured,
    OutOfMemoryOutcome,
    ParamValue,
    PrunedOutcome,
    TooLargeOutcome,
    TrialOutcome,
    TrialState,
    TrialsWaited,
)

DEFAULT_REFRESH_SECONDS = 10.0
"""While a sweep runs, its page loads itself again after this time."""
REPEATED = "repeated"
"""The state of an execution whose trial had to run again, for lack of memory or after a death."""


@dataclass(frozen=True)
class TrialExecution:
    """One stay of a trial on a device."""

    trial: int
    device: str
    start_seconds: float
    """Begin of the execution (Unix seconds)."""
    end_seconds: float
    state: str
    """How it ended: a value of `TrialState`, or `REPEATED`."""
    asked_bytes: int = 0
    """The trial's share of the requested memory; 0: not known."""
    seen_bytes: int = 0
    """The trial's share of the peak that was measured; 0: not known."""


@dataclass(frozen=True)
class ParamScale:
    """How the values of a param are drawn: on a range, or as categories."""

    name: str
    categories: tuple[ParamValue, ...] = ()
    low: float = 0.0
    high: float = 1.0
    is_log: bool = False
    is_declared: bool = False
    """Whether the space declares the range; else it spans the values that were tried."""

    @property
    def is_number(self) -> bool:
        return not self.categories

    def share(self, value: ParamValue) -> float:
        """Return the place of a value on the scale, from 0 to 1."""
        if self.categories:
            places = [i for i, known in enumerate(self.categories) if known == value]
            return (places[0] + 0.5) / len(self.categories) if places else 0.5
        assert isinstance(value, int | float)
        low, high, number = self.low, self.high, float(value)
        if self.is_log and min(low, number) > 0:
            low, high, number = math.log(low), math.log(high), math.log(number)
        return min(1.0, max(0.0, (number - low) / (high - low))) if high > low else 0.5


@dataclass(frozen=True)
class StudyData:
    """What the report of a study is made from."""

    record: StudyRecord
    executions: tuple[TrialExecution, ...]
    scales: Mapping[str, ParamScale]
    """The scales of the params whose values differ between trials, by name."""
    waits: tuple[TrialsWaited, ...] = ()
    """The reasons for which trials waited, other than their turn."""
    waiting: tuple[tuple[str, str], ...] = ()
    """Trials that wait now, each with the reason."""
    is_running: bool = False
    has_refit: bool = False
    """Whether the study has a refit, which is then the model that it gives."""
    has_export: bool = False
    """Whether a model of the study was exported, by `export` or by `release`."""
    board: Sequence[LeaderboardRow] = ()
    """The leaderboard of a study of a table; empty: the study is of something else."""

    @property
    def is_called(self) -> bool:
        """Whether the study is called from Python, so that no command resumes or edits it."""
        return self.record.settings.get("objective.kind") == ObjectiveKind.called.name

    def resume_text(self, study: StudyConfig, n_trials: int | None = None) -> str:
        """Return the command that resumes the study, or words about the call; `n_trials`: up to so
        many trials."""
        if self.is_called:
            more = "" if n_trials is None else f", n_trials={n_trials}"
            return f"the same call with name={study.name!r}{more}"
        more = "" if n_trials is None else f" n_trials={n_trials}"
        return f"{study_command('resume', study)}{more}"

    @cached_property
    def spans(self) -> Sequence[tuple[float, float]]:
        """The times in which sweeps worked, disjoint and in their order (Unix seconds)."""
        executions = ((e.start_seconds, e.end_seconds) for e in self.executions)
        return merge_spans((*self.record.spans, *executions))

    def worked_seconds(self, until_seconds: float) -> float:
        """Return the time in which sweeps worked up to `until_seconds` (Unix seconds), or since the
        begin of a study that no sweep runs."""
        if self.record.settings.get("objective.kind") == ObjectiveKind.outside.name and self.spans:
            return max(0.0, until_seconds - self.spans[0][0])
        place = bisect_right(self.spans, until_seconds, key=lambda span: span[0]) - 1
        if place < 0:
            return 0.0
        start, end = self.spans[place]
        return self._seconds_before[place] + min(end, until_seconds) - start

    @cached_property
    def _seconds_before(self) -> Sequence[float]:
        """The time in which sweeps had worked when each of the spans began."""
        return list(itertools.accumulate((end - start for start, end in self.spans), initial=0.0))

    def after_seconds(self, trial: TrialRecord) -> float:
        """Return the time in which sweeps had worked when the trial ended."""
        return self.worked_seconds(trial.ended or trial.started)

    @cached_property
    def ended(self) -> Sequence[TrialRecord]:
        """The trials that ended for good, in the order of their ends."""
        ended = [trial for trial in self.record.trials.values() if trial.ended is not None]
        return sorted(ended, key=lambda trial: trial.ended or 0.0)

    @cached_property
    def valued(self) -> Sequence[TrialRecord]:
        """The ended trials with a finite value, in the order of their ends."""
        return [t for t in self.ended if t.value is not None and math.isfinite(t.value)]


def read_study_data(
    directory: Path, *, is_running: bool = False, is_optunas: bool = False
) -> StudyData:
    """Return the data of the study at `directory`. `is_optunas`: all of its trials ended in
    Optuna's study, whose times are shown as those of a device.

    Raises ConfigError if it cannot be read.
    """
    log, study = StudyFiles(directory).events, StudyRecordBuilder(keep_reports=True)
    executions = _ExecutionsBuilder(OpenAttempts(not_followed=()) if is_optunas else OpenAttempts())
    waits: list[TrialsWaited] = []
    try:
        for event, _ in read_events(log):
            study.take(event)
            executions.take(event)
            if isinstance(event, TrialsWaited):
                waits.append(event)
    except OSError as error:
        raise ConfigError(unreadable_text(log, error)) from error
    record = replace(study.record(), name=directory.name)
    if not is_running and not record.is_shared:
        record = record.as_left(time.time())
    last_seconds = record.spans[-1][1] if record.spans else 0.0
    files = StudyFiles(directory)
    return StudyData(
        record=record,
        executions=executions.all(last_seconds if is_running or record.is_shared else None),
        scales=param_scales(record),
        waits=tuple(waits),
        is_running=is_running,
        has_refit=files.refit.exists(),
        has_export=_has_export(files),
        board=_board(record, files),
    )


def _has_export(files: StudyFiles) -> bool:
    """Return whether there is an export, or a release that put one elsewhere."""
    steps: object = None
    with suppress(OSError, ValueError):  # no release was begun, or a stranger wrote the file
        steps = parse_json(files.release.read_bytes())
    return (files.path / EXPORTS).is_dir() or (isinstance(steps, Mapping) and "export" in steps)


def _board(record: StudyRecord, files: StudyFiles) -> Sequence[LeaderboardRow]:
    settings = record.settings
    is_own = settings.get("objective.kind") == ObjectiveKind.builtin.name
    if not is_own or settings.get("data.target", "None") in ("", "None"):
        return ()
    return leaderboard(record, model_file_sizes(files, record.trials))


@dataclass
class _ExecutionsBuilder:
    """Makes the executions of trials from their events."""

    attempts: OpenAttempts
    done: list[TrialExecution] = field(default_factory=list)
    memory: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The bytes that each running trial has asked for, and was seen to hold."""

    def take(self, event: Event) -> None:
        ended = self.attempts.take(event)
        if ended is not None:
            killed = TrialState.INTERRUPTED.value
            state = _execution_state(event) if isinstance(event, TrialOutcome) else killed
            self.done.append(self._execution(ended, state))
            self.memory.pop(ended.trial, None)
        elif isinstance(event, MemoryPeakMeasured) and self.attempts.get(event.trial):
            asked, seen = self.memory.get(event.trial, (0, 0))
            self.memory[event.trial] = (
                (event.predicted_bytes or 0) // event.n_lanes or asked,
                max(seen, event.peak_bytes // event.n_lanes),
            )

    def all(self, now_seconds: float | None) -> tuple[TrialExecution, ...]:
        """Return all executions in the order of their starts. Those that no event has ended last
        until now, if a sweep is at work that may have them (None: none is), else to their last
        event."""
        for attempt in self.attempts.all():
            if attempt.is_left or now_seconds is None:
                self.done.append(self._execution(attempt, TrialState.INTERRUPTED.value))
            else:
                running = replace(attempt, end_seconds=max(attempt.end_seconds, now_seconds))
                self.done.append(self._execution(running, TrialState.RUNNING.value))
        return tuple(sorted(self.done, key=lambda e: e.start_seconds))

    def _execution(self, attempt: Attempt, state: str) -> TrialExecution:
        times = attempt.start_seconds, attempt.end_seconds
        memory = self.memory.get(attempt.trial, (0, 0))
        return TrialExecution(attempt.trial, attempt.device, *times, state, *memory)


def _execution_state(outcome: TrialOutcome) -> str:
    match outcome:
        case FinishedOutcome() | PrunedOutcome() | TooLargeOutcome():
            return outcome.state.value
        case OutOfMemoryOutcome() | InterruptedOutcome(by_worker_death=True):
            return REPEATED
    return outcome.state.value


# --- the scales of params -------------------------------------------------------------------------


def param_scales(record: StudyRecord) -> dict[str, ParamScale]:
    """Return the scale of each param that differs among the trials with a value."""
    written = declared_space(record.settings)
    space = asked_space(written, record.asked_entries)
    varying = {name for name, entries in record.asked_entries.items() if len(entries) > 1}
    varying -= {*written.names}
    values: dict[str, list[ParamValue]] = {}
    trials = [t for t in record.trials.values() if t.value is not None]
    for trial in trials or record.trials.values():
        for name, value in trial.params.items():
            values.setdefault(name, []).append(value)
    scales = {name: _scale(name, values[name], space) for name in values}
    known = {name: scale for name, scale in scales.items() if scale is not None}
    # A range that depends on other values has no end of its own.
    return {n: replace(s, is_declared=False) if n in varying else s for n, s in known.items()}


def declared_space(settings: Mapping[str, str]) -> SearchSpace:
    """Return the space that a sweep's flat settings declare; params that cannot be read are left
    out, such as those of a family that brings a space of its own."""
    entries: dict[str, object] = {}
    for key, text in settings.items():
        if not key.startswith("space."):
            continue
        name, _, part = key.removeprefix("space.").rpartition(".")
        if part in ("low", "high", "log", "step", "choices") and name:
            entry = entries.setdefault(name, {})
            if isinstance(entry, dict):
                entry[part] = _literal(text)
    readable: dict[str, object] = {}
    for name, entry in entries.items():
        try:
            parse_space({name: entry})
        except ConfigError:
            continue
        readable[name] = entry
    return parse_space(readable)


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _scale(name: str, values: Sequence[ParamValue], space: SearchSpace) -> ParamScale | None:
    distinct = list(dict.fromkeys(map(_key, values)))
    if len(distinct) < 2:
        return None
    domain = space[name].domain if name in space.names else None
    numbers = [float(v) for v in values if isinstance(v, int | float) and _is_number(v)]
    if isinstance(domain, RangeDomain) and len(numbers) == len(values):
        low, high = min(float(domain.low), *numbers), max(float(domain.high), *numbers)
        return ParamScale(name, (), low, high, domain.log and low > 0, is_declared=True)
    if isinstance(domain, ChoiceDomain):
        others = [v for v in {_key(v): v for v in values}.values() if v not in domain.values]
        return ParamScale(name, (*domain.values, *others))
    if len(numbers) == len(values) and len(distinct) > 8 and all(map(math.isfinite, numbers)):
        ordered, tenth = sorted(numbers), len(numbers) // 10
        is_log = ordered[0] > 0 and ordered[-1 - tenth] / ordered[tenth] > 30
        return ParamScale(name, (), ordered[0], ordered[-1], is_log)
    return ParamScale(name, tuple(sorted({_key(v): v for v in values}.values(), key=_order)))


def _is_number(value: ParamValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _key(value: ParamValue) -> tuple[str, ParamValue]:
    return "bool" if isinstance(value, bool) else "", value


def _order(value: ParamValue) -> tuple[bool, float, str]:
    number = float(value) if isinstance(value, int | float) and _is_number(value) else 0.0
    return not _is_number(value), number, str(value)
