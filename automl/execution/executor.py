"""Defines what an executor must do, and has the simplest one, which runs trials in its own process.

An executor carries out admitted trials. It knows neither studies nor devices nor torch: it is
given a feed of trials and a placement, and reports all that happens by events. The module also
resolves the entry of a process.
"""

from __future__ import annotations

import pkgutil
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from automl.execution.trial_isolation import ThreadIsolation
from automl.execution.trial_output import append_failure
from automl.record.study_files import trial_log_name
from automl.trial import (
    DeviceId,
    ExecutionFeed,
    FailedOutcome,
    ObjectiveSession,
    OnEvents,
    ParamRefusal,
    Placement,
    ProcessEntry,
    ProcessId,
    Question,
    Reply,
    TrialEvent,
    TrialSpec,
    Verdict,
    single_event_handler,
)


@dataclass(frozen=True)
class ExecutorCapabilities:
    """Tells what an executor can do; the contract suite checks exactly these promises."""

    own_process: bool
    """Whether a trial that kills its process costs that process only."""
    timeouts: bool
    """Whether a trial that hangs can be ended."""
    own_output: bool
    """Whether the printed output of each trial is kept apart."""
    packs: bool
    """Whether trials of one kind can train as one batched model."""


class Executor(Protocol):
    """Carries out admitted trials; many pool threads call it at once."""

    can: ExecutorCapabilities

    def execute(self, feed: ExecutionFeed, placement: Placement, on_events: OnEvents) -> None:
        """Carry out the feed's first trial (and more of its kind where it can pack).

        Every trial taken from the feed gets exactly one `TrialOutcome`, its last event. A verdict
        that `on_events` returns reaches the trial at its next report at the latest. Raises only
        what `on_events` raises, and its own defects.
        """

    def held_bytes(self) -> Mapping[tuple[DeviceId, ProcessId], int]:
        """Return the memory that our processes hold now of their devices. Any thread."""

    def n_steps(self) -> Mapping[int, int]:
        """Return the training steps that the process of each execution has taken in its life.

        Keys are those of the executions' feeds; an execution that cannot tell is left out. Any
        thread.
        """

    def cap_memory(self, caps: Mapping[int, Mapping[DeviceId, int]]) -> None:
        """Cap the bytes that running or starting executions may take of each named device.

        Keys are those of the executions' feeds. Caps of executions that are not named stay as they
        were. Any thread.
        """

    def stop_trials(self) -> None:
        """Tell all running trials to stop at their next report."""

    def kill(self, cause: str) -> bool:
        """End running and starting trials now, as interrupted for `cause`.

        Returns False where trials cannot be ended.
        """

    def end_trials(self, trials: Collection[int], cause: str) -> None:
        """End these trials now, where they run, as interrupted for `cause`.

        Other trials of their packs go on alone. Trials that are just about to begin, and trials
        that cannot be ended, run on. Any thread.
        """

    def lease(self, until_seconds: float) -> None:
        """Extend the lease of the sweep's trials until then, by the clock of `lease_seconds()`.

        Worker processes end by themselves when the lease is over, even if this process is stopped.
        Any thread.
        """

    def idle(self) -> Mapping[tuple[DeviceId, ...], Sequence[ProcessId]]:
        """Return the processes kept warm for later trials, by their devices. Any thread."""

    def end_idle(self, devices: Collection[DeviceId]) -> None:
        """End the processes that are kept warm on these devices. Any thread."""

    def renew(self, entry: ProcessEntry) -> None:
        """Train further trials by another entry, since the study was edited. Running ones go on.

        Raises ConfigError where no process can be replaced. Any thread.
        """

    def close(self) -> None:
        """Give back processes and memory. Call it when no trial runs any more."""


def _refuse_params(question: Question) -> Reply:
    return ParamRefusal("nobody here draws params")


class TrialFeed:
    """Feeds an execution its trials: the ones it starts with, and the ones added while it runs.

    It is an `automl.trial.ExecutionFeed`.
    """

    def __init__(
        self,
        specs: Sequence[TrialSpec],
        on_take: Callable[[TrialSpec], None],
        answer: Callable[[Question], Reply] = _refuse_params,
        *,
        key: int | None = None,
    ) -> None:
        """Begin with these trials. `key` is by default the number of the first one."""
        self.key = specs[0].number if key is None else key
        self._specs = deque(specs)  # the main thread adds, one pool thread takes
        self._on_take = on_take
        self.answer = answer
        self.n_lanes = len(specs)

    def add(self, spec: TrialSpec) -> None:
        self._specs.append(spec)

    def ahead(self) -> Sequence[TrialSpec]:
        return tuple(self._specs)

    def next(self) -> TrialSpec | None:
        try:
            spec = self._specs.popleft()
        except IndexError:
            return None
        self._on_take(spec)
        return spec


def resolve_entry(target: str) -> Callable[[object], Any]:
    """Import the module that `module:function` names, and return the function."""
    function: Callable[[object], Any] = pkgutil.resolve_name(target)
    return function


def open_session(entry: ProcessEntry) -> ObjectiveSession:
    """Make the entry's objective ready in this process, and return its session."""
    return cast(ObjectiveSession, resolve_entry(entry.target)(entry.config))


class InlineExecutor:
    """Runs trials in the sweep's own process, side by side in the threads of its pool.

    It is for debugging, and for objectives that cannot be sent to another process. The objective is
    opened once, on the first trial. A trial that kills its process kills the sweep, and a trial
    that hangs cannot be ended; both go on at the next `resume`.
    """

    can = ExecutorCapabilities(own_process=False, timeouts=False, own_output=False, packs=False)

    def __init__(self, entry: ProcessEntry, output_directory: Path) -> None:
        self._entry, self._output = entry, output_directory
        self._session: ObjectiveSession | None = None
        self._opening = threading.Lock()

    def execute(self, feed: ExecutionFeed, placement: Placement, on_events: OnEvents) -> None:
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

    def renew(self, entry: ProcessEntry) -> None:
        with self._opening:
            self._entry, self._session = entry, None

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = None


class _SameProcessChannel:
    """Passes a trial's questions to its feed (an `automl.trial.SweepChannel`).

    In the sweep's own process each event is answered when it is reported, so that no verdict has to
    be fetched later.
    """

    def __init__(self, feed: ExecutionFeed) -> None:
        self._feed = feed

    def ask(self, question: Question) -> Reply:
        return self._feed.answer(question)

    def verdict(self, trial: int) -> Verdict:
        return Verdict.GO_ON
