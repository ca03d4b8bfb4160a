"""Folds of any family's estimator: a call for each, in turn from report to report.

An estimator is one call that trains to its end and reports on its way. Here each fold's call has a
thread of its own, of which one at a time runs: it stops where it reports, and goes on when all
others have reported as often. So a trial reports the mean over its folds while they train, and can
be pruned, interrupted and taken up again like any other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np

from automl.models.family import TrialEstimator
from automl.models.judged_rows import ReportScores
from automl.models.model_file import SHARED_KEYS
from automl.models.networks.folds.fold_course import (
    CombineFolds,
    FoldMetrics,
    FoldsProgress,
    final_report_of_folds,
)
from automl.objectives.checkpoints.last_checkpoint import GetScores
from automl.objectives.goal import FinalReport, Patience
from automl.objectives.seeds import fold_seed
from automl.objectives.trial_context import CheckpointState, TrialContext, TrialStopped
from automl.trial import TrialSpec

GetState = Callable[[], CheckpointState]


class _FoldStopped(TrialStopped):
    """Raised in a fold's call whose trial ends."""


@dataclass(frozen=True)
class _FoldReport:
    """What a fold told last; its states are those of this moment while its call waits."""

    step: int
    metrics: FoldMetrics
    get_checkpoint: GetState | None
    get_best: GetState | None
    get_scores: ReportScores | None
    """None: it gives no outputs."""

    def member(self) -> Mapping[str, Any]:
        """What `best.pt` holds of it, beside what is the same for all folds."""
        get = self.get_best or self.get_checkpoint
        assert get is not None, "a family gives its model with its reports"
        return {name: value for name, value in get().items() if name not in SHARED_KEYS}


class _FoldCall:
    """The call of one fold; see `family.TrialEstimator`. Leaving the `with` ends it."""

    def __init__(
        self, estimator: TrialEstimator, trial: TrialContext, fold: int, state: Any
    ) -> None:
        self._estimator, self._state = estimator, state
        folder = str(trial.directory / f"fold-{fold}")
        self._context = TrialContext(
            TrialSpec(trial.number, trial.params, folder, study_seed=0),
            devices=trial.devices,
            seed=fold_seed(trial.seed, fold),
            record=_FoldRecorder(self, trial),
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
        """Its next report; None: it has ended. Raises what it raised."""
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
        except BaseException as error:  # noqa: BLE001  raised again where the trial is
            self._error = error
        finally:
            self._ended = True
            self._waits.release()

    def _pause(self) -> None:
        self._may_run.acquire()
        if self._stops:
            raise _FoldStopped

    def restored(self) -> Any:
        """Its state before an interruption."""
        return self._state

    def told(self, report: _FoldReport) -> None:
        """It reported, and waits for the others."""
        self._report = report
        self._waits.release()
        self._pause()


class _FoldRecorder:
    """See `objective.ReportRecorder`."""

    def __init__(self, call: _FoldCall, trial: TrialContext) -> None:
        self._call, self._trial = call, trial

    def restore(self) -> dict[str, Any] | None:
        state: dict[str, Any] | None = self._call.restored()
        return state

    def report(
        self,
        step: SupportsIndex,
        metrics: Mapping[str, float],
        get_checkpoint: GetState | None,
        get_best: GetState | None,
        get_scores: GetScores | None = None,
    ) -> None:
        """More metrics of one fold are none of the trial's; the outputs behind them tell those."""
        scores = get_scores if isinstance(get_scores, ReportScores) else None
        self._call.told(
            _FoldReport(step.__index__(), dict(metrics), get_checkpoint, get_best, scores)
        )

    def set_tag(self, name: str, value: object) -> None:
        self._trial.set_tag(name, value)


@dataclass
class _FoldedTrialState:
    """The trial between two of its reports."""

    course: FoldsProgress
    patience: Patience
    reports: list[_FoldReport | None]
    """The newest of each fold; None: of an earlier process, which is in `states`."""
    metrics: list[FoldMetrics]
    kept: list[Any]
    states: list[Any]
    last: list[Any]
    """Each fold's model by its last report of an earlier process, after which it may have ended."""
    said: list[Any]
    """Likewise its outputs for the rows that judge it; None: they are not asked for."""
    snapshot: Callable[[Any], Any]
    """Copies a model, as the trial's checkpoints do."""
    step: int = -1

    def take(self, reports: Sequence[_FoldReport | None]) -> dict[str, float]:
        """The folds' reports of a step; one that has ended stays as it is. Returns the trial's."""
        for fold, report in enumerate(reports):
            if report is not None:
                self.reports[fold], self.metrics[fold] = report, report.metrics
        self.step = max(report.step for report in reports if report is not None)
        if self.course.asks_outputs:
            self.said = [self._outputs(fold) for fold in range(len(self.reports))]
        self.course, now = self.course.after(self.step, self.metrics, self.said)
        for fold in now:
            self.kept[fold] = self.snapshot(self._member(fold))
            outputs = self._outputs(fold) if self.course.keeps_outputs else None
            if outputs is not None:
                self.course = self.course.saying(fold, outputs)
        pooled = self.course.pooled(self.metrics, self.said)
        self.patience = self.patience.after(pooled)
        return pooled

    def _outputs(self, fold: int) -> Any:
        """What a fold's model says of the rows that judge it, as it is now; None: not known."""
        report = self.reports[fold]
        if report is None:
            return self.said[fold]
        return None if report.get_scores is None else report.get_scores.get_outputs()

    def _member(self, fold: int) -> Any:
        """A fold's model as it is now."""
        report = self.reports[fold]
        return self.last[fold] if report is None else report.member()

    @property
    def can_go_on(self) -> bool:
        """Whether each fold gave a state to go on from."""
        return all(
            state is not None if report is None else report.get_checkpoint is not None
            for report, state in zip(self.reports, self.states, strict=True)
        )

    def state(self) -> dict[str, Any]:
        """See `FoldPack.state`, which takes it, too."""
        return {
            "epoch": self.step,
            "folds": [
                report.get_checkpoint() if report and report.get_checkpoint else state
                for report, state in zip(self.reports, self.states, strict=True)
            ],
            "metrics": [dict(metrics) for metrics in self.metrics],
            "last": [self._member(fold) for fold in range(len(self.reports))],
            "said": self.said,
            "course": self.course.state(),
            "kept": self.kept,
            **self.patience.state(),
        }


def train_by_calls(
    trial: TrialContext,
    estimators: Sequence[TrialEstimator],
    course: FoldsProgress,
    patience: Patience,
    whole: CombineFolds,
    snapshot: Callable[[Any], Any],
) -> FinalReport | None:
    """Train a trial with one estimator for each fold; None: no value was finite."""
    state = trial.restore()
    n_folds = len(estimators)
    states = [None] * n_folds if state is None else list(state["folds"])
    nothing: list[Any] = [None] * n_folds
    standing = _FoldedTrialState(
        course=course,
        patience=patience,
        reports=[None] * n_folds,
        metrics=[{}] * n_folds,
        kept=[*nothing],
        states=states,
        last=[*nothing],
        said=[*nothing],
        snapshot=snapshot,
    )
    if state is not None:
        standing.step = int(state["epoch"])
        standing.course, standing.patience = (
            course.restored(state["course"]),
            patience.restored(state),
        )
        standing.kept = list(state["kept"])
        standing.last = list(state.get("last", standing.last))
        standing.said = [None if s is None else np.asarray(s) for s in state.get("said", nothing)]
        standing.metrics = [dict(metrics) for metrics in state.get("metrics", standing.metrics)]
    with ExitStack() as running:
        calls = [
            running.enter_context(_FoldCall(estimator, trial, fold, states[fold]))
            for fold, estimator in enumerate(estimators)
        ]
        while not standing.patience.is_over:
            reports = [call.next() for call in calls]
            if not any(reports):
                break
            metrics = standing.take(reports)
            get = standing.state if standing.can_go_on else None
            trial.report(standing.step, metrics, checkpoint=get)
    return final_report_of_folds(standing.course, standing.kept, whole)
