"""What a pool thread does: carry one admitted trial through the executor and follow its events.

Each event goes to the event log first and then to the study, whose verdict travels back into the
trial; so does the answer to what it asks for. Nothing here decides what starts next; the main
thread learns of outcomes and of given-back reservations by messages.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from automl.admission.ledger import Ledger
from automl.admission.settling import may_settle, settled_bytes
from automl.errors import StorageError
from automl.execution.executor import Executor, TrialFeed
from automl.execution.stored import Stored
from automl.record.events import EventLog
from automl.running.messages import Asks, Broke, Ended, Measured, Message, Released
from automl.running.program_peaks import ProgramPeaks
from automl.search.study import Study
from automl.trial import (
    LOCAL_NODE,
    Given,
    Hosted,
    Interrupted,
    MemoryPeak,
    OnEvents,
    Outcome,
    Placement,
    Question,
    Reply,
    Reported,
    Request,
    Started,
    StillRunning,
    Stopping,
    Suggest,
    Suggested,
    Tagged,
    TrialEvent,
    TrialSpec,
    Verdict,
)

LOST = "another sweep has the trial: this one could not renew its lease"


@dataclass(frozen=True)
class _Held:
    """An execution that holds a reservation."""

    key: int
    request: Request
    placement: Placement
    may_settle: bool


class Carrier:
    """Carries trials; one object serves all pool threads."""

    def __init__(
        self,
        *,
        executor: Executor,
        log: EventLog,
        study: Study,
        ledger: Ledger,
        post: Callable[[Message], None],
        program_peaks: ProgramPeaks | None = None,
        is_lost: Callable[[int], bool] = lambda trial: False,
        stored: Stored | None = None,
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
        self.latest: dict[int, Reported] = {}
        """The last report of each running trial, for the display."""
        self.first: dict[int, Reported] = {}
        """The first report of each running trial in this execution, by which its pace is told."""
        self.peaks: dict[int, int] = {}
        """The most bytes that each running trial, or the pack it is in, was seen to hold."""
        self.devices: dict[int, str] = {}
        """Where each trial has run last."""

    def carry(self, key: int, feed: TrialFeed, placement: Placement, request: Request) -> None:
        """Run an execution to its end and give its reservation back, whatever happens."""
        shrinks = self._executor.can.own_process and may_settle(request, placement, feed.n_lanes)
        shrinks = shrinks and self._program_peaks is None  # nothing holds a program to it
        held = _Held(key, request, placement, shrinks)
        try:
            with self._ledger.held(key), self._measured(key):
                self._execute(feed, held)
        except BaseException as error:  # noqa: BLE001 - whatever broke, the main thread must know
            self._post(Broke(error))
        finally:
            self._post(Released(key))

    def _execute(self, feed: TrialFeed, held: _Held) -> None:
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
            self._append(Started(spec.number, time.time(), params=spec.params, device=device))

        return TrialFeed(specs, started, self._answer)

    def _answer(self, question: Question) -> Reply:
        """What the main thread answers; a param that it gave is logged before the trial has it."""
        if self.stopping.is_set():
            return Stopping()
        replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        self._post(Asks(question, replies.put))
        reply = replies.get()
        if isinstance(question, Suggest) and isinstance(reply, Given):
            params = {question.name: reply.value}
            self._append(Suggested(question.trial, time.time(), params))
        return reply

    def _on_events(self, held: _Held) -> OnEvents:
        def on_events(events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
            outcomes = [e for e in events if isinstance(e, Outcome)]
            for event in events:
                if not isinstance(event, Outcome):
                    self._take(event, held)
            verdicts = self._judge([e for e in events if isinstance(e, Reported)])
            for outcome in outcomes:  # after which the study knows the trial no more
                self._take(outcome, held)
            stopping = self.stopping.is_set()
            stop = {e.trial: Verdict.STOP for e in events if stopping or self._is_lost(e.trial)}
            if not stop:
                return verdicts
            return stop | {n: v for n, v in verdicts.items() if v is not Verdict.GO_ON}

        return on_events

    def _judge(self, reports: Sequence[Reported]) -> Mapping[int, Verdict]:
        """Reports of one message are judged together."""
        if not reports:
            return {}
        try:
            return self._study.report(reports)
        except StorageError as error:  # the main thread has every trial write a checkpoint and stop
            self._post(Broke(error))
            return {}

    def _tag(self, event: Tagged) -> None:
        try:
            self._study.tag(event)
        except StorageError as error:
            self._post(Broke(error))

    def _append(self, event: TrialEvent) -> None:
        try:
            self._log.append(event)  # a step logged before an interruption is dropped here
        except StorageError as error:
            self._post(Broke(error))
            raise

    def _take(self, event: TrialEvent, held: _Held) -> None:
        key = held.key
        if isinstance(event, Hosted):
            self._ledger.assign(key, event.process)
            if self._program_peaks is not None and not held.placement.on_host:
                take = partial(self._take, held=held)
                self._program_peaks.begin(key, event.process, held.placement, take)
            return
        if isinstance(event, StillRunning):
            return
        if isinstance(event, Outcome) and self._is_lost(event.trial):
            event = Interrupted(event.trial, event.time, LOST)
        if isinstance(event, Outcome) and self._program_peaks is not None:
            self._program_peaks.end(event.trial)  # before its outcome: no peak comes after that
        if isinstance(event, MemoryPeak):
            event = replace(
                event, predicted_bytes=held.request.memory_bytes, source=held.request.source
            )
        self._append(event)
        match event:
            case Reported():
                if event.trial not in self.latest:  # its context is surely up by now
                    self.first[event.trial] = event
                    self._ledger.context_up(key, time.monotonic())
                self.latest[event.trial] = event
            case MemoryPeak():
                self._take_peak(event, held)
            case Tagged():
                self._tag(event)
            case Outcome():
                self.latest.pop(event.trial, None)
                self.first.pop(event.trial, None)
                self.peaks.pop(event.trial, None)
                self._post(Ended(event))

    def _take_peak(self, peak: MemoryPeak, held: _Held) -> None:
        self.peaks[peak.trial] = peak.peak_bytes
        self._ledger.observe_peak(held.key, *peak.by_device)
        sizes_bytes = settled_bytes(peak, held.placement) if held.may_settle else None
        if sizes_bytes is not None:
            self._ledger.settle(held.key, *sizes_bytes)
        self._post(Measured(peak))  # which has the main thread look who may start
