"""The estimators of trials with folds and of ensemble members, over any family's estimator.

A trial's folds train together as a pack (`fold_pack.py`), or call by call (`fold_calls.py`). The
members of an ensemble train again, each at its own length (`training_plan.MemberTraining`). The
outputs of a trained model for the rows that judged its trial are computed here, too. Torch is
loaded only if the family loads it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from automl.data.dataset import Dataset
from automl.models.family import PackKey, TrainedModel, TrialEstimator, load_heavy_side
from automl.models.mean_model import MeanModel, mean_outputs
from automl.models.model_file import make_model_state
from automl.models.networks.folds.fold_calls import train_by_calls
from automl.models.networks.folds.fold_course import FoldsProgress
from automl.models.predictor import MEMBERS_KEY
from automl.objectives.checkpoints import plain_checkpoint
from automl.objectives.goal import FinalReport, Patience, StudyGoal
from automl.objectives.training_plan import TrainingPlan
from automl.objectives.trial_context import TrialContext
from automl.record.texts import fit_line

if TYPE_CHECKING:
    from automl.models.networks.packs.pack import PackSetup

logger = logging.getLogger(__name__)


def open_trial_estimator(
    plan: TrainingPlan, data: Any, *, packs_large: bool, n_threads: int
) -> TrialEstimator:
    """Return the family's estimator, ready to train on a `Dataset` or a `UserTensors`."""
    if isinstance(data, Dataset) and data.folds:
        return FoldsEstimator(plan, data, packs_large=packs_large, n_threads=n_threads)
    return _open(plan, data, plan.goal, packs_large=packs_large, n_threads=n_threads)


def _open(
    plan: TrainingPlan, data: Any, goal: StudyGoal, *, packs_large: bool, n_threads: int
) -> TrialEstimator:
    return load_heavy_side(type(plan.family)).open_estimator(
        plan.family, data, plan.training, goal, packs_large=packs_large, n_threads=n_threads
    )


class FoldsEstimator:
    """A `family.TrialEstimator` that trains one model per fold of its data set."""

    def __init__(
        self, plan: TrainingPlan, dataset: Dataset, *, packs_large: bool, n_threads: int = 1
    ) -> None:
        self._plan, self._dataset = plan, dataset
        self._open = partial(_open, plan, packs_large=packs_large, n_threads=n_threads)
        self._alone: set[PackKey] = set()
        """The pack keys of trials whose folds could not train together."""

    def __call__(self, trial: TrialContext) -> FinalReport | None:
        opened = self._open_own(trial)
        if opened is None:
            return train_by_calls(
                trial,
                self._fold_estimators,
                FoldsProgress.of(self._dataset, self._plan.goal),
                self._patience(trial),
                partial(self._mean, trial),
                self._snapshot_of(trial),
            )
        return _train(trial, opened)

    def open_pack(self, key: PackKey, device: str) -> PackSetup:
        """Open a pack of several trials, with a lane for each fold of each trial."""
        return cast("PackSetup", self._table_estimator.open_pack(key, device))

    def _open_own(self, trial: TrialContext) -> PackSetup | None:
        """Open a pack for the folds of this trial; None if they cannot train together."""
        on_host = trial.device == "cpu"
        key = self._plan.pack_key(trial.params, on_host=on_host)
        if key is None or key in self._alone:
            return None
        try:
            return self.open_pack(key.of_one_trial(), trial.device)
        except Exception as error:  # noqa: BLE001  trained alone, each fold raises its own error
            self._alone.add(key)
            reason = fit_line(f"{type(error).__name__}: {error}")
            logger.warning("folds train one after another: %s", reason)
            return None

    @cached_property
    def _table_estimator(self) -> TrialEstimator:
        """The estimator of the whole data set with its folds."""
        return self._open(self._dataset, self._plan.goal)

    @cached_property
    def _fold_estimators(self) -> list[TrialEstimator]:
        """The estimators of the folds, one for each."""
        endless = replace(self._plan.goal, keeps_last=True)  # the trial says when they end
        n_folds = len(self._dataset.folds)
        return [self._open(self._dataset.fold(n), endless) for n in range(n_folds)]

    def _snapshot_of(self, trial: TrialContext) -> Callable[[Any], Any]:
        """Return the function that copies the trial's models, as its checkpoints are written."""
        if not self._plan.trial_uses_torch(trial.params):
            return plain_checkpoint.snapshot
        from automl.objectives.checkpoints import torch_checkpoint

        return torch_checkpoint.snapshot

    def _patience(self, trial: TrialContext) -> Patience:
        family, own = self._plan.family.of_trial(trial.params)
        training = family.with_length(self._plan.training)
        n_rows = self._dataset.n_train
        return Patience(self._plan.goal, family.patience_epochs(own, training, n_rows))

    def _mean(self, trial: TrialContext, members: Sequence[Any]) -> dict[str, Any]:
        family = self._plan.family.of_trial(trial.params)[0]
        return make_model_state(family, self._dataset, {MEMBERS_KEY: members})


def _train(trial: TrialContext, opened: PackSetup) -> FinalReport | None:
    """Train one trial by itself, whose folds are a pack."""
    from automl.models.networks.trainer import DivergedError

    trainer, number = opened.trainer, trial.number
    epoch = trainer.add(number, opened.params(trial.params), trial.seed, trial.restore())
    while epoch < opened.n_epochs and not trainer.has_stopped(number):
        metrics = trainer.run_epoch()[number]
        if isinstance(metrics, DivergedError):
            raise metrics
        trial.report(epoch, metrics, checkpoint=partial(trainer.state, number, epoch))
        epoch += 1
    return opened.final_report(number)


def judged_outputs(model: TrainedModel, dataset: Dataset) -> npt.NDArray[np.float64]:
    """Return the outputs (N, C) for the rows of `dataset.judged`, as `TrainedModel.outputs`.

    In a trial with folds each row gets the mean output of the models that never saw it, one per
    division of the rows. An ensemble of trials with folds returns the weighted mean of the trials'
    outputs. Raises ValueError for a model that was not trained on these folds.
    """
    if not dataset.folds:
        return model.outputs(dataset.columns, dataset.validation.rows)
    members, n_folds = (model.members if isinstance(model, MeanModel) else ()), len(dataset.folds)
    if not members or len(members) % n_folds:
        raise ValueError(f"{max(1, len(members))} models for {n_folds} folds")
    begins = range(0, len(members), n_folds)
    by_trial = [_outputs_of_trial(members[begin : begin + n_folds], dataset) for begin in begins]
    if len(by_trial) == 1:
        return by_trial[0]
    assert isinstance(model, MeanModel), "it has members"
    weights = [sum(model.weights[begin : begin + n_folds]) for begin in begins]
    return mean_outputs(np.stack(by_trial), dataset.task, weights)


def _outputs_of_trial(members: Sequence[TrainedModel], dataset: Dataset) -> npt.NDArray[np.float64]:
    """Return the outputs (N, C) of one trial's models, one model per fold."""
    n_repeats = max(fold.repeat for fold in dataset.folds) + 1
    outputs = np.empty((n_repeats, len(dataset.train), dataset.n_outputs))
    for fold, member in zip(dataset.folds, members, strict=True):
        rows = dataset.train.rows.taking(fold.judged)
        outputs[fold.repeat, fold.judged] = member.outputs(dataset.columns, rows)
    judged = outputs[:, dataset.judged_places]  # the same in each division
    return mean_outputs(judged, dataset.task)


class MembersEstimator:
    """A `family.TrialEstimator` of ensemble members, which opens an estimator for each trial.

    The trials share no estimator because each trains for its own length.
    """

    def __init__(self, plan: TrainingPlan, data: Any, *, n_threads: int) -> None:
        self._plan, self._data, self._n_threads = plan, data, n_threads

    def __call__(self, trial: TrialContext) -> object:
        refit = self._plan.refit
        assert refit is not None, "the caller looked"
        training = refit.training_of_trial(trial.number, self._plan.training)
        plan = replace(self._plan, training=training)
        estimator = open_trial_estimator(
            plan, self._data, packs_large=False, n_threads=self._n_threads
        )
        return estimator(trial)

    def open_pack(self, key: PackKey, device: str) -> Any:
        raise NotImplementedError("members have no key")
