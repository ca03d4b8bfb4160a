"""Trains the folds of a trial by any family's estimator: one call per fold, in turn.

An estimator is one call that trains to its end and reports on its way. Here each fold's call has a
thread of its own, and one thread at a time runs. A call stops where it reports, and goes on when
all others have reported as often. A trial therefore reports the mean over its folds while they
train, and can be pruned, interrupted and taken up again like any other.
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
from automl.models.networks.folds.fold_course import CombineFolds, FoldedTrial, FoldMetrics
from automl.objectives.checkpoints.last_checkpoint import GetScores
from automl.objectives.goal import FinalReport
from automl.objectives.seeds import fold_seed
from automl.objectives.trial_context import CheckpointState, TrialContext, TrialStopped
from automl.trial import TrialSpec

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
    """The call of a `family.TrialEstimator` for one fold; leaving the `with` ends the call."""

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

    def restored(self) -> Any:
        """Return the fold's state from before an interruption."""
        return self._state

    def hand_over(self, report: _FoldReport) -> None:
        """Hand a report to the trial, and wait for the other folds."""
        self._report = report
        self._waits.release()
        self._pause()


class _FoldRecorder:
    """A `ReportRecorder` that hands the reports of a fold's call to its trial."""

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
        """Hand a report over. The trial computes its own further metrics from the outputs."""
        scores = get_scores if isinstance(get_scores, ReportScores) else None
        self._call.hand_over(
            _FoldReport(step.__index__(), dict(metrics), get_checkpoint, get_best, scores)
        )

    def set_tag(self, name: str, value: object) -> None:
        self._trial.set_tag(name, value)


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
