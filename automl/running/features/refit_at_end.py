"""Trains the result of a sweep again on all rows at the sweep's end, and keeps time for it.

With one hold-out, no model has seen the rows that judged it; with folds, their mean has seen all
rows, but with `data.time` the last rows are seen by none, and the first fold's model saw few. The
step is therefore for a table with one hold-out or with `data.time`, in sweeps that choose the
family. A user who searches a single family waits for nothing unasked. If the sweep has a time
limit, time for the step is kept from the trials as long as it is a small part.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from automl.config import Config, DataKind, ExecutionKind, Finish, RefitArguments
from automl.data.dataset import Dataset
from automl.errors import AutoMLError
from automl.models.families.auto.family import n_rows_of_trial
from automl.record.signal_receiver import StopSignal, signal_receiver
from automl.record.studies import read_study
from automl.record.study_directory import study_command
from automl.record.study_files import StudyFiles
from automl.record.study_record import StudyRecord
from automl.record.texts import duration_text
from automl.record.trial_record import TrialRecord
from automl.running.features.feature import RunRefit, SweepEnding, SweepFeature, SweepSite
from automl.running.loop.messages import PlannedTrial, StopReason
from automl.running.prepare.prepared_config import PreparedStudy
from automl.running.prepare.refit_task import (
    ensemble_to_refit,
    make_refit_task,
    refuse_unfit_settings,
)
from automl.trial import Params, TrialOutcome

MAX_TIME_FRACTION = 0.1
"""Largest fraction of a sweep's time that is kept for the refit. Above it trials are worth more
(`experiments/013-tables/auto.md`)."""
N_LIKELY_TRIALS = 5
"""Number of best trials from which the time is estimated. Ensembles of many rows have 2 to 5
members (`experiments/013-tables`)."""
START_SECONDS = 20.0
"""Seconds for making and drawing the ensemble, starting the refit and writing its file. The
ensemble took 15 s on Adult (two quiet cores, 128 trials)."""


ARGUMENTS = RefitArguments()
"""The arguments of the refit at the end of a sweep: those of the command `refit` without any."""


class TrialLengths:
    """Measures how long the trials of one sweep took from start to end."""

    def __init__(self) -> None:
        self._began: dict[int, float] = {}
        self._seconds: dict[int, float] = {}

    def began(self, trial: int, now_seconds: float) -> None:
        self._began[trial] = now_seconds

    def ended(self, trial: int, now_seconds: float) -> None:
        if (began := self._began.pop(trial, None)) is not None:
            self._seconds[trial] = self._seconds.get(trial, 0.0) + now_seconds - began

    def of(self, trials: Sequence[int]) -> list[float]:
        """Return the seconds of those trials whose length is known."""
        return [self._seconds[trial] for trial in trials if trial in self._seconds]


def seconds_to_best(trial: TrialRecord) -> float:
    """Return the seconds that the trial took to its best report, or 0 if it was interrupted, since
    what an attempt did after its last checkpoint was done twice."""
    if trial.ended is None or trial.best_step is None or trial.n_starts > 1:
        return 0.0
    share = (trial.best_step + 1) / (max(trial.last_step, trial.best_step) + 1)
    return trial.seconds * share


def makespan_seconds(lengths: Sequence[float], n_places: int) -> float:
    """Return the longest time that `n_places` trainings at a time can take, in any order.

    Graham, 1966, Bounds for Certain Multiprocessing Anomalies.
    """
    longest = max(lengths, default=0.0)
    return longest + (sum(lengths) - longest) / n_places


def reserved_refit_seconds(needed_seconds: float, limit_seconds: float) -> float:
    """Return the seconds kept for the refit from the sweep's time limit, or 0 for none."""
    kept = START_SECONDS + needed_seconds
    return kept if needed_seconds and kept <= MAX_TIME_FRACTION * limit_seconds else 0.0


def refit_time_refusal(
    needed_seconds: float, left_seconds: float | None, limit_seconds: float | None
) -> str:
    """Return why the remaining time is too short for a refit, or an empty text."""
    if left_seconds is None or needed_seconds < left_seconds:
        return ""
    return (
        f"that takes about {duration_text(needed_seconds)}, and of "
        f"study.timeout_seconds={limit_seconds:g} "
        f"{duration_text(left_seconds)} are left"
    )


@dataclass(frozen=True)
class SweepRefitResult:
    """The outcome of the refit at the end of a sweep."""

    code: int = 0
    """Exit code of the training: 130 or 143 after a signal."""
    line: str = ""
    """Line for people, empty if there is nothing to say."""
    is_unseen: bool = False
    """Whether `refit.pt` was made, and without the test rows."""


class SweepRefit(SweepFeature):
    """The refit as the last training of one sweep."""

    def __init__(self, site: SweepSite, train: RunRefit) -> None:
        self._site, self._train = site, train
        self._lengths = TrialLengths()
        """Lengths of this sweep's trials."""
        self._line = ""

    @classmethod
    def make(cls, site: SweepSite) -> SweepRefit | None:
        """Return the feature, or None where the caller or the settings want no refit."""
        if site.train_again is None or not wants_sweep_refit(site.prepared()):
            return None
        return cls(site, site.train_again)

    def trial_began(self, trial: PlannedTrial, now_seconds: float) -> None:
        self._lengths.began(trial.number, now_seconds)

    def trial_paused(self, number: int) -> None:
        self._lengths.ended(number, time.monotonic())

    def trial_ended(self, outcome: TrialOutcome) -> Sequence[str]:
        self._lengths.ended(outcome.trial, time.monotonic())
        return ()

    def kept_seconds(self) -> float:
        limit = self._config.study.timeout_seconds
        if limit is None or reason_against_refit(self._site.prepared()):
            return 0.0
        best = self._site.study.ranking(N_LIKELY_TRIALS)
        lengths = [(t.params, length) for t in best for length in self._lengths.of([t.number])]
        needed = self._needed_seconds(lengths)
        return reserved_refit_seconds(needed, limit)

    def end(self, ending: SweepEnding) -> None:
        """Train the result of a sweep with an ensemble again."""
        if ending.joined is None or ending.stop is StopReason.BROKEN:
            return
        result = self.after(read_study(ending.path))  # this record has the ensemble, too
        self._line, ending.exit_code = result.line, result.code
        ending.refit = self._site.files.refit if result.is_unseen else None

    def closing(self, ending: SweepEnding) -> Sequence[str]:
        return [self._line] if self._line else []

    def after(self, record: StudyRecord) -> SweepRefitResult:
        """Train the result of the study's `record` again, and return the outcome."""
        if is_refit_newest(self._path, record):
            where = os.path.relpath(self._site.files.refit)
            return SweepRefitResult(line=f"refit, as it was: {where}")
        try:
            with signal_receiver().interruptible():
                return self._train_result(record)
        except AutoMLError as error:
            return SweepRefitResult(line=self._not_done(str(error)))
        except StopSignal as stopped:
            return SweepRefitResult(stopped.exit_code, self._not_done(str(stopped)))

    def _train_result(self, record: StudyRecord) -> SweepRefitResult:
        config, best = self._config, record.best()
        assert best is not None, "a refit is wanted only if there is a best trial"
        if why := reason_against_refit(self._site.prepared()):
            return SweepRefitResult(line=self._not_done(why))
        refuse_unfit_settings(config, ARGUMENTS)
        winner = ensemble_to_refit(record, self._path) or best
        task = make_refit_task(config, ARGUMENTS, self._path, record, winner)
        needed = self._needed_seconds(
            [(trial.params, seconds_to_best(trial)) for trial in task.members]
        )
        if why := refit_time_refusal(needed, self._left_seconds, config.study.timeout_seconds):
            return SweepRefitResult(line=self._not_done(why))
        self._site.free_workers()  # the refit needs the memory that they hold
        task = replace(task, timeout_seconds=self._left_seconds)
        code = self._train(task, self._site.prepared())
        return SweepRefitResult(code, self._not_done("interrupted")) if code else self._done

    @property
    def _config(self) -> Config:
        return self._site.prepared().config

    @property
    def _path(self) -> Path:
        return self._site.files.path

    @property
    def _dataset(self) -> Dataset:
        dataset = self._site.prepared().dataset
        assert dataset is not None, "a refit at the end is for a table"
        return dataset

    @property
    def _done(self) -> SweepRefitResult:
        where = os.path.relpath(self._site.files.refit)
        line = f"trained again on all {self._n_rows:,} rows: {where}"
        return SweepRefitResult(line=line, is_unseen=True)

    @property
    def _n_rows(self) -> int:
        return len(self._dataset.train) + len(self._dataset.validation)

    @property
    def _left_seconds(self) -> float | None:
        limit = self._config.study.timeout_seconds
        if limit is None:
            return None
        return max(0.0, self._site.clock.end_seconds(limit) - time.monotonic())

    def _needed_seconds(self, lengths: Sequence[tuple[Params, float]]) -> float:
        """Return the time for training trials with these params and lengths again on all rows."""
        n_train = len(self._dataset.train)
        refit_lengths = [
            seconds * self._n_rows / (n_rows_of_trial(params) or n_train)
            for params, seconds in lengths
        ]
        return makespan_seconds(refit_lengths, self._site.n_places())

    def _not_done(self, why: str) -> str:
        command, there = study_command("refit", self._config.study), self._site.files.refit
        old = f"; {os.path.relpath(there)} is of before" if there.exists() else ""
        return f"not trained again on all rows ({why}{old}); do it by: {command}"


def wants_sweep_refit(prepared: PreparedStudy) -> bool:
    """Return whether a sweep with these settings ends with a refit."""
    config, dataset = prepared.config, prepared.dataset
    return (
        config.study.finishes_with(Finish.refit)
        and config.study.finishes_with(Finish.ensemble)
        and config.data.kind is DataKind.csv
        and prepared.choice is not None
        and prepared.purpose.stands_alone
        and dataset is not None
        and (not dataset.folds or config.data.time is not None)
    )


def reason_against_refit(prepared: PreparedStudy) -> str:
    """Return why a refit that is wanted cannot be made, or an empty text."""
    config = prepared.config
    if config.study.shared:
        return "several sweeps work on the study"
    if config.execution.kind is ExecutionKind.ray:
        return "it takes this machine alone"
    if config.data.sweep_rows is not None:
        return "the search had a part of the rows, and nobody knows how long all of them take"
    return ""


def is_refit_newest(path: Path, record: StudyRecord) -> bool:
    """Return whether `refit.pt` was made after the last trial ended, by a sweep that asked for no
    more trials or by a later refit."""
    try:
        written = StudyFiles(path).refit.stat().st_mtime
    except FileNotFoundError:
        return False
    return all(written > trial.ended for trial in record.trials.values() if trial.ended is not None)
