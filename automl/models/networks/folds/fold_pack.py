"""Folds as lanes of a pack: what `packs/pack.py` trains as one trial has a lane for each fold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from automl.data.dataset import Dataset
from automl.data.scoring.metrics import Floats
from automl.models.networks.folds.fold_course import (
    CombineFolds,
    FoldsProgress,
    final_report_of_folds,
)
from automl.models.networks.network import NetworkDescription
from automl.models.networks.network_family import TrainingParams
from automl.models.networks.packs.trainer import PackTrainer
from automl.models.networks.trainer import DivergedError, TrainingProblem
from automl.objectives.checkpoints import torch_checkpoint
from automl.objectives.goal import FinalReport, Patience
from automl.objectives.seeds import fold_seed


@dataclass
class _PackedFoldsTrial:
    """A trial in the pack."""

    epoch: int
    """The one to train next."""
    course: FoldsProgress
    patience: Patience
    kept: list[Any]
    """Each fold's model as it is taken."""


class FoldPack:
    """See `packs.pack.TrialPackTrainer`. Lanes are numbered by trial and fold."""

    def __init__(
        self,
        lanes: PackTrainer,
        dataset: Dataset,
        member: Callable[[NetworkDescription, Mapping[str, Any]], Mapping[str, Any]],
        whole: CombineFolds,
    ) -> None:
        """`member`: what `best.pt` holds of one network with its weights."""
        self._lanes, self._member, self._whole = lanes, member, whole
        self._start = FoldsProgress.of(dataset, self._problem.goal)
        self._n_folds, self._n_rows = len(dataset.folds), dataset.n_train
        self._trials: dict[int, _PackedFoldsTrial] = {}
        lanes.keeps_outputs = self._start.keeps_outputs

    @property
    def _problem(self) -> TrainingProblem:
        return self._lanes.problem

    def add(
        self, number: int, params: TrainingParams, seed: int, state: Mapping[str, Any] | None
    ) -> int:
        """See `PackTrainer.add`."""
        trial = _PackedFoldsTrial(
            0, self._start, self._problem.patience(params, self._n_rows), [None] * self._n_folds
        )
        if state is not None:
            trial.epoch = int(state["epoch"]) + 1
            trial.course = self._start.restored(state["course"])
            trial.patience = trial.patience.restored(state)
            trial.kept = list(state["kept"])
        added = []
        try:
            for fold, lane in self._lanes_of(number):
                own = None if state is None else state["folds"][fold]
                self._lanes.add(lane, params, fold_seed(seed, fold), own, fold)
                added.append(lane)
        except BaseException:
            for lane in added:
                self._lanes.remove(lane)
            raise
        self._trials[number] = trial
        return trial.epoch

    def remove(self, number: int) -> None:
        """Take a trial out; its state can be had until the next epoch."""
        del self._trials[number]
        for _, lane in self._lanes_of(number):
            self._lanes.remove(lane)

    def run_epoch(self) -> dict[int, dict[str, float] | DivergedError]:
        """See `PackTrainer.run_epoch`: metrics of all the rows that judge a trial's folds."""
        ended = self._lanes.train_epoch()
        found = {
            number: self._after(number, trial, ended) for number, trial in self._trials.items()
        }
        metrics: dict[int, dict[str, float] | DivergedError] = {}
        for number, after in found.items():
            if isinstance(after, DivergedError):
                metrics[number] = after
            else:
                self._trials[number], metrics[number] = after
        self._lanes.settle()  # until here it can be taken back
        return metrics

    def has_stopped(self, number: int) -> bool:
        """Whether a trial waited long enough for a better value."""
        return self._trials[number].patience.is_over

    def scores(self, number: int) -> None:
        """More metrics of one fold are none of the trial's."""
        return None

    def state(self, number: int, epoch: int) -> dict[str, Any]:
        """All that is needed to go on after `epoch`, here or one call after another."""
        trial = self._trials[number]
        return {
            "epoch": epoch,
            "folds": [self._lanes.state(lane, epoch) for _, lane in self._lanes_of(number)],
            "course": trial.course.state(),
            "kept": trial.kept,
            **trial.patience.state(),
        }

    def told(self, number: int) -> FinalReport | None:
        """What a trial that has ended comes to; None: no value of it was finite."""
        trial = self._trials[number]
        return final_report_of_folds(trial.course, trial.kept, self._whole)

    def rewind(self) -> None:
        """See `PackTrainer.rewind`."""
        self._lanes.rewind()

    def _after(
        self,
        number: int,
        trial: _PackedFoldsTrial,
        ended: Mapping[int, dict[str, float] | DivergedError],
    ) -> tuple[_PackedFoldsTrial, dict[str, float]] | DivergedError:
        """The trial after an epoch, and what it reports."""
        by_fold: list[dict[str, float]] = []
        for _, lane in self._lanes_of(number):
            metrics = ended[lane]
            if isinstance(metrics, DivergedError):
                return metrics
            by_fold.append(metrics)
        outputs = self._outputs(number) if self._start.asks_outputs else []
        course, now = trial.course.after(trial.epoch, by_fold, outputs)
        kept = list(trial.kept)
        for fold in now:
            lane = number * self._n_folds + fold
            member = self._member(self._lanes.network(lane), self._lanes.weights(lane))
            kept[fold] = torch_checkpoint.snapshot(member)
            if course.keeps_outputs:
                course = course.saying(fold, self._lanes.judged_outputs(lane))
        report = course.pooled(by_fold, outputs)
        return _PackedFoldsTrial(
            trial.epoch + 1, course, trial.patience.after(report), kept
        ), report

    def _outputs(self, number: int) -> list[Floats]:
        """What a trial's folds say now of the rows that judge them."""
        return [self._lanes.judged_outputs(lane) for _, lane in self._lanes_of(number)]

    def _lanes_of(self, number: int) -> list[tuple[int, int]]:
        """Each fold with the number of its lane."""
        return [(fold, number * self._n_folds + fold) for fold in range(self._n_folds)]
