"""Runs trials in the sweep's own process, side by side in the threads of its pool.

This is for debugging, and for objectives that cannot be sent to another process. A trial that kills
its process kills the sweep, and a trial that hangs cannot be ended; both go on at the next
`resume`.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from automl.execution.executor import ExecutorCapabilities, open_session
from automl.execution.isolation.trial_isolation import ThreadIsolation
from automl.execution.trial_output import append_failure
from automl.record.study_files import trial_log_name
from automl.trial import (
    AnsweringTrialSource,
    DeviceId,
    FailedOutcome,
    ObjectiveSession,
    OnEvents,
    Placement,
    ProcessEntry,
    ProcessId,
    Question,
    Reply,
    TrialEvent,
    Verdict,
    single_event_handler,
)


class InlineExecutor:
    """Opens the objective once, on the first trial, and runs every trial in the caller's thread."""

    can = ExecutorCapabilities(own_process=False, timeouts=False, own_output=False, packs=False)

    def __init__(self, entry: ProcessEntry, output_directory: Path) -> None:
        self._entry, self._output = entry, output_directory
        self._session: ObjectiveSession | None = None
        self._opening = threading.Lock()

    def execute(
        self, feed: AnsweringTrialSource, placement: Placement, on_events: OnEvents
    ) -> None:
        spec = feed.next()
        assert spec is not None, "an executor is called with a trial in its feed"

        tell = single_event_handler(on_events)

        def on_event(event: TrialEvent) -> Verdict:
            if isinstance(event, FailedOutcome):
                append_failure(self._output / trial_log_name(event.trial), event)
            return tell(event)

        self.session().run(spec, placement, on_event, _SameProcessChannel(feed))

    def session(self) -> ObjectiveSession:
        with self._opening:
            if self._session is None:
                self._session = open_session(self._entry)
                self._session.keep_apart(ThreadIsolation())
            return self._session

    def held_bytes(self) -> Mapping[tuple[DeviceId, ProcessId], int]:
        return {}

    def n_steps(self) -> Mapping[int, int]:
        """Return nothing: the steps of trials in one process cannot be told apart."""
        return {}

    def cap_memory(self, caps: Mapping[int, Mapping[DeviceId, int]]) -> None:
        """Do nothing: torch counts memory by process, and all trials are in this one."""

    def stop_trials(self) -> None:
        """Do nothing: each trial gets the verdict to stop as the answer to its next report."""

    def kill(self, cause: str) -> bool:
        """Return False, since threads cannot be ended."""
        return False

    def end_trials(self, trials: Collection[int], cause: str) -> None:
        """Do nothing: each trial gets the verdict to stop as the answer to its next report."""

    def lease(self, until_seconds: float) -> None:
        """Do nothing: whatever stops this process stops its trials."""

    def idle(self) -> Mapping[tuple[DeviceId, ...], Sequence[ProcessId]]:
        return {}

    def end_idle(self, devices: Collection[DeviceId]) -> None:
        """Do nothing: the only process is the sweep's."""

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None


class _SameProcessChannel:
    """Passes a trial's questions to its feed (an `automl.trial.SweepChannel`).

    In the sweep's own process each event is answered when it is reported, so that no later verdict
    has to be asked for.
    """

    def __init__(self, feed: AnsweringTrialSource) -> None:
        self._feed = feed

    def ask(self, question: Question) -> Reply:
        return self._feed.answer(question)

    def verdict(self, trial: int) -> Verdict:
        return Verdict.GO_ON
