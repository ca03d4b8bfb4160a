"""Tells what a sweep on a table would do with the trials of each family: rows, time, memory.

The time of a family's trials is that of the first one which a sweep would try: as trials of the
study took, as a short timing shows (`trial_timing.py`), or by the arithmetic of the family.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, cycle, islice
from statistics import fmean, median

from automl.admission.requests import RequestMaker
from automl.config import UNLIMITED_N_TRIALS
from automl.data.dataset import Dataset
from automl.devices.device_reading import DeviceReading
from automl.models.families.auto.family import sized_for_trial
from automl.record.study_record import StudyRecord
from automl.record.texts import counted
from automl.running.prepare.long_training import seconds_by_family
from automl.running.prepare.outlook import SizeOutlook, TimeOutlook, size_outlook
from automl.running.prepare.prepared_config import PreparedStudy
from automl.running.trials.trial_forecast import (
    ReportLimits,
    RowGrowth,
    TrialForecast,
    TrialObservation,
    extrapolate_part,
    extrapolate_trial,
    fill_from_arithmetic,
    schedule_trials,
)
from automl.running.trials.trial_timing import TimeableTrial, time_trials
from automl.trial import ROWS_PARAM, Params

MIN_PART_ROWS = 200
"""A part of a trial that is timed has at least so many rows, if the trial has them."""


@dataclass(frozen=True)
class FamilyOutlook:
    """What a sweep would do with the trials of one family."""

    family: str
    params: Params
    """Params of the trial that stands for all of the family: the first that is tried."""
    n_rows: int
    """Number of rows that a model of a trial learns from."""
    n_models: int
    """Number of models that a trial trains, one for each fold."""
    n_trials: int | None
    """Number of trials that end; None: it is not known."""
    seconds: float | None
    """Time of a trial; None: it is not known."""
    known_by: str
    """What the time was taken from, in words."""
    memory_bytes: int | None
    """Memory that a trial asks for; None: it is not known before one has run."""
    peak_bytes: int | None
    """The most memory that a trial holds, by the timed one; None: none was timed."""


@dataclass(frozen=True)
class TableOutlook:
    """What a sweep on a table would do."""

    families: tuple[FamilyOutlook, ...]
    time: TimeOutlook | None
    """Time of the trials that are left; None: no time of any trial is known."""
    timed: str
    """What was timed, in words; empty: nothing."""


@dataclass(frozen=True)
class _TrialPart:
    """A part of the work of a trial: one of its models, on some of its rows."""

    prepared: PreparedStudy
    n_rows: int
    share: float
    """Its share of the trial's work, by the arithmetic of the family."""


@dataclass
class FamilyPlanner:
    """Makes the outlook of a study on a table whose trials the built-in training trains, once."""

    prepared: PreparedStudy
    dataset: Dataset
    record: StudyRecord | None
    requests: RequestMaker
    reading: DeviceReading
    seconds: float
    """Time for timing trials, all together; 0: none is timed."""
    _observations: dict[str, TrialObservation] = field(default_factory=dict, init=False)
    _start_seconds: float = field(default=0.0, init=False)
    """The time until worker processes are ready; 0: it was not measured."""
    _parts: dict[str, _TrialPart] = field(default_factory=dict, init=False)
    """The part of the work of a trial that was timed, where it was not all."""

    def outlook(self) -> TableOutlook:
        """Time a trial of each family that no trial of the study tells of, and return what follows.

        Raises AutoMLError.
        """
        timed = self._time_trials()
        forecasts = self._forecasts()
        time_outlook, n_by_family = self._schedule(forecasts)
        families = tuple(
            self._family(name, forecast, n_by_family) for name, forecast in forecasts.items()
        )
        return TableOutlook(families, time_outlook, timed)

    @cached_property
    def _arithmetic(self) -> Mapping[str, float | None]:
        """The seconds of a trial of each family by its arithmetic."""
        return self._arithmetic_of(self.dataset)

    def _arithmetic_of(self, dataset: Dataset) -> Mapping[str, float | None]:
        ends = {param.name: param.domain.ends for param in self.prepared.space.params}
        return seconds_by_family(self.prepared.config, dataset, ends)

    @cached_property
    def _first_points(self) -> list[Params]:
        """Some or all params of the trials that come before what the sampler proposes."""
        prepared = self.prepared
        return prepared.rules.first_points(prepared.space, prepared.config.study)

    @cached_property
    def _points(self) -> dict[str, Params]:
        """All params of the first trial of each family."""
        found: dict[str, Params] = {}
        for name in self._arithmetic:
            first = next((p for p in self._first_points if self._family_of(p) == name), {})
            own = {**first, self.prepared.choice or "": name}
            found[name] = self.prepared.space.fill(
                lambda param, own=own: own.get(param.name, param.domain.at(0.5))  # type: ignore[misc]
            )
        return found

    def _family_of(self, params: Params) -> str | None:
        """Return the family of a trial; None: its params leave it to the sampler."""
        choice = self.prepared.choice
        if choice is None:
            return next(iter(self._arithmetic))
        return None if choice not in params else str(params[choice])

    @cached_property
    def _sizes(self) -> dict[str, SizeOutlook]:
        return {
            name: size_outlook(self.prepared, self.requests, self.reading, name, params)
            for name, params in self._points.items()
        }

    @property
    def _n_at_once(self) -> int:
        counts = sorted(size.n_at_once for size in self._sizes.values())
        return max(1, counts[len(counts) // 2])

    @cached_property
    def _seconds_seen(self) -> dict[str, list[float]]:
        """How long the study's trials took that ran to their end, by family."""
        found = defaultdict[str, list[float]](list)
        for trial in () if self.record is None else self.record.trials.values():
            family = self._family_of(trial.params)
            if trial.state.is_final and family is not None and family in self._arithmetic:
                found[family].append(trial.seconds)
        return found

    def _time_trials(self) -> str:
        """Time the families that train on the CPU and were not seen. Return what was timed, in
        words."""
        on_host = {
            name
            for name, size in self._sizes.items()
            if size.n_by_device and all(device.on_host for device in size.n_by_device)
        }
        names = on_host - set(self._seconds_seen)
        if not names or self.seconds == 0:
            return ""
        begun, n_at_once = time.monotonic(), min(self._n_at_once, len(names))
        for name in names:
            part = self._part(name, self.seconds * n_at_once / len(names))
            self._parts.update({} if part is None else {name: part})
        tasks = {
            name: TimeableTrial(
                self._parts[name].prepared if name in self._parts else self.prepared,
                self._points[name],
            )
            for name in sorted(names, key=self._quickness)
        }
        timed = time_trials(tasks, n_at_once, self.seconds)
        self._observations.update(timed.observations)
        self._start_seconds = timed.start_seconds
        each = "the first trial" + " of each family" * (len(names) > 1)
        return f"timed: {each}, {n_at_once} at once, {time.monotonic() - begun:.1f} s in all"

    def _quickness(self, name: str) -> tuple[bool, float]:
        """Return the key by which trials are ordered: those that patience may end come last, since
        how long they are only their end tells."""
        part, whole = self._parts.get(name), self._arithmetic[name] or 0.0
        is_open = self._report_limits(name).patience is not None
        return is_open, whole if part is None else part.share * whole

    def _part(self, name: str, seconds: float) -> _TrialPart | None:
        """Return the part of a trial that takes at most `seconds` by arithmetic. None where all of
        it is timed: a trial with several reports shows how far it is."""
        family, _ = self.prepared.plan.family.of_trial(self._points[name])
        whole = self._arithmetic[name]
        n_reports = family.n_reports(
            family.with_length(self.prepared.plan.training, self.dataset.n_train)
        )
        if n_reports > 1 or whole is None or whole <= seconds:
            return None
        n_rows = self._n_rows(name)
        while True:
            dataset = self.dataset.first_fold.part(n_rows)
            need = self._arithmetic_of(dataset)[name]
            assert need is not None, "it is known for all rows"
            if need <= seconds or n_rows < 2 * MIN_PART_ROWS:
                break
            n_rows //= 2
        prepared = replace(self.prepared.of_one_model, dataset=dataset)
        return _TrialPart(prepared, n_rows, need / whole)

    def _forecasts(self) -> dict[str, TrialForecast]:
        found: dict[str, TrialForecast | None] = {}
        for name in self._arithmetic:
            seen, observation = self._seconds_seen.get(name), self._observations.get(name)
            found[name] = None
            if seen:
                known_by = f"the mean of {counted(len(seen), 'trial')} that ended"
                found[name] = TrialForecast(fmean(seen), known_by)
            elif observation is not None:
                found[name] = extrapolate_trial(observation, self._report_limits(name))
                found[name] = self._from_part(name, found[name])
        filled = fill_from_arithmetic(found, self._arithmetic)
        failed = {n: seen.trouble for n, seen in self._observations.items() if seen.trouble}
        return filled | {n: TrialForecast(None, f"it failed: {why}") for n, why in failed.items()}

    def _from_part(self, name: str, found: TrialForecast | None) -> TrialForecast | None:
        """Return the forecast of a whole trial, where a part of it was timed."""
        part = self._parts.get(name)
        if found is None or part is None or found.seconds is None:
            return found
        known_by = f"one model on {part.n_rows:,} rows timed, the rest by arithmetic"
        # The first trial of another data set starts a process of its own.
        seconds = extrapolate_part(found.seconds, part.share, self._start_seconds)
        return TrialForecast(seconds, known_by, self._whole_peak(name, found.peak_bytes))

    def _whole_peak(self, name: str, part_bytes: int | None) -> int | None:
        """Return the most memory of a whole trial by that of the part.

        What a model holds beyond the least of any trial grows with its rows, and half of it stays
        until all folds are fitted: so it was with kernels on five tables.
        """
        if part_bytes is None:
            return None
        peaks = [peak for seen in self._observations.values() for _, peak in seen.peaks[-1:]]
        least = min(part_bytes, *peaks)
        n_held = (1 + self.prepared.plan.n_models_in_all) / 2
        times = n_held * self._n_rows(name) / self._parts[name].n_rows
        asked = self._sizes[name].memory_bytes
        whole = least + round(times * (part_bytes - least))
        return whole if asked is None else min(asked, whole)

    def _report_limits(self, name: str) -> ReportLimits:
        family, own = self.prepared.plan.family.of_trial(self._points[name])
        training = family.with_length(self.prepared.plan.training, self.dataset.n_train)
        n_rows = self._n_rows(name)
        return ReportLimits(
            n_most=family.n_reports(training),
            n_likely=family.likely_reports(own, training, n_rows),
            patience=family.patience_epochs(own, training, n_rows),
        )

    def _n_rows(self, name: str) -> int:
        return sized_for_trial(self._points[name], self.dataset).first_fold.n_train

    def _schedule(
        self, forecasts: Mapping[str, TrialForecast]
    ) -> tuple[TimeOutlook | None, Mapping[str, int] | None]:
        """Return the time of the trials that are left, and how many of each family end."""
        study = self.prepared.config.study
        known = {name: f.seconds for name, f in forecasts.items() if f.seconds is not None}
        n_done = 0 if self.record is None else len(self.record.trials)
        n_left = max(0, study.decided_n_trials - n_done)
        is_endless = study.decided_n_trials >= UNLIMITED_N_TRIALS
        if not known or (is_endless and study.timeout_seconds is None):
            return None, None
        start_seconds = self._start_seconds
        limit_seconds = None
        if study.timeout_seconds is not None:
            limit_seconds = max(0.0, study.timeout_seconds - start_seconds)
        typical = median(known.values())
        found = schedule_trials(
            self._kinds(n_done),
            {name: known.get(name, typical) for name in forecasts},
            self._n_at_once,
            n_trials=None if is_endless else n_left,
            limit_seconds=limit_seconds,
            growth=self._growth,
        )
        unknown = [name for name in forecasts if name not in known]
        known_by = "by family as above"
        if unknown:
            known_by += f"; {', '.join(unknown)} counted as the others"
        time_outlook = TimeOutlook(
            trial_seconds=found.trial_seconds,
            n_left=found.n_trials,
            n_at_once=self._n_at_once,
            known_by=known_by,
            seconds=found.seconds + start_seconds,
            start_seconds=start_seconds,
            limit_seconds=study.timeout_seconds if found.n_trials < n_left else None,
        )
        return time_outlook, found.n_by_kind

    def _kinds(self, n_done: int) -> Iterator[str]:
        """Yield the family of one trial after another: the first points, then each in turn, as if
        the sampler liked all alike."""
        tried = [name for name in self._arithmetic if name not in self.prepared.slow_kinds]
        turns = cycle(tried)
        first = (self._family_of(params) or next(turns) for params in self._first_points)
        return chain(islice(first, n_done, None), turns)

    @property
    def _growth(self) -> RowGrowth | None:
        prepared = self.prepared
        if not prepared.promotes_rows:
            return None
        n_rows = next(iter(self._points.values()))[ROWS_PARAM]
        assert isinstance(n_rows, int), "the space has checked it"
        return RowGrowth(n_rows, self.dataset.n_train)

    def _family(
        self, name: str, forecast: TrialForecast, n_by_family: Mapping[str, int] | None
    ) -> FamilyOutlook:
        return FamilyOutlook(
            family=name,
            params=self._points[name],
            n_rows=self._n_rows(name),
            n_models=self.prepared.plan.n_models_in_all,
            n_trials=None if n_by_family is None else n_by_family.get(name, 0),
            seconds=forecast.seconds,
            known_by=forecast.known_by,
            memory_bytes=self._sizes[name].memory_bytes,
            peak_bytes=forecast.peak_bytes,
        )
