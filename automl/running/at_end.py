"""What a sweep came to, trained again on all rows at its end.

With one hold-out no model has seen the rows that judged it; with folds their mean has seen all. So
it is for one hold-out of a table of one's own, where the family is chosen too: who searches one
family alone waits for nothing that he did not ask for. Where the sweep has a time limit the time
for it is kept from the trials, as long as that is a small part of it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from automl.config import DataKind, Ensemble, ExecutionKind, RefitAtEnd
from automl.config.refit import ALL, TRAIN
from automl.errors import AutoMLError
from automl.record.directory import command_line
from automl.record.files import StudyFiles
from automl.record.study import StudyRecord
from automl.running.parts import Parts
from automl.running.prepared import Prepared
from automl.running.refit.begin import Begun, refuse_unfit
from automl.running.refit.members import begun_of
from automl.running.refit.time import (
    N_LIKELY,
    Lengths,
    kept_seconds,
    length_seconds,
    no_time,
    together_seconds,
)

TrainAgain: TypeAlias = Callable[[Begun, Prepared], int]
"""Trains it and writes `refit.pt`; returns the exit code. Raises AutoMLError where that failed."""


@dataclass(frozen=True)
class RefitEnd:
    """How it went."""

    code: int = 0
    """Of the training: 130 or 143 where a signal ended it."""
    line: str = ""
    """For people; empty: there is nothing to say."""
    is_unseen: bool = False
    """`refit.pt` was made, and not of test rows."""


class AtEnd:
    """The last step of one sweep; for the main thread."""

    def __init__(
        self, parts: Parts, train: TrainAgain | None, deadline_seconds: float | None
    ) -> None:
        """`deadline_seconds` (monotonic) is when the sweep's time is up; `train` None: whoever
        called wants no such step."""
        self._parts, self._train = parts, train
        self._deadline_seconds = deadline_seconds
        self._wanted = train is not None and is_wanted(parts.prepared)
        self.lengths = Lengths()
        """Of the trials of this sweep."""

    @property
    def trials_until_seconds(self) -> float | None:
        """When trials have to be done (monotonic), by what is known so far; None: there is no
        limit."""
        limit = self._parts.config.study.timeout_seconds
        if limit is None or self._deadline_seconds is None:
            return None
        if not self._wanted or why_not(self._parts.prepared):
            return self._deadline_seconds
        best = [trial.number for trial in self._parts.study.ranking(N_LIKELY)]
        needed = self._needed_seconds(self.lengths.of(best))
        return self._deadline_seconds - kept_seconds(needed, limit)

    def after(self, record: StudyRecord) -> RefitEnd:
        """Train what the study came to by its `record` again, and say what came of it."""
        if not self._wanted:
            return RefitEnd()
        if is_newest(self._path, record):
            where = os.path.relpath(StudyFiles(self._path).refit)
            return RefitEnd(line=f"refit, as it was: {where}")
        try:
            return self._after(record)
        except AutoMLError as error:
            return RefitEnd(line=self._not_done(str(error)))
        except KeyboardInterrupt:
            return RefitEnd(130, self._not_done("Ctrl-C"))

    def _after(self, record: StudyRecord) -> RefitEnd:
        config, best = self._parts.config, record.best()
        assert best is not None, "the caller has looked"
        assert self._train is not None, "likewise"
        if why := why_not(self._parts.prepared):
            return RefitEnd(line=self._not_done(why))
        refuse_unfit(config)
        begun = begun_of(config, self._path, record, best)
        needed = self._needed_seconds([length_seconds(one) for one in begun.members or [best]])
        if why := no_time(needed, self._left_seconds, config.study.timeout_seconds):
            return RefitEnd(line=self._not_done(why))
        self._parts.executor.close()  # what its workers hold is for those that come now
        begun = replace(begun, timeout_seconds=self._left_seconds)
        code = self._train(begun, self._parts.prepared)
        return RefitEnd(code, self._not_done("interrupted")) if code else self._done

    @property
    def _path(self) -> Path:
        return self._parts.directory.path

    @property
    def _done(self) -> RefitEnd:
        dataset = self._parts.prepared.dataset
        assert dataset is not None, "it is one of a table"
        n_rows, rows = len(dataset.train) + len(dataset.validation), self._parts.config.refit.rows
        on = "all rows, those of the test, too" if rows == ALL else f"all {n_rows:,} rows"
        where = os.path.relpath(StudyFiles(self._path).refit)
        return RefitEnd(line=f"trained again on {on}: {where}", is_unseen=rows != ALL)

    @property
    def _left_seconds(self) -> float | None:
        deadline = self._deadline_seconds
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    def _needed_seconds(self, lengths: Sequence[float]) -> float:
        """For trials of these lengths, each with more rows."""
        dataset, config = self._parts.prepared.dataset, self._parts.config
        assert dataset is not None, "it is one of a table"
        more = (len(dataset.train) + len(dataset.validation)) / len(dataset.train)
        again = [more * seconds for seconds in lengths] * config.refit.n_seeds
        return together_seconds(again, self._parts.n_places)

    def _not_done(self, why: str) -> str:
        again = command_line("refit", self._parts.config.study)
        there = StudyFiles(self._path).refit
        old = f"; {os.path.relpath(there)} is of before" if there.exists() else ""
        return f"not trained again on all rows ({why}{old}); do it by: {again}"


def is_wanted(prepared: Prepared) -> bool:
    """Whether a sweep by these settings ends so."""
    config, dataset = prepared.config, prepared.dataset
    return (
        config.study.refit is RefitAtEnd.auto
        and config.study.ensemble is Ensemble.auto
        and config.data.kind is DataKind.csv
        and config.refit.rows != TRAIN
        and prepared.choice is not None
        and prepared.plan.refit is None
        and dataset is not None
        and not dataset.folds
    )


def why_not(prepared: Prepared) -> str:
    """What speaks against it where it is wanted; empty: nothing does."""
    config = prepared.config
    if config.study.shared:
        return "several sweeps work on the study"
    if config.execution.kind is ExecutionKind.ray:
        return "it takes this machine alone"
    if config.data.sweep_rows is not None:
        return "the search had a part of the rows, and nobody knows how long all of them take"
    return ""


def is_newest(path: Path, record: StudyRecord) -> bool:
    """Whether there is a `refit.pt` from after the last trial: a sweep that asked for none more,
    or somebody since, has made it."""
    try:
        made = StudyFiles(path).refit.stat().st_mtime
    except FileNotFoundError:
        return False
    return all(made > trial.ended for trial in record.trials.values() if trial.ended is not None)
