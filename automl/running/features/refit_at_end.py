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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from automl.config import AutoSetting, DataKind, ExecutionKind
from automl.config.commands import ALL_ROWS, TRAIN_ROWS
from automl.errors import AutoMLError
from automl.record.signal_receiver import StopSignal, signal_receiver
from automl.record.study_directory import study_command
from automl.record.study_files import StudyFiles
from automl.record.study_record import StudyRecord
from automl.record.texts import duration_text
from automl.record.trial_record import TrialRecord
from automl.running.opening.parts import SweepParts
from automl.running.prepare.prepared_config import PreparedStudy
from automl.running.prepare.refit_task import RefitTask, make_refit_task, refuse_unfit_settings

MAX_TIME_FRACTION = 0.1
"""Largest fraction of a sweep's time that is kept for the refit. Above it trials are worth more
(`experiments/013-tables/auto.md`)."""
N_LIKELY_TRIALS = 5
"""Number of best trials from which the time is estimated. Ensembles of many rows have 2 to 5
members (`experiments/013-tables`)."""
START_SECONDS = 20.0
"""Seconds for making and drawing the ensemble, starting the refit and writing its file. The
ensemble took 15 s on Adult (two quiet cores, 128 trials)."""


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


RunRefit: TypeAlias = Callable[[RefitTask, PreparedStudy], int]
"""Trains the refit and writes `refit.pt`. Returns the exit code. Raises AutoMLError if it
failed."""


CLOSING_FRACTION = 0.5
"""Time for the end of a sweep over any family, as a multiple of its loading time: 4 s and 8 s on
white wine on a busy machine."""
MIN_TRIALS_FRACTION = 0.5
"""The least fraction of a sweep's time limit that its trials get, however long it loaded."""


@dataclass(frozen=True)
class SweepRefitResult:
    """The outcome of the refit at the end of a sweep."""

    code: int = 0
    """Exit code of the training: 130 or 143 after a signal."""
    line: str = ""
    """Line for people, empty if there is nothing to say."""
    is_unseen: bool = False
    """Whether `refit.pt` was made, and without the test rows."""


class SweepRefit:
    """The refit as the last step of one sweep. For the main thread."""

    def __init__(self, parts: SweepParts, train: RunRefit | None, called_seconds: float) -> None:
        """Plan the step for a sweep that was called at `called_seconds` (monotonic).

        `train`: None if the caller wants no refit.
        """
        self._parts, self._train = parts, train
        self._called_seconds = called_seconds
        self._loaded_seconds = time.monotonic()
        self._closing_seconds = 0.0
        if parts.prepared.choice is not None:
            self._closing_seconds = CLOSING_FRACTION * (self._loaded_seconds - called_seconds)
        self._wanted = train is not None and wants_sweep_refit(parts.prepared)
        self.lengths = TrialLengths()
        """Lengths of this sweep's trials."""

    @property
    def trials_until_seconds(self) -> float | None:
        """When trials have to be done (monotonic), by what is known so far. None without a limit.

        If an ensemble follows, time is kept for the end of the sweep in proportion to the time that
        its loading took: on a busy machine both take longer.
        """
        limit, deadline = self._parts.config.study.timeout_seconds, self._deadline_seconds
        if limit is None or deadline is None:
            return None
        kept = max(self._closing_seconds, self._kept_for_refit_seconds(limit))
        return trials_until(deadline - kept, self._loaded_seconds, limit)

    @property
    def _deadline_seconds(self) -> float | None:
        limit = self._parts.config.study.timeout_seconds
        return None if limit is None else self._called_seconds + limit

    def _kept_for_refit_seconds(self, limit: float) -> float:
        if not self._wanted or reason_against_refit(self._parts.prepared):
            return 0.0
        best = [trial.number for trial in self._parts.study.ranking(N_LIKELY_TRIALS)]
        needed = self._needed_seconds(self.lengths.of(best))
        return reserved_refit_seconds(needed, limit)

    def after(self, record: StudyRecord) -> SweepRefitResult:
        """Train the result of the study's `record` again, and return the outcome."""
        if not self._wanted:
            return SweepRefitResult()
        if is_refit_newest(self._path, record):
            where = os.path.relpath(StudyFiles(self._path).refit)
            return SweepRefitResult(line=f"refit, as it was: {where}")
        try:
            with signal_receiver().interruptible():
                return self._train_result(record)
        except AutoMLError as error:
            return SweepRefitResult(line=self._not_done(str(error)))
        except StopSignal as stopped:
            return SweepRefitResult(stopped.exit_code, self._not_done(str(stopped)))

    def _train_result(self, record: StudyRecord) -> SweepRefitResult:
        config, best = self._parts.config, record.best()
        assert best is not None, "a refit is wanted only if there is a best trial"
        assert self._train is not None, "a refit is wanted only if the caller gave `train`"
        if why := reason_against_refit(self._parts.prepared):
            return SweepRefitResult(line=self._not_done(why))
        refuse_unfit_settings(config)
        task = make_refit_task(config, self._path, record, best)
        needed = self._needed_seconds([seconds_to_best(trial) for trial in task.members])
        if why := refit_time_refusal(needed, self._left_seconds, config.study.timeout_seconds):
            return SweepRefitResult(line=self._not_done(why))
        self._parts.executor.close()  # the refit needs the memory that the workers hold
        task = replace(task, timeout_seconds=self._left_seconds)
        code = self._train(task, self._parts.prepared)
        return SweepRefitResult(code, self._not_done("interrupted")) if code else self._done

    @property
    def _path(self) -> Path:
        return self._parts.directory.path

    @property
    def _done(self) -> SweepRefitResult:
        dataset = self._parts.prepared.dataset
        assert dataset is not None, "a refit at the end is for a table"
        n_rows, rows = len(dataset.train) + len(dataset.validation), self._parts.config.refit.rows
        on = "all rows, those of the test, too" if rows == ALL_ROWS else f"all {n_rows:,} rows"
        where = os.path.relpath(StudyFiles(self._path).refit)
        return SweepRefitResult(line=f"trained again on {on}: {where}", is_unseen=rows != ALL_ROWS)

    @property
    def _left_seconds(self) -> float | None:
        deadline = self._deadline_seconds
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    def _needed_seconds(self, lengths: Sequence[float]) -> float:
        """Return the time for training trials of these lengths again on more rows."""
        dataset, config = self._parts.prepared.dataset, self._parts.config
        assert dataset is not None, "a refit at the end is for a table"
        more = (len(dataset.train) + len(dataset.validation)) / len(dataset.train)
        refit_lengths = [more * seconds for seconds in lengths] * config.refit.n_seeds
        return makespan_seconds(refit_lengths, self._parts.n_places)

    def _not_done(self, why: str) -> str:
        command = study_command("refit", self._parts.config.study)
        there = StudyFiles(self._path).refit
        old = f"; {os.path.relpath(there)} is of before" if there.exists() else ""
        return f"not trained again on all rows ({why}{old}); do it by: {command}"


def trials_until(wanted_seconds: float, loaded_seconds: float, limit_seconds: float) -> float:
    """Return when trials have to be done: as wanted, but not before they had `MIN_TRIALS_FRACTION`
    of the
    limit."""
    return max(wanted_seconds, loaded_seconds + MIN_TRIALS_FRACTION * limit_seconds)


def wants_sweep_refit(prepared: PreparedStudy) -> bool:
    """Return whether a sweep with these settings ends with a refit."""
    config, dataset = prepared.config, prepared.dataset
    return (
        config.study.refit is AutoSetting.auto
        and config.study.ensemble is AutoSetting.auto
        and config.data.kind is DataKind.csv
        and config.refit.rows != TRAIN_ROWS
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
