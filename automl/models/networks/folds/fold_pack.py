"""Trains the folds of trials as lanes of a pack, one lane for each fold of each trial.

To `packs/pack.py` the folds are still one trial. The lengths of the folds are chosen in
`fold_course.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from automl.data.dataset import Dataset
from automl.data.scoring.metrics import Floats
from automl.data.target_encoding import encoding_entry
from automl.in_trial.checkpoints import torch_checkpoint
from automl.in_trial.goal import FinalReport
from automl.in_trial.seeds import fold_seed
from automl.models.networks.folds.fold_course import CombineFolds, FoldedTrial, FoldsProgress
from automl.models.networks.network import NetworkDescription
from automl.models.networks.network_family import TrainingParams
from automl.models.networks.packs.trainer import PackTrainer
from automl.models.networks.trainer import DivergedError, TrainingProblem


@dataclass
class _PackedFoldsTrial:
    """A trial with folds while it is in the pack."""

    epoch: int
    """The epoch to train next."""
    folded: FoldedTrial


class FoldPack:
    """Trains trials with folds by their numbers, with the methods of `PackTrainer`."""

    def __init__(
        self,
        lanes: PackTrainer,
        dataset: Dataset,
        member: Callable[[NetworkDescription, Mapping[str, Any]], Mapping[str, Any]],
        combine: CombineFolds,
    ) -> None:
        """Take `member`, which returns the part of `best.pt` for one network with its weights."""
        self._lanes, self._member, self._combine = lanes, member, combine
        self._dataset = dataset
        self._start = FoldsProgress.from_dataset(dataset, self._problem.goal)
        self._n_folds, self._n_rows = len(dataset.folds), dataset.n_train
        self._trials: dict[int, _PackedFoldsTrial] = {}
        lanes.keeps_outputs = self._start.keeps_outputs

    @property
    def _problem(self) -> TrainingProblem:
        return self._lanes.problem

    def add(
        self, number: int, params: TrainingParams, seed: int, state: Mapping[str, Any] | None
    ) -> int:
        """Give a lane to each fold of a trial; return the epoch to go on with."""
        patience = self._problem.patience(params, self._n_rows)
        trial = _PackedFoldsTrial(0, FoldedTrial(self._start, patience, [None] * self._n_folds))
        if state is not None:
            trial = _PackedFoldsTrial(int(state["epoch"]) + 1, trial.folded.restored(state))
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
        """Remove a trial; its state stays readable until the next epoch."""
        del self._trials[number]
        for _, lane in self._lanes_of(number):
            self._lanes.remove(lane)

    def run_epoch(self) -> dict[int, dict[str, float] | DivergedError]:
        """Train an epoch, and return each trial's metrics or its divergence."""
        ended = self._lanes.train_epoch()
        results = {
            number: self._after(number, trial, ended) for number, trial in self._trials.items()
        }
        metrics: dict[int, dict[str, float] | DivergedError] = {}
        for number, after in results.items():
            if isinstance(after, DivergedError):
                metrics[number] = after
            else:
                self._trials[number], metrics[number] = after
        self._lanes.settle()  # until here `rewind` can undo the epoch
        return metrics

    def has_stopped(self, number: int) -> bool:
        """Return whether a trial has waited long enough for a better value."""
        return self._trials[number].folded.patience.is_over

    def scores(self, number: int) -> None:
        """Return None: further metrics of single folds are no metrics of the trial."""
        return None

    def state(self, number: int, epoch: int) -> dict[str, Any]:
        """Return a state that suffices to go on after `epoch`, here or by `fold_estimator.py`."""
        folds = [self._lanes.state(lane, epoch) for _, lane in self._lanes_of(number)]
        return {"epoch": epoch, "folds": folds, **self._trials[number].folded.state()}

    def final_report(self, number: int) -> FinalReport | None:
        """Return the final report of a trial at its end; None if no value was finite."""
        return self._trials[number].folded.final_report(self._combine)

    def rewind(self) -> None:
        """Take all lanes back to the start of an epoch that broke."""
        self._lanes.rewind()

    def _after(
        self,
        number: int,
        trial: _PackedFoldsTrial,
        ended: Mapping[int, dict[str, float] | DivergedError],
    ) -> tuple[_PackedFoldsTrial, dict[str, float]] | DivergedError:
        """Return the trial after an epoch with the metrics that it reports, or its divergence."""
        by_fold: list[dict[str, float]] = []
        for _, lane in self._lanes_of(number):
            metrics = ended[lane]
            if isinstance(metrics, DivergedError):
                return metrics
            by_fold.append(metrics)
        get_model, get_outputs = partial(self._model, number), partial(self._outputs, number)
        outputs = []
        if self._start.asks_outputs:
            outputs = [get_outputs(fold) for fold in range(self._n_folds)]
        folded, report = trial.folded.after(trial.epoch, by_fold, outputs, get_model, get_outputs)
        return _PackedFoldsTrial(trial.epoch + 1, folded), report

    def _model(self, number: int, fold: int) -> Any:
        """Return a copy of a fold's present model."""
        lane = number * self._n_folds + fold
        member = self._member(self._lanes.network(lane), self._lanes.weights(lane))
        encoding = None
        if self._dataset.columns.encoded:
            encoding = self._dataset.fold(fold).encoding
        return torch_checkpoint.snapshot({**member, **encoding_entry(encoding)})

    def _outputs(self, number: int, fold: int) -> Floats:
        """Return the present outputs of a fold for the rows that judge it."""
        return self._lanes.judged_outputs(number * self._n_folds + fold)

    def _lanes_of(self, number: int) -> list[tuple[int, int]]:
        """Return each fold of a trial with the number of its lane."""
        return [(fold, number * self._n_folds + fold) for fold in range(self._n_folds)]
