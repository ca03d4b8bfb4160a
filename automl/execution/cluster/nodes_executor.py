"""Trials on the nodes of a cluster: to the sweep an executor as any other.

A thread of the pool follows each execution as it follows one of this machine's workers; what it
hears comes from the node's agent, and what the sweep says goes back to it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from automl.execution.checkpoint_store import CheckpointStore
from automl.execution.cluster import node_files
from automl.execution.cluster import node_messages as m
from automl.execution.cluster.node import ClusterNode, NodeLost
from automl.execution.cluster.nodes import ClusterNodes
from automl.execution.executor import ExecutorCapabilities
from automl.execution.worker_process import WorkerLimits
from automl.record.lease import TrialFolderFence
from automl.record.texts import fit_line
from automl.trial import (
    AnsweringTrialSource,
    CheckpointWritten,
    DeviceId,
    InterruptedOutcome,
    OnEvents,
    Placement,
    ProcessEntry,
    ProcessId,
    TrialEvent,
    TrialOutcome,
    TrialSpec,
    Verdict,
)

_MARKER = ".automl-shared"


class NodesExecutor:
    """Carries each trial, or pack of trials, out on the node of its placement."""

    can = ExecutorCapabilities(own_process=True, timeouts=True, own_output=True, packs=True)

    def __init__(
        self,
        nodes: ClusterNodes,
        entry: ProcessEntry,
        study: Path,
        limits: WorkerLimits,
        *,
        stored: CheckpointStore | None = None,
        stores_shared: bool = False,
    ) -> None:
        """`stored` and the next are as `NodeSetup` has them."""
        self._nodes, self._study, self._stored = nodes, study, stored
        self._marker = study / _MARKER
        marked = secrets.token_hex(16)
        self._marker.write_text(marked)
        where = str(study.absolute())
        work = m.NodeSetup(limits, where, _MARKER, marked, stored, stores_shared)
        nodes.set_up(entry, work)

    def execute(
        self, feed: AnsweringTrialSource, placement: Placement, on_events: OnEvents
    ) -> None:
        specs = [*map(_from_anywhere, feed.ahead())]
        key = specs[0].number
        node = self._nodes.by_name(placement.node)
        if node is None:
            _NodeExecution(feed, on_events).lost(f"node {placement.node} is lost")
            return
        if not self._nodes.claims.use(key, placement.devices):
            _NodeExecution(feed, on_events).lost(
                "its place was given back to the cluster meanwhile"
            )
            return
        try:
            self._carry(node, specs, feed, placement, on_events)
        finally:
            self._nodes.claims.over(key)

    def _carry(
        self,
        node: ClusterNode,
        specs: Sequence[TrialSpec],
        feed: AnsweringTrialSource,
        placement: Placement,
        on_events: OnEvents,
    ) -> None:
        key = specs[0].number
        execution = _NodeExecution(feed, on_events, self._study, node, self._stored)
        kept = execution.kept_of(specs)
        conversation = node.begin(m.BeginExecution(key, specs, feed.n_lanes, placement, kept))
        try:
            while not isinstance(message := conversation.get(), m.ExecutionOver | NodeLost):
                execution.take(message)
        finally:
            node.over(key)
        execution.end(message)

    def held_bytes(self) -> Mapping[tuple[DeviceId, ProcessId], int]:
        """See `Executor.held_bytes`. Nothing: each node's readings say it, as of the same time."""
        return {}

    def n_steps(self) -> Mapping[int, int]:
        """See `Executor.n_steps`."""
        return {key: n for node in self._nodes.present() for key, n in node.n_steps.items()}

    def cap_memory(self, caps: Mapping[int, Mapping[DeviceId, int]]) -> None:
        """See `Executor.cap_memory`."""
        for node in self._nodes.present():
            # What names no device any more is capped nowhere, wherever it runs.
            own = {
                key: {**of_key}
                for key, of_key in caps.items()
                if not of_key or any(device.node == node.name for device in of_key)
            }
            if own:
                node.tell(m.CapMemory(own))

    def stop_trials(self) -> None:
        """See `Executor.stop_trials`."""
        self._nodes.tell(m.StopTrials())

    def kill(self, cause: str) -> bool:
        """See `Executor.kill`."""
        self._nodes.tell(m.KillWorkers(cause))
        return True

    def end_trials(self, trials: Collection[int], cause: str) -> None:
        """See `Executor.end_trials`."""
        self._nodes.tell(m.EndTrials(frozenset(trials), cause))

    def lease(self, until_seconds: float) -> None:
        """See `Executor.lease`. An agent that does not hear of the sweep ends its trials sooner."""

    def idle(self) -> Mapping[tuple[DeviceId, ...], Sequence[ProcessId]]:
        """See `Executor.idle`."""
        return {place: who for node in self._nodes.present() for place, who in node.idle.items()}

    def end_idle(self, devices: Collection[DeviceId]) -> None:
        """See `Executor.end_idle`."""
        self._nodes.tell(m.EndIdle(frozenset(devices)))

    def close(self) -> None:
        """The nodes are closed by whoever opened them."""
        self._marker.unlink(missing_ok=True)


class _NodeExecution:
    """What one execution says, and is told. In its thread of the pool."""

    def __init__(
        self,
        feed: AnsweringTrialSource,
        on_events: OnEvents,
        study: Path | None = None,
        node: ClusterNode | None = None,
        stored: CheckpointStore | None = None,
    ) -> None:
        self._feed, self._on_events = feed, on_events
        self._study, self._node, self._stored = study, node, stored
        self._live: dict[int, TrialSpec] = {}
        self._error: BaseException | None = None

    def take(self, message: m.FromExecution) -> None:
        """What this side raises is told there, and raised when the execution has ended."""
        match message:
            case m.TrialTaken(number=number):
                self._tried(lambda: self._next(number))
            case m.EventsNoted():
                self._tried(lambda: self._noted(message))
            case m.EventsAwaitingVerdict(call=call):
                self._reply(call, lambda: self._happened(message))
            case m.NextTrialWanted(call=call):
                self._reply(call, self._given)
            case m.TrialQuestion(call=call, question=question):
                self._reply(call, lambda: self._feed.answer(question))

    def end(self, message: m.FromExecution | NodeLost) -> None:
        """The last word. Raises what either side has raised."""
        if isinstance(message, NodeLost) and self._error is None:
            self.lost(f"node {self._node.name if self._node else '?'} is lost: {message.cause}")
        if self._error is not None:
            raise self._error
        if isinstance(message, m.ExecutionOver) and message.error is not None:
            raise message.error

    def lost(self, cause: str) -> None:
        """Trials that run there go on elsewhere; so does the one that was to."""
        if not self._live and self._feed.ahead():
            self._next()
        now, text = time.time(), fit_line(cause)
        interrupted = [InterruptedOutcome(n, now, text, node_lost=True) for n in sorted(self._live)]
        if interrupted:
            self._on_events(interrupted)

    def _next(self, number: int | None = None) -> None:
        spec = self._feed.next()
        assert spec is not None, "it was ahead"
        assert number in (None, spec.number), "both sides take them in one order"
        self._live[spec.number] = spec

    def _happened(self, message: m.EventsAwaitingVerdict | m.EventsNoted) -> Mapping[int, Verdict]:
        assert self._study is not None
        fences = [TrialFolderFence(Path(s.checkpoint_dir), s.attempt) for s in self._live.values()]
        node_files.put_files(self._study, message.files, fences)
        for event in message.events:
            if isinstance(event, TrialOutcome):
                self._live.pop(event.trial, None)
        verdicts = self._on_events([self._as_here(event) for event in message.events])
        return dict(verdicts)

    def _noted(self, message: m.EventsNoted) -> None:
        verdicts = self._happened(message)
        if any(verdict is not Verdict.GO_ON for verdict in verdicts.values()):
            assert self._node is not None
            self._node.tell(m.EventsJudged(message.key, verdicts))

    def _as_here(self, event: TrialEvent) -> TrialEvent:
        """A checkpoint's path as this side names the study's folder."""
        if not isinstance(event, CheckpointWritten) or self._study is None:
            return event
        path = Path(event.path).relative_to(self._study.absolute())
        return replace(event, path=str(self._study / path))

    def _given(self) -> m.NextTrialGiven:
        assert self._study is not None
        spec = self._feed.next()
        if spec is None:
            return m.NextTrialGiven(None)
        self._live[spec.number] = spec
        spec = _from_anywhere(spec)
        return m.NextTrialGiven(spec, self.kept_of([spec]))

    def kept_of(self, specs: Sequence[TrialSpec]) -> m.Files:
        """What the node has to be sent of them. In the study's folder is all by then that is kept
        of them anywhere. Raises StorageError."""
        if self._stored is not None:
            for spec in specs:
                if not spec.is_first:
                    self._stored.bring(spec)
        if self._study is None or self._node is None or self._node.shares_folder:
            return {}
        return node_files.stored_files_of(self._study.absolute(), specs)

    def _reply(self, call: int, answer: Callable[[], object]) -> None:
        assert self._node is not None
        value = self._tried(answer)
        error = None if self._error is None else f"{type(self._error).__name__}: {self._error}"
        self._node.tell(m.CallReplied(call, value, error))

    def _tried(self, answer: Callable[[], object]) -> object:
        """Nothing more is tried once something has failed."""
        if self._error is None:
            try:
                return answer()
            except BaseException as error:  # noqa: BLE001 - raised by `end`
                self._error = error
        return None


def _from_anywhere(spec: TrialSpec) -> TrialSpec:
    """Agents have a working directory of their own."""
    return replace(spec, checkpoint_dir=str(Path(spec.checkpoint_dir).absolute()))
