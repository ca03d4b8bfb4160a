"""Carries admitted trials in pool threads: runs each through the executor and follows its events.

Each event goes to the event log first and then to the study, whose verdict travels back into the
trial, as do the answers to its questions. What starts next is decided elsewhere: the main thread
learns of outcomes and released reservations by messages.
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
from automl.record.study_files import StudyFiles
from automl.running.loop.messages import (
    LoopMessage,
    PlannedTrial,
    QuestionAsked,
    ReservationReleased,
    SweepFailed,
    TrialEnded,
    TrialMemoryMeasured,
)
from automl.running.trials.program_peaks import ProgramPeaks
from automl.search.study import Study
from automl.trial import (
    LOCAL_NODE,
    FinishedOutcome,
    InterruptedOutcome,
    MemoryPeakMeasured,
    MetricsReported,
    OnEvents,
    ParamAnswer,
    ParamQuestion,
    ParamsSuggested,
    PausedOutcome,
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
    """An execution that holds a reservation while it is carried."""

    key: int
    request: ResourceRequest
    placement: Placement
    may_settle: bool


class TrialCarrier:
    """Carries trials to their end. One object serves all pool threads."""

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
        """Connect the carrier to the parts of a sweep.

        `program_peaks` measures trials that are programs, of which a worker knows little. `is_lost`
        returns whether another sweep has taken a trial that runs here; the trial then has to stop,
        and nothing of it counts. `stored` keeps copies of what this machine's trials write.
        `machine` names this machine in the devices of trials.
        """
        self.executor = executor
        self.log = log
        self._study = study
        self._ledger = ledger
        self._post = post
        self._program_peaks = program_peaks
        self._is_lost = is_lost
        self._stored = stored
        self._machine = machine
        self.stopping = threading.Event()
        """Set when every trial is to stop at its next report."""
        self.ends_trials = False
        """Whether trials that are to stop have ended with the best that they reported, since the
        sweep's time is up."""
        self.asked_verdicts: dict[int, Verdict] = {}
        """The verdicts that the user asked for, by trial: to prune it or to stop it."""
        self.latest: dict[int, MetricsReported] = {}
        """The last report of each running trial, for the display."""
        self.first: dict[int, MetricsReported] = {}
        """The first report of each running trial in this execution, for its pace."""
        self.peaks: dict[int, int] = {}
        """The most bytes that each running trial, or its pack, was seen to hold."""
        self._pausing: set[int] = set()
        """The running trials that were told to stop at a rung."""
        self.devices: dict[int, str] = {}
        """The device on which each trial has run last."""

    def carry(
        self, key: int, feed: TrialFeed, placement: Placement, request: ResourceRequest
    ) -> None:
        """Run an execution to its end and give its reservation back, whatever happens."""
        shrinks = self.executor.can.own_process and may_settle(request, placement, feed.n_lanes)
        shrinks = shrinks and self._program_peaks is None  # the memory of a program is not capped
        carried = _CarriedExecution(key, request, placement, shrinks)
        try:
            with self._ledger.releasing(key), self._measured(key):
                self._execute(feed, carried)
        except BaseException as error:  # noqa: BLE001 - whatever broke, the main thread must know
            self._post(SweepFailed(error))
        finally:
            self._post(ReservationReleased(key))

    def _execute(self, feed: TrialFeed, carried: _CarriedExecution) -> None:
        on_events = self._on_events(carried)
        if self._stored is None:
            self.executor.execute(feed, carried.placement, on_events)
        else:
            bringing, keeping = self._stored.around(feed, on_events)
            self.executor.execute(bringing, carried.placement, keeping)

    @contextmanager
    def _measured(self, key: int) -> Iterator[None]:
        """Stop measuring a program before its reservation is given back."""
        try:
            yield
        finally:
            if self._program_peaks is not None:
                self._program_peaks.end(key)

    def open_feed(self, key: int, specs: Sequence[TrialSpec], placement: Placement) -> TrialFeed:
        """Return the trials of an execution. Each is recorded as started when it is taken."""
        device = placement.label_at(self._machine)

        def started(spec: TrialSpec) -> None:
            self.devices[spec.number] = device
            params = {n: v for n, v in spec.params.items() if n not in spec.drawn_ahead}
            self._append(TrialStarted(spec.number, time.time(), params=params, device=device))

        return TrialFeed(specs, started, self._answer, key=key)

    def _answer(self, question: Question) -> Reply:
        """Return the main thread's answer. A suggested param is logged before the trial has it."""
        if self.stopping.is_set():
            return SweepStopping()
        replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        self._post(QuestionAsked(question, replies.put))
        reply = replies.get()
        if isinstance(question, ParamQuestion) and isinstance(reply, ParamAnswer):
            params, entries = {question.name: reply.value}, {question.name: question.entry}
            self._append(ParamsSuggested(question.trial, time.time(), params, entries))
        return reply

    def _on_events(self, carried: _CarriedExecution) -> OnEvents:
        def on_events(events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
            outcomes = [e for e in events if isinstance(e, TrialOutcome)]
            for event in events:
                if not isinstance(event, TrialOutcome):
                    self._take(event, carried)
            verdicts = self._judge([e for e in events if isinstance(e, MetricsReported)])
            for outcome in outcomes:  # after its outcome, the study does not know the trial
                self._take(outcome, carried)
            verdicts = {**verdicts, **self._verdicts_by_user(events)}
            stopping = self.stopping.is_set()
            stop = {e.trial: Verdict.STOP for e in events if stopping or self._is_lost(e.trial)}
            if not stop:
                return verdicts
            return stop | {n: v for n, v in verdicts.items() if v is not Verdict.GO_ON}

        return on_events

    def _verdicts_by_user(self, events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        asked = self.asked_verdicts
        return {e.trial: asked[e.trial] for e in events if e.trial in asked} if asked else {}

    def _judge(self, reports: Sequence[MetricsReported]) -> Mapping[int, Verdict]:
        """Return the verdicts on the reports of one message, which are judged together."""
        if not reports:
            return {}
        try:
            verdicts = self._study.report(reports)
        except StorageError as error:  # the main thread has every trial write a checkpoint and stop
            self._post(SweepFailed(error))
            return {}
        pausing = {n for n, verdict in verdicts.items() if verdict is Verdict.PAUSE}
        self._pausing |= pausing
        return {**verdicts, **dict.fromkeys(pausing, Verdict.STOP)}

    def _tag(self, event: TrialTagged) -> None:
        try:
            self._study.tag(event)
        except StorageError as error:
            self._post(SweepFailed(error))

    def _append(self, event: TrialEvent) -> bool:
        """Log the event; return False for what was logged before an interruption."""
        try:
            return self.log.append(event)
        except StorageError as error:
            self._post(SweepFailed(error))
            raise

    def _take(self, event: TrialEvent, carried: _CarriedExecution) -> None:
        key = carried.key
        if isinstance(event, ProcessHosted):
            self._ledger.assign(key, event.process)
            if self._program_peaks is not None and not carried.placement.on_host:
                take = partial(self._take, carried=carried)
                self._program_peaks.begin(key, event, carried.placement, take)
            return
        if isinstance(event, StillRunning):
            return
        if isinstance(event, TrialOutcome) and self._is_lost(event.trial):
            event = InterruptedOutcome(event.trial, event.time, LOST_TRIAL_CAUSE)
        if isinstance(event, TrialOutcome):
            event = self._as_ended(self._as_paused(event))
        if isinstance(event, TrialOutcome) and self._program_peaks is not None:
            self._program_peaks.end(key)  # no peak may come after the outcome
        if isinstance(event, MemoryPeakMeasured):
            event = replace(
                event, predicted_bytes=carried.request.memory_bytes, source=carried.request.source
            )
        is_new = self._append(event)
        match event:
            case MetricsReported():
                # By the first report its context is up. A trial that goes on tells its old ones
                # first, before it trains.
                if is_new and event.trial not in self.first:
                    self.first[event.trial] = event
                    self._ledger.context_up(key, time.monotonic())
                self.latest[event.trial] = event
            case MemoryPeakMeasured():
                self._take_peak(event, carried)
            case TrialTagged():
                self._tag(event)
            case TrialOutcome():
                self.latest.pop(event.trial, None)
                self.first.pop(event.trial, None)
                self.peaks.pop(event.trial, None)
                self.asked_verdicts.pop(event.trial, None)
                self._post(TrialEnded(event))

    def _as_paused(self, outcome: TrialOutcome) -> TrialOutcome:
        """Return the outcome, or the pause of a trial that stopped since it was told to pause."""
        if outcome.trial not in self._pausing:
            return outcome
        self._pausing.discard(outcome.trial)
        last = self.latest.get(outcome.trial)
        if last is None or not is_stop(outcome):
            return outcome
        return PausedOutcome(outcome.trial, outcome.time, last.step)

    def _as_ended(self, outcome: TrialOutcome) -> TrialOutcome:
        """Return the outcome, or the end of a trial that stopped since the sweep's time is up."""
        if not self.ends_trials or not is_stop(outcome):
            return outcome
        value = self._study.best_report(outcome.trial)
        if value is None:
            return outcome
        return FinishedOutcome(outcome.trial, outcome.time, value)

    def _take_peak(self, peak: MemoryPeakMeasured, carried: _CarriedExecution) -> None:
        self.peaks[peak.trial] = peak.peak_bytes
        self._ledger.observe_peak(carried.key, *peak.by_device)
        sizes_bytes = settled_bytes(peak, carried.placement) if carried.may_settle else None
        if sizes_bytes is not None:
            self._ledger.settle(carried.key, *sizes_bytes)
        self._post(TrialMemoryMeasured(peak))  # the main thread looks which trials may start


def is_stop(outcome: TrialOutcome) -> bool:
    """Return whether the trial stopped because it was told to, after writing its checkpoint."""
    if not isinstance(outcome, InterruptedOutcome):
        return False
    plain = InterruptedOutcome(outcome.trial, outcome.time, outcome.cause)
    return outcome == plain and outcome.cause != LOST_TRIAL_CAUSE


class TrialSpecBuilder:
    """Builds the specs of one sweep. `spec` is for any thread, `begin` for the main thread."""

    def __init__(self, study: Study, log: EventLog, files: StudyFiles, seed: int) -> None:
        """`seed` is the study's."""
        self._study, self._log, self._files, self._seed = study, log, files, seed
        self._n: Counter[int] = Counter()
        """Number of starts of each trial in this sweep."""

    def spec(self, trial: PlannedTrial) -> TrialSpec:
        """Return the spec of a trial that is looked at, not started."""
        return TrialSpec(
            number=trial.number,
            params=trial.params,
            checkpoint_dir=str(self._files.checkpoints(trial.number)),
            study_seed=self._seed,
            entries=self._study.entries(trial.params),
            drawn_ahead=self._study.drawn_ahead(trial.params),
        )

    def begin(self, trial: PlannedTrial) -> TrialSpec:
        """Return the spec of a trial that starts now. Raises StorageError."""
        number, log = trial.number, self._log
        before = log.record.trials.get(number)
        n_starts = self._n[number] + (0 if before is None else before.n_starts)
        self._n[number] += 1
        spec = replace(self.spec(trial), attempt=log.attempt(number), n_starts=n_starts)
        TrialFolderFence(Path(spec.checkpoint_dir), spec.attempt).close()
        return spec
