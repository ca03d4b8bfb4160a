"""The estimators of trials with folds and of ensemble members, over any family's estimator.

A trial's folds train together as a pack (`fold_pack.py`), or by one call of an estimator per fold.
Each call has a thread of its own, and one thread at a time runs: a call stops where it reports, and
goes on when all others have reported as often. A trial therefore reports the mean over its folds
while they train, and can be pruned, interrupted and taken up again like any other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, SupportsIndex, cast

import numpy as np

from automl.config import TrainingConfig
from automl.data.dataset import Dataset
from automl.in_trial.checkpoints.last_checkpoint import GetScores, checkpoint_files
from automl.in_trial.goal import FinalReport, Patience
from automl.in_trial.seeds import fold_seed
from automl.in_trial.trial_context import CheckpointState, TrialContext, TrialStopped
from automl.models.family import EstimatorSetup, PackKey, TrialEstimator, load_heavy_side
from automl.models.judged_rows import ReportScores
from automl.models.model_file import SHARED_KEYS, make_model_state
from automl.models.networks.folds.fold_course import (
    CombineFolds,
    FoldedTrial,
    FoldMetrics,
    FoldsProgress,
)
from automl.models.predictor import MEMBERS_KEY
from automl.record.texts import fit_line
from automl.trial import TrialSpec

if TYPE_CHECKING:
    from automl.models.networks.packs.pack import PackSetup

GetState = Callable[[], CheckpointState]


class _FoldStopped(TrialStopped):
    """Raised in the call of a fold when its trial ends."""


@dataclass(frozen=True)
class _FoldReport:
    """The last report of a fold. Its functions return the fold's state while its call waits."""

    step: int
    metrics: FoldMetrics
    get_checkpoint: GetState | None
    get_best: GetState | None
    get_scores: ReportScores | None
    """The metrics and outputs behind the report; None if the family reports no outputs."""

    def member(self) -> Mapping[str, Any]:
        """Return the fold's part of `best.pt`, without the entries that all folds share."""
        get = self.get_best or self.get_checkpoint
        assert get is not None, "a family gives its model with its reports"
        return {name: value for name, value in get().items() if name not in SHARED_KEYS}


class _FoldCall:
    """The call of a `family.TrialEstimator` for one fold; leaving the `with` ends the call.

    It is the call's `ReportRecorder`, which hands the reports to the trial.
    """

    last_step: int | None = None
    """Not known: a family gives each report its step."""

    def __init__(
        self,
        estimator: TrialEstimator,
        trial: TrialContext,
        fold: int,
        state: dict[str, Any] | None,
    ) -> None:
        """Take `state`, the fold's from before an interruption."""
        self._estimator, self._state, self.set_tag = estimator, state, trial.set_tag
        folder = str(trial.directory / f"fold-{fold}")
        self._context = TrialContext(
            TrialSpec(trial.number, trial.params, folder, study_seed=0),
            devices=trial.devices,
            seed=fold_seed(trial.seed, fold),
            record=self,
            surveying=trial.surveying,
        )
        self._may_run, self._waits = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=f"fold-{fold}", daemon=True)
        self._report: _FoldReport | None = None
        self._error: BaseException | None = None
        self._stops = self._ended = False

    def __enter__(self) -> _FoldCall:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stops = True
        self._may_run.release()
        self._thread.join()

    def next(self) -> _FoldReport | None:
        """Return the next report of the call, or None at its end. Raises the call's exception."""
        self._report = None
        if not self._ended:
            self._may_run.release()
            self._waits.acquire()
        if self._error is not None:
            raise self._error
        return self._report

    # --- in the call's own thread ---------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._pause()
            self._estimator(self._context)
        except _FoldStopped:
            pass
        except BaseException as error:  # noqa: BLE001  `next` raises it in the trial's thread
            self._error = error
        finally:
            self._ended = True
            self._waits.release()

    def _pause(self) -> None:
        self._may_run.acquire()
        if self._stops:
            raise _FoldStopped

    def restore(self) -> dict[str, Any] | None:
        return self._state

    def report(
        self,
        step: SupportsIndex,
        metrics: Mapping[str, float],
        get_checkpoint: GetState | None,
        get_best: GetState | None,
        get_scores: GetScores | None = None,
    ) -> None:
        """Hand a report to the trial, and wait for the other folds.

        The trial computes its own further metrics from the outputs.
        """
        scores = get_scores if isinstance(get_scores, ReportScores) else None
        self._report = _FoldReport(
            step.__index__(), dict(metrics), get_checkpoint, get_best, scores
        )
        self._waits.release()
        self._pause()


@dataclass
class _FoldedTrialState:
    """A trial with folds between two of its reports."""

    folded: FoldedTrial
    reports: list[_FoldReport | None]
    """The newest report of each fold; None if an earlier process made it (see `states`)."""
    metrics: list[FoldMetrics]
    states: list[Any]
    """Each fold's state in an earlier process, from which its call goes on."""
    last: list[Any]
    """Each fold's model at its last report in an earlier process, after which it may have ended."""
    judged_outputs: list[Any]
    """Each fold's newest outputs for the rows that judge it; None if the metric needs none."""
    snapshot: Callable[[Any], Any]
    """Copies a model, as the trial's checkpoints do."""
    step: int = -1

    def take(self, reports: Sequence[_FoldReport | None]) -> dict[str, float]:
        """Take the folds' reports of a step, None for a fold that ended, and return the metrics."""
        for fold, report in enumerate(reports):
            if report is not None:
                self.reports[fold], self.metrics[fold] = report, report.metrics
        self.step = max(report.step for report in reports if report is not None)
        if self.folded.progress.asks_outputs:
            self.judged_outputs = [self._outputs(fold) for fold in range(len(self.reports))]
        self.folded, metrics = self.folded.after(
            self.step,
            self.metrics,
            self.judged_outputs,
            lambda fold: self.snapshot(self._member(fold)),
            self._outputs,
        )
        return metrics

    def _outputs(self, fold: int) -> Any:
        """Return the present outputs of a fold for the rows that judge it; None if unknown."""
        report = self.reports[fold]
        if report is None:
            return self.judged_outputs[fold]
        return None if report.get_scores is None else report.get_scores.get_outputs()

    def _member(self, fold: int) -> Any:
        """Return the present model of a fold."""
        report = self.reports[fold]
        return self.last[fold] if report is None else report.member()

    @property
    def can_go_on(self) -> bool:
        """Whether each fold has a state to go on from."""
        return all(
            state is not None if report is None else report.get_checkpoint is not None
            for report, state in zip(self.reports, self.states, strict=True)
        )

    def state(self) -> dict[str, Any]:
        """Return the trial's checkpoint. `FoldPack.add` can load it, too."""
        return {
            "epoch": self.step,
            "folds": [
                report.get_checkpoint() if report and report.get_checkpoint else state
                for report, state in zip(self.reports, self.states, strict=True)
            ],
            "metrics": [dict(metrics) for metrics in self.metrics],
            "last": [self._member(fold) for fold in range(len(self.reports))],
            "said": self.judged_outputs,
            **self.folded.state(),
        }


def train_by_calls(
    trial: TrialContext,
    estimators: Sequence[TrialEstimator],
    start: FoldedTrial,
    combine: CombineFolds,
    snapshot: Callable[[Any], Any],
) -> FinalReport | None:
    """Train one estimator per fold; return the final report, or None if no value was finite."""
    state = trial.restore() or {}
    nothing: list[Any] = [None] * len(estimators)
    progress = _FoldedTrialState(
        folded=start.restored(state) if state else start,
        reports=[*nothing],
        metrics=[dict(metrics) for metrics in state.get("metrics", [{}] * len(estimators))],
        states=list(state.get("folds", nothing)),
        last=list(state.get("last", nothing)),
        judged_outputs=[
            None if outputs is None else np.asarray(outputs)
            for outputs in state.get("said", nothing)
        ],
        snapshot=snapshot,
        step=int(state.get("epoch", -1)),
    )
    with ExitStack() as running:
        calls = [
            running.enter_context(_FoldCall(estimator, trial, fold, progress.states[fold]))
            for fold, estimator in enumerate(estimators)
        ]
        while not progress.folded.patience.is_over:
            reports = [call.next() for call in calls]
            if not any(reports):
                break
            metrics = progress.take(reports)
            get = progress.state if progress.can_go_on else None
            trial.report(progress.step, metrics, checkpoint=get)
    return progress.folded.final_report(combine)


logger = logging.getLogger(__name__)


def open_trial_estimator(setup: EstimatorSetup) -> TrialEstimator:
    """Return the family's estimator, ready to train on a `Dataset` or a `UserTensors`."""
    data = setup.dataset
    if not isinstance(data, Dataset):
        return _open(setup)
    return FoldsEstimator(setup) if data.folds else _open(replace(setup, dataset=data.encoded))


def _open(setup: EstimatorSetup) -> TrialEstimator:
    return load_heavy_side(type(setup.family)).open_estimator(setup)


class FoldsEstimator:
    """A `family.TrialEstimator` that trains one model per fold of its data set."""

    def __init__(self, setup: EstimatorSetup) -> None:
        self._setup = setup
        self._dataset: Dataset = setup.dataset
        self._alone: set[PackKey] = set()
        """The pack keys of trials whose folds could not train together."""

    def __call__(self, trial: TrialContext) -> FinalReport | None:
        pack = self._open_own(trial)
        if pack is not None:
            return _train(trial, pack)
        goal, (family, own) = self._setup.goal, self._setup.family.of_trial(trial.params)
        training = family.with_length(self._setup.training, self._dataset.n_train)
        limit = family.patience_epochs(own, training, self._dataset.n_train)
        start = FoldedTrial(
            FoldsProgress.from_dataset(self._dataset, goal),
            Patience(goal, limit),
            [None] * len(self._dataset.folds),
        )
        return train_by_calls(
            trial,
            self._fold_estimators,
            start,
            lambda members: make_model_state(family, self._dataset, {MEMBERS_KEY: members}),
            checkpoint_files(without_torch=not family.uses_torch).snapshot,
        )

    def open_pack(self, key: PackKey, device: str) -> PackSetup:
        """Open a pack of several trials, with a lane for each fold of each trial."""
        return cast("PackSetup", self._estimator_of_all.open_pack(key, device))

    def _open_own(self, trial: TrialContext) -> PackSetup | None:
        """Open a pack for the folds of this trial; None if they cannot train together."""
        if not self._setup.may_pack:
            return None
        key = self._setup.family.pack_key(
            trial.params, self._setup.training, on_host=trial.device == "cpu"
        )
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
    def _estimator_of_all(self) -> TrialEstimator:
        """The estimator of the whole data set with its folds."""
        return _open(self._setup)

    @cached_property
    def _fold_estimators(self) -> list[TrialEstimator]:
        """The estimators of the folds, one for each."""
        endless = replace(self._setup.goal, keeps_last=True)  # the trial says when they end
        n_folds = len(self._dataset.folds)
        return [
            _open(replace(self._setup, dataset=self._dataset.fold(n), goal=endless))
            for n in range(n_folds)
        ]


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


class MembersEstimator:
    """A `family.TrialEstimator` of ensemble members, each of which trains for its own length."""

    def __init__(self, setup: EstimatorSetup, trainings: Sequence[TrainingConfig]) -> None:
        """Take the training of each trial by its number, in place of that in `setup`."""
        self._setup, self._trainings = setup, trainings

    def __call__(self, trial: TrialContext) -> object:
        setup = replace(self._setup, training=self._trainings[trial.number])
        return open_trial_estimator(setup)(trial)

    def open_pack(self, key: PackKey, device: str) -> Any:
        raise NotImplementedError("members have no key")
