"""The ensemble while a sweep goes on: how good what has finished is together.

A process of its own asks each model once, behind the trials, and writes `ensemble.pt` in the end by
what it has in mind already. The numbers are a picture; nothing is decided by them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from automl.config import Ensemble
from automl.errors import AutoMLError
from automl.execution.answering import AnsweringProcess, NoAnswerError
from automl.record.files import StudyFiles
from automl.running.ensemble import LEAST_MODELS, build_of, in_child, score_of, worth_joining
from automl.running.prepared import Prepared
from automl.running.view import EnsembleRow, FamilyRow
from automl.search.standings import RankedTrial
from automl.training.ensemble.words import EnsembleFile, Grow, Growing, Grown, Made
from automl.trial import CheckpointKind, Entry

GROW = "automl.training.ensemble.grow:open_growing"
PAUSE_SECONDS = 5.0
SHARE = 0.05
"""Of the time, that making it again takes at most, new models aside, which are asked anyway."""
MAX_NUMBERS = 2_000_000
"""That a model gives for all rows (16 MB): of more, the ensemble is made at the end alone."""

logger = logging.getLogger(__name__)


class GrowingEnsemble:
    """Of one sweep; for the main thread. Close it."""

    def __init__(self, prepared: Prepared, path: Path) -> None:
        """Of the study at `path`."""
        self._prepared, self._files = prepared, StudyFiles(path)
        self._process: AnsweringProcess | None = None
        self.can_grow = grows(prepared)
        """Else it is made at the end alone."""
        self._asked: Sequence[int] = ()
        self._not_before_seconds = 0.0
        self._grown: Grown | None = None

    def look(self, ranking: Sequence[RankedTrial], now_seconds: float) -> None:
        """Take an answer, and ask again where others have finished; never waits."""
        try:
            self._take(now_seconds)
            self._ask(ranking, now_seconds)
        except (NoAnswerError, AutoMLError) as error:  # it is tried anew at the end
            logger.info("the ensemble is made at the end alone: %r", error)
            self.can_grow = False
            self.close()

    def row(self, ranking: Sequence[RankedTrial], metric: str) -> EnsembleRow | None:
        """How good it is by what is known; None: nothing is."""
        choice = self._prepared.choice
        if self._grown is None or not self._grown.members or choice is None:
            return None
        return row_of(self._grown, ranking, metric, choice)

    def write(self, asked: EnsembleFile) -> Made:
        """Write the file. Raises AutoMLError."""
        if self._process is not None:
            try:
                made = self._process.answer(asked)
            except NoAnswerError:
                logger.info("the process of the ensemble has died; another makes it")
            else:
                assert isinstance(made, Made)
                return made
        return in_child(asked)

    def close(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None

    def _take(self, now_seconds: float) -> None:
        found = None if self._process is None else self._process.poll()
        if isinstance(found, Grown):
            self._grown = found
            self._not_before_seconds = now_seconds + wait_seconds(found.seconds)

    def _ask(self, ranking: Sequence[RankedTrial], now_seconds: float) -> None:
        busy = self._process is not None and self._process.busy
        if busy or now_seconds < self._not_before_seconds:
            return
        numbers = worth_joining(ranking)
        if numbers == self._asked or len(numbers) < LEAST_MODELS:
            return
        self._asked = numbers
        paths = {n: self._files.checkpoint(n, CheckpointKind.BEST) for n in numbers}
        models = {n: str(path) for n, path in paths.items() if path.exists()}
        if len(models) < LEAST_MODELS:
            return
        if self._process is None:
            dataset = self._prepared.dataset
            assert dataset is not None, "it is one of a table"
            growing = Growing(dataset, build_of(self._prepared))
            self._process = AnsweringProcess(Entry(GROW, growing))
        self._process.ask(Grow(models))


def grows(prepared: Prepared) -> bool:
    """Whether the sweep ends with an ensemble, and its rows are few enough to be kept in mind."""
    dataset = prepared.dataset
    if dataset is None or prepared.choice is None or prepared.plan.refit is not None:
        return False
    is_small = len(dataset.judged) * dataset.n_outputs <= MAX_NUMBERS
    return is_small and prepared.config.study.ensemble is Ensemble.auto


def wait_seconds(took_seconds: float) -> float:
    """Before it is made again."""
    return max(PAUSE_SECONDS, took_seconds / SHARE)


def row_of(grown: Grown, ranking: Sequence[RankedTrial], metric: str, choice: str) -> EnsembleRow:
    """The score by the study's metric, and what each family has in it, the best family first."""
    best: dict[str, float] = {}
    family: dict[int, str] = {}
    for trial in ranking:
        name = family[trial.number] = str(trial.params.get(choice))
        best.setdefault(name, trial.value)
    weights: Mapping[str, float] = {
        name: sum(w for n, w in grown.members.items() if family.get(n) == name) for name in best
    }
    name, value = score_of(grown.scores, metric)
    rows = tuple(FamilyRow(name, best[name], weights[name]) for name in best)
    return EnsembleRow(name, value, len(grown.members), rows)
