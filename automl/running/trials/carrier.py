"""What a pool thread does: carry one admitted trial through the executor and follow its events.

Each event goes to the event log first and then to the study, whose verdict travels back into the
trial; so does the answer to what it asks for. Nothing here decides what starts next; the main
thread learns of outcomes and of given-back reservations by messages.

What an executor is given of a trial, and of its start: which attempt it is, and which in all.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from automl.admission.accounting.ledger import Ledger
from automl.admission.memory_caps import may_settle, settled_bytes
from automl.errors import StorageError
from automl.execution.checkpoint_store import CheckpointStore
from automl.execution.executor import Executor, TrialFeed
from automl.record.event_log import EventLog
from automl.record.lease import TrialFolderFence
from automl.running.loop.messages import (
    LoopMessage,
    PlannedTrial,
    QuestionAsked,
    ReservationReleased,
    SweepFailed,
    TrialEnded,
    TrialMemoryMeasured,
)
from automl.running.setup.parts import SweepParts
from automl.running.trials.program_peaks import ProgramPeaks
from automl.search.study import Study
from automl.trial import (
    LOCAL_NODE,
    InterruptedOutcome,
    MemoryPeakMeasured,
    MetricsReported,
    OnEvents,
    ParamAnswer,
    ParamQuestion,
    ParamsSuggested,
    Placement,
    ProcessHosted,
    Question,
    Reply,
    ResourceRequest,
    StillRunning,
    SweepStopping,
    TrialEvent,
    TrialOutcome,
    TrialSpec,
    TrialStarted,
    TrialTagged,
    Verdict,
)

LOST_TRIAL_CAUSE = "another sweep has the trial: this one could not renew its lease"


@dataclass(frozen=True)
class _CarriedExecution:
    """An execution that holds a reservation."""

    key: int
    request: ResourceRequest
    placement: Placement
    may_settle: bool


class TrialCarrier:
    """Carries trials; one object serves all pool threads."""

    def __init__(
        self,
        *,
        executor: Executor,
        log: EventLog,
        study: Study,
        ledger: Ledger,
        post: Callable[[LoopMessage], None],
        program_peaks: ProgramPeaks | None = None,
        is_lost: Callable[[int], bool] = lambda trial: False,
        stored: CheckpointStore | None = None,
        machine: str = LOCAL_NODE,
    ) -> None:
        """`program_peaks` looks after trials that are programs, of which a worker knows little.
        `is_lost` tells of a trial that runs here whether it is another sweep's by now: it is to
        stop, and nothing of it counts. `stored` keeps what this machine's trials write.
        `machine` is what this one is called where a trial's device is told."""
        self._executor = executor
        self._log = log
        self._study = study
        self._ledger = ledger
        self._post = post
        self._program_peaks = program_peaks
        self._is_lost = is_lost
        self._stored = stored
        self._machine = machine
        self.stopping = threading.Event()
        """Set: every trial is told to stop at its next report."""
        self.latest: dict[int, MetricsReported] = {}
        """The last report of each running trial, for the display."""
        self.first: dict[int, MetricsReported] = {}
        """The first report of each running trial in this execution, by which its pace is told."""
        self.peaks: dict[int, int] = {}
        """The most bytes that each running trial, or the pack it is in, was seen to hold."""
        self.devices: dict[int, str] = {}
        """Where each trial has run last."""

    def carry(
        self, key: int, feed: TrialFeed, placement: Placement, request: ResourceRequest
    ) -> None:
        """Run an execution to its end and give its reservation back, whatever happens."""
        shrinks = self._executor.can.own_process and may_settle(request, placement, feed.n_lanes)
        shrinks = shrinks and self._program_peaks is None  # nothing holds a program to it
        held = _CarriedExecution(key, request, placement, shrinks)
        try:
            with self._ledger.held(key), self._measured(key):
                self._execute(feed, held)
        except BaseException as error:  # noqa: BLE001 - whatever broke, the main thread must know
            self._post(SweepFailed(error))
        finally:
            self._post(ReservationReleased(key))

    def _execute(self, feed: TrialFeed, held: _CarriedExecution) -> None:
        on_events = self._on_events(held)
        if self._stored is None:
            self._executor.execute(feed, held.placement, on_events)
        else:
            bringing, keeping = self._stored.around(feed, on_events)
            self._executor.execute(bringing, held.placement, keeping)

    @contextmanager
    def _measured(self, key: int) -> Iterator[None]:
        """Nobody looks after a program whose reservation was given back."""
        try:
            yield
        finally:
            if self._program_peaks is not None:
                self._program_peaks.end(key)

    def open_feed(self, specs: Sequence[TrialSpec], placement: Placement) -> TrialFeed:
        """Trials to carry; each is recorded as started when the executor takes it."""
        device = placement.label_at(self._machine)

        def started(spec: TrialSpec) -> None:
            self.devices[spec.number] = device
            params = {n: v for n, v in spec.params.items() if n not in spec.drawn_ahead}
            self._append(TrialStarted(spec.number, time.time(), params=params, device=device))

        return TrialFeed(specs, started, self._answer)

    def _answer(self, question: Question) -> Reply:
        """What the main thread answers; a param that it gave is logged before the trial has it."""
        if self.stopping.is_set():
            return SweepStopping()
        replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        self._post(QuestionAsked(question, replies.put))
        reply = replies.get()
        if isinstance(question, ParamQuestion) and isinstance(reply, ParamAnswer):
            params = {question.name: reply.value}
            self._append(ParamsSuggested(question.trial, time.time(), params))
        return reply

    def _on_events(self, held: _CarriedExecution) -> OnEvents:
        def on_events(events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
            outcomes = [e for e in events if isinstance(e, TrialOutcome)]
            for event in events:
                if not isinstance(event, TrialOutcome):
                    self._take(event, held)
            verdicts = self._judge([e for e in events if isinstance(e, MetricsReported)])
            for outcome in outcomes:  # after which the study knows the trial no more
                self._take(outcome, held)
            stopping = self.stopping.is_set()
            stop = {e.trial: Verdict.STOP for e in events if stopping or self._is_lost(e.trial)}
            if not stop:
                return verdicts
            return stop | {n: v for n, v in verdicts.items() if v is not Verdict.GO_ON}

        return on_events

    def _judge(self, reports: Sequence[MetricsReported]) -> Mapping[int, Verdict]:
        """Reports of one message are judged together."""
        if not reports:
            return {}
        try:
            return self._study.report(reports)
        except StorageError as error:  # the main thread has every trial write a checkpoint and stop
            self._post(SweepFailed(error))
            return {}

    def _tag(self, event: TrialTagged) -> None:
        try:
            self._study.tag(event)
        except StorageError as error:
            self._post(SweepFailed(error))

    def _append(self, event: TrialEvent) -> None:
        try:
            self._log.append(event)  # a step logged before an interruption is dropped here
        except StorageError as error:
            self._post(SweepFailed(error))
            raise

    def _take(self, event: TrialEvent, held: _CarriedExecution) -> None:
        key = held.key
        if isinstance(event, ProcessHosted):
            self._ledger.assign(key, event.process)
            if self._program_peaks is not None and not held.placement.on_host:
                take = partial(self._take, held=held)
                self._program_peaks.begin(key, event.process, held.placement, take)
            return
        if isinstance(event, StillRunning):
            return
        if isinstance(event, TrialOutcome) and self._is_lost(event.trial):
            event = InterruptedOutcome(event.trial, event.time, LOST_TRIAL_CAUSE)
        if isinstance(event, TrialOutcome) and self._program_peaks is not None:
            self._program_peaks.end(event.trial)  # before its outcome: no peak comes after that
        if isinstance(event, MemoryPeakMeasured):
            event = replace(
                event, predicted_bytes=held.request.memory_bytes, source=held.request.source
            )
        self._append(event)
        match event:
            case MetricsReported():
                if event.trial not in self.latest:  # its context is surely up by now
                    self.first[event.trial] = event
                    self._ledger.context_up(key, time.monotonic())
                self.latest[event.trial] = event
            case MemoryPeakMeasured():
                self._take_peak(event, held)
            case TrialTagged():
                self._tag(event)
            case TrialOutcome():
                self.latest.pop(event.trial, None)
                self.first.pop(event.trial, None)
                self.peaks.pop(event.trial, None)
                self._post(TrialEnded(event))

    def _take_peak(self, peak: MemoryPeakMeasured, held: _CarriedExecution) -> None:
        self.peaks[peak.trial] = peak.peak_bytes
        self._ledger.observe_peak(held.key, *peak.by_device)
        sizes_bytes = settled_bytes(peak, held.placement) if held.may_settle else None
        if sizes_bytes is not None:
            self._ledger.settle(held.key, *sizes_bytes)
        self._post(TrialMemoryMeasured(peak))  # which has the main thread look who may start


class TrialSpecBuilder:
    """Of one sweep. `spec` is for any thread, `begin` for the main one."""

    def __init__(self, parts: SweepParts) -> None:
        self._parts = parts
        self._n: Counter[int] = Counter()
        """By trial, in this sweep."""

    def spec(self, trial: PlannedTrial) -> TrialSpec:
        """Of a trial that is looked at, not started."""
        parts = self._parts
        return TrialSpec(
            number=trial.number,
            params=trial.params,
            checkpoint_dir=str(parts.directory.files.checkpoints(trial.number)),
            study_seed=parts.config.study.seed,
            entries=parts.study.entries(trial.params),
            drawn_ahead=parts.study.drawn_ahead(trial.params),
        )

    def begin(self, trial: PlannedTrial) -> TrialSpec:
        """Of a trial that is started now. Raises StorageError."""
        number, log = trial.number, self._parts.log
        before = log.record.trials.get(number)
        n_starts = self._n[number] + (0 if before is None else before.n_starts)
        self._n[number] += 1
        spec = replace(self.spec(trial), attempt=log.attempt(number), n_starts=n_starts)
        TrialFolderFence(Path(spec.checkpoint_dir), spec.attempt).close()
        return spec
