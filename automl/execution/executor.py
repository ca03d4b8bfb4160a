"""The contract of executors, and the resolving of an entry in the process that trains.

An executor carries out admitted trials. It knows neither studies nor devices nor torch: it is
given a feed of trials and a placement, and tells all that happens by events.
"""

from __future__ import annotations

import pkgutil
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

from automl.trial import (
    AnsweringTrialSource,
    DeviceId,
    ObjectiveSession,
    OnEvents,
    ParamRefusal,
    Placement,
    ProcessEntry,
    ProcessId,
    Question,
    Reply,
    TrialSpec,
)


@dataclass(frozen=True)
class ExecutorCapabilities:
    """What an executor can do; the contract suite checks just these."""

    own_process: bool
    """A trial that kills its process costs that process only."""
    timeouts: bool
    """A trial that hangs can be ended."""
    own_output: bool
    """What a trial prints is kept apart."""
    packs: bool
    """Trials of one kind train as one batched model."""


class Executor(Protocol):
    """Carries out admitted trials; called from many pool threads at once."""

    can: ExecutorCapabilities

    def execute(
        self, feed: AnsweringTrialSource, placement: Placement, on_events: OnEvents
    ) -> None:
        """Carry out the feed's first trial (and more of its kind where it can pack).

        Every trial taken from the feed gets exactly one `TrialOutcome`, its last event. A verdict
        that
        `on_events` returns reaches the trial at its next report at the latest. Raises only what
        `on_events` raises, and its own defects.
        """

    def held_bytes(self) -> Mapping[tuple[DeviceId, ProcessId], int]:
        """Memory that our processes hold now of their devices. Any thread."""

    def n_steps(self) -> Mapping[int, int]:
        """Steps of training that the process of each execution has taken in its life, by the number
        of its first trial; who is not named does not tell. Any thread."""

    def cap_memory(self, caps: Mapping[int, Mapping[DeviceId, int]]) -> None:
        """From now on these executions, which run or are about to begin, may take no more than that
        of each device that is named, by the numbers of their first trials; for others what was said
        last stays. Any thread."""

    def stop_trials(self) -> None:
        """Tell all running trials to stop at their next report."""

    def kill(self, cause: str) -> bool:
        """End running trials now, as interrupted for `cause`, and those that are just about to
        begin; False where that cannot be done."""

    def end_trials(self, trials: Collection[int], cause: str) -> None:
        """End these trials now, where they run, as interrupted for `cause`; others of their packs
        go on alone. Those that are just about to begin, and what cannot be ended, run on. Any
        thread."""

    def lease(self, until_seconds: float) -> None:
        """The sweep's trials are its own until then (`lease_seconds()`): what trains in processes
        of their own ends by itself when that has passed, be this process stopped. Any thread."""

    def idle(self) -> Mapping[tuple[DeviceId, ...], Sequence[ProcessId]]:
        """Processes kept warm for trials to come, by their devices. Any thread."""

    def end_idle(self, devices: Collection[DeviceId]) -> None:
        """Give back what is kept for trials to come. Any thread."""

    def close(self) -> None:
        """Give back processes and memory. No trial is running any more."""


def _nobody_answers(question: Question) -> Reply:
    return ParamRefusal("nobody here draws params")


class TrialFeed:
    """The trials of one execution: those it starts with, and those added while it runs."""

    def __init__(
        self,
        specs: Sequence[TrialSpec],
        on_take: Callable[[TrialSpec], None],
        answer: Callable[[Question], Reply] = _nobody_answers,
    ) -> None:
        self._specs = deque(specs)  # added to by the main thread, taken from by one pool thread
        self._on_take = on_take
        self.answer = answer
        """See `automl.trial.AnsweringTrialSource`."""
        self.n_lanes = len(specs)

    def add(self, spec: TrialSpec) -> None:
        self._specs.append(spec)

    def ahead(self) -> Sequence[TrialSpec]:
        """See `automl.trial.AnsweringTrialSource`."""
        return tuple(self._specs)

    def next(self) -> TrialSpec | None:
        """See `automl.trial.TrialSource`."""
        try:
            spec = self._specs.popleft()
        except IndexError:
            return None
        self._on_take(spec)
        return spec


def resolve_entry(target: str) -> Callable[[object], Any]:
    """The function that `module:function` names; its module is imported."""
    function: Callable[[object], Any] = pkgutil.resolve_name(target)
    return function


def open_session(entry: ProcessEntry) -> ObjectiveSession:
    """Make the entry's objective ready in this process."""
    return cast(ObjectiveSession, resolve_entry(entry.target)(entry.config))
