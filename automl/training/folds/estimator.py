"""An estimator of trials with folds, over any family's: together as a pack, or call by call.

Loads torch where the family does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

from automl.data.dataset import Dataset
from automl.record.texts import fit_line
from automl.training import plain_checkpoint
from automl.training.family import Estimator, PackKey, heavy_side
from automl.training.folds.calls import train_by_calls
from automl.training.folds.course import Course
from automl.training.goal import Goal
from automl.training.model_state import model_state
from automl.training.objective import TrialContext
from automl.training.patience import Patience
from automl.training.plan import TrainingPlan
from automl.training.predictor import MEMBERS
from automl.training.told import Told

if TYPE_CHECKING:
    from automl.training.packs.pack import OpenPack

logger = logging.getLogger(__name__)


def open_estimator(
    plan: TrainingPlan, data: Any, *, packs_large: bool, n_threads: int
) -> Estimator:
    """The family's, made ready to train on a `Dataset` or an `OwnData`."""
    if isinstance(data, Dataset) and data.folds:
        return FoldsEstimator(plan, data, packs_large=packs_large, n_threads=n_threads)
    return _open(plan, data, plan.goal, packs_large=packs_large, n_threads=n_threads)


def _open(
    plan: TrainingPlan, data: Any, goal: Goal, *, packs_large: bool, n_threads: int
) -> Estimator:
    return heavy_side(type(plan.family)).open_estimator(
        plan.family, data, plan.training, goal, packs_large=packs_large, n_threads=n_threads
    )


class FoldsEstimator:
    """See `family.Estimator`."""

    def __init__(
        self, plan: TrainingPlan, dataset: Dataset, *, packs_large: bool, n_threads: int = 1
    ) -> None:
        self._plan, self._dataset = plan, dataset
        self._open = partial(_open, plan, packs_large=packs_large, n_threads=n_threads)
        self._alone: set[PackKey] = set()
        """Keys of what could not train together."""

    def __call__(self, trial: TrialContext) -> Told | None:
        opened = self._open_own(trial)
        if opened is None:
            return train_by_calls(
                trial,
                self._folds,
                Course.of(self._dataset, self._plan.goal),
                self._patience(trial),
                partial(self._mean, trial),
                self._snapshot_of(trial),
            )
        return _train(trial, opened)

    def open_pack(self, key: PackKey, device: str) -> OpenPack:
        """A pack of several trials, with a lane for each fold of each."""
        return cast("OpenPack", self._whole.open_pack(key, device))

    def _open_own(self, trial: TrialContext) -> OpenPack | None:
        """A pack for the folds of this trial; None: they cannot train together."""
        on_host = trial.device == "cpu"
        key = self._plan.pack_key(trial.params, on_host=on_host)
        if key is None or key in self._alone:
            return None
        try:
            return self.open_pack(key.of_one_trial(), trial.device)
        except Exception as error:  # noqa: BLE001  alone each tells what is wrong with it
            self._alone.add(key)
            reason = fit_line(f"{type(error).__name__}: {error}")
            logger.warning("folds train one after another: %s", reason)
            return None

    @cached_property
    def _whole(self) -> Estimator:
        """That of the data with its folds."""
        return self._open(self._dataset, self._plan.goal)

    @cached_property
    def _folds(self) -> list[Estimator]:
        """One for each fold."""
        endless = replace(self._plan.goal, keeps_last=True)  # the trial says when they end
        n_folds = len(self._dataset.folds)
        return [self._open(self._dataset.fold(n), endless) for n in range(n_folds)]

    def _snapshot_of(self, trial: TrialContext) -> Callable[[Any], Any]:
        """What copies its models, as its checkpoints are written."""
        if not self._plan.trial_uses_torch(trial.params):
            return plain_checkpoint.snapshot
        from automl.training import checkpoint

        return checkpoint.snapshot

    def _patience(self, trial: TrialContext) -> Patience:
        family, own = self._plan.family.of(trial.params)
        training = family.trained(self._plan.training)
        n_rows = self._dataset.n_train
        return Patience(self._plan.goal, family.patience_epochs(own, training, n_rows))

    def _mean(self, trial: TrialContext, members: Sequence[Any]) -> dict[str, Any]:
        family = self._plan.family.of(trial.params)[0]
        return model_state(family, self._dataset, {MEMBERS: members})


def _train(trial: TrialContext, opened: OpenPack) -> Told | None:
    """One trial by itself, whose folds are a pack."""
    from automl.training.trainer import DivergedError

    trainer, number = opened.trainer, trial.number
    epoch = trainer.add(number, opened.params(trial.params), trial.seed, trial.restore())
    while epoch < opened.n_epochs and not trainer.has_stopped(number):
        metrics = trainer.run_epoch()[number]
        if isinstance(metrics, DivergedError):
            raise metrics
        trial.report(epoch, metrics, checkpoint=partial(trainer.state, number, epoch))
        epoch += 1
    return opened.told(number)
