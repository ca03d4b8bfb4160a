"""Makes the view of a running sweep, for the live table, `status.json` and the closing table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from automl.admission.refusals import AdmissionRefusal, RefusalKind
from automl.config import UNLIMITED_N_TRIALS
from automl.running.loop.messages import LoopSnapshot
from automl.running.opening.parts import SweepParts
from automl.running.trials.carrier import TrialCarrier
from automl.search.trial_standings import RankedTrial
from automl.terminal.time_left import TimeLeft, within_time_limit
from automl.terminal.view import (
    BestRow,
    DeviceRow,
    RunningRow,
    SweepView,
    WaitingRow,
    device_row,
    outside_rows,
    shown_number,
    spread_values,
)
from automl.trial import FinishedOutcome, MetricsReported, TrialOutcome, TrialState


class SweepViewer:
    """Makes views of one sweep. For the main thread."""

    def __init__(
        self,
        parts: SweepParts,
        snapshot: Callable[[], LoopSnapshot],
        carrier: TrialCarrier,
        add_features: Callable[[SweepView], SweepView],
        *,
        called_seconds: float,
    ) -> None:
        """`add_features` returns a view with what the features of the sweep add. `called_seconds`
        (monotonic) is when the sweep's time began to count."""
        self._parts, self._snapshot = parts, snapshot
        self._carrier, self._add_features = carrier, add_features
        plan = parts.prepared.plan.refit
        self._repeats = () if plan is None else plan.repeated_trials()
        self._began_seconds = called_seconds
        self._time_left = TimeLeft()
        self._best_values = parts.log.record.best_values()
        self._results: dict[int, FinishedOutcome] = {}
        """The outcomes of which a row shows more than the value."""
        for trial in parts.log.record.trials.values():
            self._keep_result(trial.outcome)

    def trial_ended(self, outcome: TrialOutcome) -> None:
        """Note the best value so far, after the study was told of an outcome."""
        self._keep_result(outcome)
        best = self._parts.study.best()
        if best is not None and best.point is None:
            self._best_values.append(best.value)

    def _keep_result(self, outcome: TrialOutcome | None) -> None:
        if isinstance(outcome, FinishedOutcome) and (outcome.part_values or outcome.reported):
            self._results[outcome.trial] = outcome

    def shown(self, number: int) -> int:
        """Return the number by which people know the trial (see `shown_number`)."""
        return shown_number(number, self._repeats)

    def row_of(self, trial: RankedTrial) -> BestRow:
        """Return the row of a trial that has ended."""
        row = BestRow(self.shown(trial.number), trial.value, trial.params, values=trial.values)
        if (result := self._results.get(trial.number)) is None:
            return row
        reported = result.reported.get(self._parts.config.study.leading_metric)
        return replace(row, standard_error=result.standard_error, reported=reported)

    def view(self, ended: str | None = None) -> SweepView:
        """Return the view of the sweep as it stands."""
        parts, loop = self._parts, self._snapshot()
        seconds, now = time.monotonic() - self._began_seconds, time.time()
        log_bytes = parts.log.size_bytes()
        counts = {state.value: n for state, n in parts.study.counts().items()}
        left = counts.pop(TrialState.RUNNING.value, 0)  # in the study: asked and not ended
        outside = outside_rows(parts.outside.trials, now)
        waiting = {queued.trial.number for queued in (*loop.queued, *loop.deferred)}
        n_elsewhere = len(outside) + parts.store.peers.n_running({*loop.running, *waiting})
        counts[TrialState.RUNNING.value] = len(loop.running) + n_elsewhere
        if ended is None:
            counts["waiting"] = len(waiting)
            left -= len(loop.running) + len(waiting) + n_elsewhere
        else:
            left = parts.n_interrupted
        counts[TrialState.INTERRUPTED.value] = left
        # Each member of an ensemble has a loss of its own, so that none of them is the best.
        best = parts.study.best() if len(self._repeats) <= 1 else None
        view = SweepView(
            study=parts.study.name,
            directory=str(parts.directory.path),
            time=now,
            n_trials=loop.n_trials,
            metric=parts.config.study.leading_metric,
            counts=counts,
            best=None if best is None else replace(self.row_of(best), number=best.number),
            front=() if best is None or best.point is None else self._front_rows(),
            running=(*self._running_rows(loop), *outside),
            waiting=tuple(self._waiting_rows(loop)),
            devices=_device_rows(loop),
            seconds=seconds,
            seconds_left=self._seconds_left(seconds, loop),
            n_undelivered=parts.delivery.lag(),
            trouble=parts.delivery.trouble(),
            ended=ended,
            reason=loop.asking_ended,
            repeats=self._repeats,
            best_so_far=() if best is None else spread_values(self._best_values),
            device_seconds=parts.log.device_seconds(now),
            log_bytes=log_bytes,
        )
        return self._add_features(view)

    def _front_rows(self) -> tuple[BestRow, ...]:
        return tuple(self.row_of(trial) for trial in self._parts.study.front())

    def _running_rows(self, loop: LoopSnapshot) -> Iterator[RunningRow]:
        now = time.monotonic()
        for number, execution in sorted(loop.running.items()):
            report = self._carrier.latest.get(number)
            yield RunningRow(
                number=number,
                device=execution.placement.label_at(self._parts.store.machine),
                params=execution.members[number].trial.params,
                seconds=now - execution.since_seconds[number],
                step=None if report is None else report.step,
                metrics={} if report is None else report.metrics,
                request_bytes=execution.request.memory_bytes,
                peak_bytes=self._carrier.peaks.get(number, 0),
                seconds_per_step=seconds_per_step(self._carrier.first.get(number), report),
            )

    def _waiting_rows(self, loop: LoopSnapshot) -> Iterator[WaitingRow]:
        for waiting in (*loop.queued, *loop.deferred):
            yield _waiting_row(waiting.trial.number, waiting.refusal)
        if (trouble := self._parts.store.peers.trouble()) is not None:
            yield WaitingRow(None, f"waiting: {trouble}")
        elif not loop.queued and loop.asking_refusal is not None:
            yield _waiting_row(None, loop.asking_refusal)

    def _seconds_left(self, seconds: float, loop: LoopSnapshot) -> float | None:
        counts = self._parts.study.counts()
        left = self._time_left.look(
            seconds,
            n_ended=sum(n for state, n in counts.items() if state.is_final),
            n_paused=counts[TrialState.PAUSED],
            n_running=len(loop.running),
            n_trials=loop.n_trials,
            is_held=loop.is_held,
        )
        limit_seconds = self._parts.config.study.timeout_seconds
        has_total = loop.n_trials < UNLIMITED_N_TRIALS
        return within_time_limit(left, seconds, limit_seconds, has_total=has_total)


def _device_rows(loop: LoopSnapshot) -> tuple[DeviceRow, ...]:
    if loop.reading is None or loop.reading.error is not None:
        return ()
    return tuple(device_row(account, loop.reading) for account in loop.accounts)


def seconds_per_step(first: MetricsReported | None, latest: MetricsReported | None) -> float | None:
    """Return the pace between two reports of one trial, or None without two."""
    if first is None or latest is None or latest.step <= first.step:
        return None
    return max(0.0, latest.time - first.time) / (latest.step - first.step)


def _waiting_row(number: int | None, refusal: AdmissionRefusal) -> WaitingRow:
    return WaitingRow(number, refusal.reason, as_it_should=refusal.kind is RefusalKind.FULL)
