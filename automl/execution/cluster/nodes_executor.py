"""Runs trials on the nodes of a cluster; to the sweep it is an executor like any other.

A pool thread follows each execution as it follows a worker of this machine: events come from the
node's agent, and the sweep's answers go back to it. The agent supervises the workers (`agent.py`).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from automl.errors import ConfigError
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
    CheckpointWritten,
    DeviceId,
    ExecutionFeed,
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
    """Carries out each trial, or pack of trials, on the node of its placement."""

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
        """Prepare the nodes. `stored` and `stores_shared` are passed on in `NodeSetup`."""
        self._nodes, self._study, self._stored = nodes, study, stored
        self._marker = study / _MARKER
        marker_content = secrets.token_hex(16)
        self._marker.write_text(marker_content)
        study_path = str(study.absolute())
        work = m.NodeSetup(limits, study_path, _MARKER, marker_content, stored, stores_shared)
        nodes.set_up(entry, work)

    def execute(self, feed: ExecutionFeed, placement: Placement, on_events: OnEvents) -> None:
        node = self._nodes.by_name(placement.node)
        if node is None:
            _NodeExecution(feed, on_events).interrupt(f"node {placement.node} is lost")
            return
        if not self._nodes.claims.use(feed.key, placement.devices):
            _NodeExecution(feed, on_events).interrupt(
                "its place was given back to the cluster meanwhile"
            )
            return
        try:
            self._carry(node, feed, placement, on_events)
        finally:
            self._nodes.claims.end_use(feed.key)

    def _carry(
        self,
        node: ClusterNode,
        feed: ExecutionFeed,
        placement: Placement,
        on_events: OnEvents,
    ) -> None:
        key, specs = feed.key, [*map(_with_absolute_folder, feed.ahead())]
        execution = _NodeExecution(feed, on_events, self._study, node, self._stored)
        files = execution.stored_files_of(specs)
        conversation = node.begin(m.BeginExecution(key, specs, feed.n_lanes, placement, files))
        try:
            while not isinstance(message := conversation.get(), m.ExecutionOver | NodeLost):
                execution.take(message)
        finally:
            node.end_conversation(key)
        execution.end(message)

    def held_bytes(self) -> Mapping[tuple[DeviceId, ProcessId], int]:
        """Return nothing: the readings of each node contain it, measured at the same time."""
        return {}

    def n_steps(self) -> Mapping[int, int]:
        return {key: n for node in self._nodes.present() for key, n in node.n_steps.items()}

    def cap_memory(self, caps: Mapping[int, Mapping[DeviceId, int]]) -> None:
        for node in self._nodes.present():
            # Empty caps go to every node: their execution has no cap any more, wherever it runs.
            own = {
                key: {**device_caps}
                for key, device_caps in caps.items()
                if not device_caps or any(device.node == node.name for device in device_caps)
            }
            if own:
                node.tell(m.CapMemory(own))

    def stop_trials(self) -> None:
        self._nodes.tell(m.StopTrials())

    def kill(self, cause: str) -> bool:
        self._nodes.tell(m.KillWorkers(cause))
        return True

    def end_trials(self, trials: Collection[int], cause: str) -> None:
        self._nodes.tell(m.EndTrials(frozenset(trials), cause))

    def lease(self, until_seconds: float) -> None:
        """Do nothing: an agent that is not polled by the sweep ends its trials sooner."""

    def idle(self) -> Mapping[tuple[DeviceId, ...], Sequence[ProcessId]]:
        return {
            devices: processes
            for node in self._nodes.present()
            for devices, processes in node.idle.items()
        }

    def end_idle(self, devices: Collection[DeviceId]) -> None:
        self._nodes.tell(m.EndIdle(frozenset(devices)))

    def renew(self, entry: ProcessEntry) -> None:
        raise ConfigError(
            "execution=ray: the nodes know the study's params by name. Stop this sweep (Ctrl-C), "
            "then add or take out the param, and resume the study."
        )

    def close(self) -> None:
        """Remove the marker file; the nodes are closed by the code that opened them."""
        self._marker.unlink(missing_ok=True)


class _NodeExecution:
    """Handles the messages of one execution on a node, in the pool thread of the execution."""

    def __init__(
        self,
        feed: ExecutionFeed,
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
        """Handle a message of the execution.

        An error on this side is sent to the node, and raised by `end` when the execution has ended.
        """
        match message:
            case m.TrialTaken(number=number):
                self._attempt(lambda: self._take_next(number))
            case m.EventsNoted():
                self._attempt(lambda: self._handle_unjudged(message))
            case m.EventsAwaitingVerdict(call=call):
                self._reply(call, lambda: self._handle_events(message))
            case m.NextTrialWanted(call=call):
                self._reply(call, self._next_trial)
            case m.TrialQuestion(call=call, question=question):
                self._reply(call, lambda: self._feed.answer(question))

    def end(self, message: m.FromExecution | NodeLost) -> None:
        """Handle the execution's last message. Raises what either side has raised."""
        if isinstance(message, NodeLost) and self._error is None:
            self.interrupt(
                f"node {self._node.name if self._node else '?'} is lost: {message.cause}"
            )
        if self._error is not None:
            raise self._error
        if isinstance(message, m.ExecutionOver) and message.error is not None:
            raise message.error

    def interrupt(self, cause: str) -> None:
        """Report the running trials as interrupted, so that they go on elsewhere.

        The first trial is reported, too, if it was only about to begin.
        """
        if not self._live and self._feed.ahead():
            self._take_next()
        now, text = time.time(), fit_line(cause)
        interrupted = [InterruptedOutcome(n, now, text, node_lost=True) for n in sorted(self._live)]
        if interrupted:
            self._on_events(interrupted)

    def _take_next(self, number: int | None = None) -> None:
        spec = self._feed.next()
        assert spec is not None, "the trial was ahead"
        assert number in (None, spec.number), "both sides take trials in one order"
        self._live[spec.number] = spec

    def _handle_events(
        self, message: m.EventsAwaitingVerdict | m.EventsNoted
    ) -> Mapping[int, Verdict]:
        assert self._study is not None
        fences = [TrialFolderFence(Path(s.checkpoint_dir), s.attempt) for s in self._live.values()]
        node_files.put_files(self._study, message.files, fences)
        for event in message.events:
            if isinstance(event, TrialOutcome):
                self._live.pop(event.trial, None)
        verdicts = self._on_events([self._with_local_path(event) for event in message.events])
        return dict(verdicts)

    def _handle_unjudged(self, message: m.EventsNoted) -> None:
        verdicts = self._handle_events(message)
        if any(verdict is not Verdict.GO_ON for verdict in verdicts.values()):
            assert self._node is not None
            self._node.tell(m.EventsJudged(message.key, verdicts))

    def _with_local_path(self, event: TrialEvent) -> TrialEvent:
        """Return the event, with a checkpoint's path below the study's folder as named here."""
        if not isinstance(event, CheckpointWritten) or self._study is None:
            return event
        path = Path(event.path).relative_to(self._study.absolute())
        return replace(event, path=str(self._study / path))

    def _next_trial(self) -> m.NextTrialGiven:
        assert self._study is not None
        spec = self._feed.next()
        if spec is None:
            return m.NextTrialGiven(None)
        self._live[spec.number] = spec
        spec = _with_absolute_folder(spec)
        return m.NextTrialGiven(spec, self.stored_files_of([spec]))

    def stored_files_of(self, specs: Sequence[TrialSpec]) -> m.Files:
        """Return the trials' stored files that have to be sent to the node.

        Files in the checkpoint store are fetched to the study's folder first. Raises StorageError.
        """
        if self._stored is not None:
            for spec in specs:
                if not spec.is_first:
                    self._stored.bring(spec)
        if self._study is None or self._node is None or self._node.shares_folder:
            return {}
        return node_files.stored_files_of(self._study.absolute(), specs)

    def _reply(self, call: int, answer: Callable[[], object]) -> None:
        assert self._node is not None
        value = self._attempt(answer)
        error = None if self._error is None else f"{type(self._error).__name__}: {self._error}"
        self._node.tell(m.CallReplied(call, value, error))

    def _attempt(self, action: Callable[[], object]) -> object:
        """Call `action` and keep its error; do nothing once an earlier one has failed."""
        if self._error is None:
            try:
                return action()
            except BaseException as error:  # noqa: BLE001 - raised by `end`
                self._error = error
        return None


def _with_absolute_folder(spec: TrialSpec) -> TrialSpec:
    """Return the trial with an absolute folder: agents have a working directory of their own."""
    return replace(spec, checkpoint_dir=str(Path(spec.checkpoint_dir).absolute()))
