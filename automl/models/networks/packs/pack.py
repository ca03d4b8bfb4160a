"""Runs a pack of trials, in which each trial keeps its own events, checkpoints and outcome.

The lanes' reports of one epoch are sent together, so that lanes that reach a rung together are
judged together. A trial that has ended leaves its lane to the next trial of the feed. If the pack
itself breaks, the trials end as `InterruptedOutcome(pack_dissolved=True)` and go on alone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from automl.in_trial.goal import FinalReport
from automl.in_trial.reports import outcomes
from automl.in_trial.reports.memory_peaks import PeakReporter
from automl.in_trial.reports.trial_reports import TrialReports
from automl.in_trial.trial_context import TrialContext
from automl.models.networks.folds.fold_pack import FoldPack
from automl.models.networks.network_family import TrainingParams
from automl.models.networks.packs.trainer import PackTrainer
from automl.models.networks.trainer import DivergedError
from automl.record.texts import fit_line
from automl.trial import (
    InterruptedOutcome,
    MetricsReported,
    OnEvent,
    OnEvents,
    Params,
    TrialEvent,
    TrialOutcome,
    TrialSource,
    TrialSpec,
    Verdict,
    single_event_handler,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PackSetup:
    """A pack that has no trials yet, with its estimator's functions of params and models."""

    trainer: PackTrainer | FoldPack
    n_epochs: int
    params: Callable[[Params], TrainingParams]
    best: Callable[[int], Mapping[str, Any]] | None
    """Returns the content of `best.pt` for the present state of a trial; None: the final report
    has it."""
    final_report: Callable[[int], FinalReport | None] = lambda number: None
    """Returns the final report of a trial at its end; None means its best report."""


@dataclass
class _TrialLane:
    """A trial while it is in the pack."""

    trial: TrialContext
    record: TrialReports
    epoch: int = 0

    @property
    def number(self) -> int:
        """The number that events, and the pack's trainer, know the trial by."""
        return self.record.spec.number


@dataclass
class _EventRelay:
    """The `on_event` of a trial, which does not repeat a report that was sent with the pack's."""

    on_events: OnEvents
    verdict: Verdict | None = None
    """The verdict on the next report, if that was sent already."""

    def __call__(self, event: TrialEvent) -> Verdict:
        if isinstance(event, MetricsReported) and self.verdict is not None:
            return self.verdict
        return single_event_handler(self.on_events)(event)


class _PackBrokenError(Exception):
    """Raised when a pack cannot go on."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class PackRunner:
    """Runs one pack in one thread, from its first trial to the last trial of its feed."""

    def __init__(
        self,
        opened: PackSetup,
        *,
        can_join: Callable[[Params], bool],
        open_trial: Callable[[TrialSpec, OnEvent], tuple[TrialContext, TrialReports]],
        on_events: OnEvents,
        peak_reporter: PeakReporter | None = None,
    ) -> None:
        self._opened, self._trainer = opened, opened.trainer
        self._can_join, self._open_trial, self._on_events = can_join, open_trial, on_events
        self._lanes: dict[int, _TrialLane] = {}
        self._n_most = 0
        """The most lanes that were taken at once."""
        self._peak_reporter = peak_reporter or PeakReporter()

    def run(self, feed: TrialSource) -> None:
        """Train until no lane is taken and the feed is empty. Raises what `on_events` raises."""
        try:
            while self._fill(feed):
                self._end_epoch(self._run_epoch())
        except _PackBrokenError as error:
            self._dissolve(error.cause)

    # --- lanes ----------------------------------------------------------------------------------

    def _fill(self, feed: TrialSource) -> bool:
        """Give free lanes to the feed's trials, and return whether any lane is taken."""
        while len(self._lanes) < feed.n_lanes and (spec := feed.next()) is not None:
            trial, record = self._open_trial(spec, _EventRelay(self._on_events))
            lane = _TrialLane(trial, record)
            self._conclude(lane, self._outcome_of(lane, partial(self._begin, lane)))
            self._n_most = max(self._n_most, len(self._lanes))
        return bool(self._lanes)

    def _begin(self, lane: _TrialLane) -> bool:
        """Put a trial into the pack; return False if its checkpoint says that it is trained."""
        number = lane.number
        params = self._opened.params(lane.trial.params)
        assert self._can_join(lane.trial.params), f"a pack was fed {lane.trial.params}"
        state = lane.trial.restore()
        try:
            lane.epoch = self._trainer.add(number, params, lane.trial.seed, state)
        except torch.OutOfMemoryError as error:  # the pack is too large, not the last trial
            self._lanes[number] = lane
            raise _PackBrokenError(error) from error
        self._lanes[number] = lane
        return self._goes_on(lane)

    def _conclude(self, lane: _TrialLane, ended: TrialOutcome | None) -> None:
        """Free a lane whose trial has ended, and send its outcome."""
        if lane.record.broken is not None:
            raise lane.record.broken
        if ended is None:
            return
        number = lane.number
        if self._lanes.pop(number, None) is not None:
            self._trainer.remove(number)
        self._on_events([*self._peak_reporter.last(number, self._n_most), ended])

    # --- an epoch -------------------------------------------------------------------------------

    def _run_epoch(self) -> Mapping[int, Mapping[str, float] | DivergedError]:
        try:
            return self._trainer.run_epoch()
        except Exception as error:  # trained alone, only one trial would fail
            raise _PackBrokenError(error) from error

    def _end_epoch(self, ended: Mapping[int, Mapping[str, float] | DivergedError]) -> None:
        now = time.time()
        reports = [
            MetricsReported(number, now, self._lanes[number].epoch, metrics)
            for number, metrics in ended.items()
            if not isinstance(metrics, DivergedError)
        ]
        verdicts = self._on_events(reports) if reports else {}
        for number, metrics in ended.items():
            lane = self._lanes[number]
            verdict = verdicts.get(number, Verdict.GO_ON)
            step = partial(self._report, lane, metrics, verdict)
            self._conclude(lane, self._outcome_of(lane, step))
        for number in [*self._lanes][:1]:  # the memory belongs to all lanes; one of them reports it
            if peaks := [*self._peak_reporter.grown(number, self._n_most)]:
                self._on_events(peaks)

    def _report(
        self, lane: _TrialLane, metrics: Mapping[str, float] | DivergedError, verdict: Verdict
    ) -> bool:
        """Report an epoch of a trial as outside packs; return False if it was the last."""
        if isinstance(metrics, DivergedError):
            raise metrics
        assert isinstance(lane.record.on_event, _EventRelay)
        trainer, number, best = self._trainer, lane.number, self._opened.best
        lane.record.on_event.verdict = verdict
        try:
            lane.trial.report(
                lane.epoch,
                metrics,
                checkpoint=partial(trainer.state, number, lane.epoch),
                best=None if best is None else partial(best, number),
                scores=trainer.scores(number),
            )
        finally:
            lane.record.on_event.verdict = None
        lane.epoch += 1
        return self._goes_on(lane)

    def _goes_on(self, lane: _TrialLane) -> bool:
        """Return whether a trial trains another epoch."""
        over = self._trainer.has_stopped(lane.number)
        return lane.epoch < self._opened.n_epochs and not over

    def _outcome_of(self, lane: _TrialLane, step: Callable[[], bool]) -> TrialOutcome | None:
        """Take a step of a trial, and return its outcome if it ends there; None if it goes on."""
        try:
            if step():
                return None
            final = self._opened.final_report(lane.number)
            value = None if final is None else lane.record.take_final_report(final)
            lane.record.finish()
            return outcomes.outcome_of_return(value, lane.record)
        except _PackBrokenError:
            raise
        except BaseException as error:  # noqa: BLE001  the outcome of the trial, as outside packs
            return outcomes.outcome_of_exception(error, lane.record)

    # --- the end of a broken pack ---------------------------------------------------------------

    def _dissolve(self, error: Exception) -> None:
        """End all trials as interrupted, after their checkpoints are written if possible."""
        cause = fit_line(f"its pack broke: {type(error).__name__}: {error}")
        logger.warning("%d trials go on alone; %s", len(self._lanes), cause)
        readable = self._try(self._trainer.rewind)
        for number, lane in self._lanes.items():
            if readable:
                self._try(lane.record.write)
            if lane.record.broken is not None:
                raise lane.record.broken
            self._on_events([InterruptedOutcome(number, time.time(), cause, pack_dissolved=True)])

    def _try(self, action: Callable[[], None]) -> bool:
        """Run an action, and return whether it succeeded; the device may be lost with the pack."""
        try:
            action()
        except Exception as error:  # noqa: BLE001  the trial goes on from an earlier checkpoint
            logger.warning("no checkpoint after its pack broke: %s", error)
            return False
        return True
