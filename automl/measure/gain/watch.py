"""Sees a trial's steps and reports as they come, and ends it when the time is up.

When the device has done what it was told: of the host the time, of a GPU an event in its stream.

Waiting for a GPU after each step would time another training than the one that will run: steps are
told ahead there. The events are read when all is done.

From the moments at which steps ended to the time of a step and of a whole trial. Pure.

A machine that is shared stalls a process now and then, so times are medians. Of single steps these
would miss the stalls that every long stretch has, so they are taken over stretches
(`ROUND_SECONDS`) that are longer than a time slice of the kernel.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Protocol, TypeVar

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from automl.objectives.reports import step_counter
from automl.trial import (
    FailedOutcome,
    FinishedOutcome,
    MetricsReported,
    OutOfMemoryOutcome,
    TrialEvent,
    TrialOutcome,
    Verdict,
)

MarkT = TypeVar("MarkT")

_N_AHEAD = 8
"""Steps that a GPU may be behind: deciding when to stop needs to know about where it is."""


class DeviceClock(Protocol[MarkT]):
    """For one execution."""

    def mark(self) -> MarkT:
        """The moment at which the device will have done all that it was told so far."""

    def finish(self) -> MarkT:
        """The same, and wait for it."""

    def reader(self) -> Callable[[MarkT], float]:
        """Turns marks into seconds, all on one scale. After `finish`."""


class HostClock:
    """Nothing is told ahead: it has been done."""

    def mark(self) -> float:
        return time.perf_counter()

    finish = mark

    def reader(self) -> Callable[[float], float]:
        return lambda mark: mark


class CudaClock:
    """Events of the current stream (CUDA C++ Programming Guide, Events); never ran so far."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        self._begun: torch.cuda.Event | None = None
        self._recent: deque[torch.cuda.Event] = deque()

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        if self._begun is None:
            self._begun = event
        self._recent.append(event)
        if len(self._recent) > _N_AHEAD:
            self._recent.popleft().synchronize()
        return event

    def finish(self) -> torch.cuda.Event:
        event = self.mark()
        torch.cuda.synchronize(self._device)
        return event

    def reader(self) -> Callable[[torch.cuda.Event], float]:
        begun = self._begun
        assert begun is not None, "nothing was marked"

        def seconds(event: torch.cuda.Event) -> float:
            milliseconds: float = begun.elapsed_time(event)
            return milliseconds / 1000

        return seconds


def device_clock(device: str) -> DeviceClock[object]:
    """For `cpu`, or `cuda:0`."""
    clock: DeviceClock[object] = HostClock() if device == "cpu" else CudaClock(device)  # type: ignore[assignment]
    return clock


ROUND_SECONDS = 0.05


@dataclass(frozen=True)
class TimedExecution:
    """One execution of a trial (or pack), seconds on one clock."""

    begun: float
    passes: tuple[tuple[float, ...], ...]
    """When each step ended, a tuple for each epoch; an epoch may have been cut short."""
    ended: float
    """With its checkpoints written."""
    whole: bool = False
    """It ran to its end by itself."""


def measured_step_seconds(calls: Sequence[TimedExecution]) -> float | None:
    """From the end of a step to that of the next; None: fewer than two were seen."""
    within = [(p[-1] - p[0], len(p) - 1) for call in calls for p in call.passes if len(p) > 1]
    return _rate(within or _between(calls))


def estimate_trial_seconds(
    calls: Sequence[TimedExecution], n_epochs: int, n_steps: int
) -> float | None:
    """A trial of so many epochs of so many steps, its start, looks at the validation part, reports
    and checkpoints included; None: too little was seen."""
    seen = [call for call in calls if any(call.passes)]
    step = measured_step_seconds(seen)
    if step is None:
        return None
    lead = median(_first(call) - call.begun for call in seen)
    tail = median(call.ended - _last(call) for call in seen)
    between = _rate(_between(seen))
    if between is None:
        between = tail + step  # of one epoch only: its end had a look and a report, too
    return lead + n_epochs * (n_steps - 1) * step + (n_epochs - 1) * between + tail


def whole_trial_seconds(calls: Sequence[TimedExecution]) -> float | None:
    """A trial that was seen from its start to its end; None: none was."""
    return median(s) if (s := [call.ended - call.begun for call in calls if call.whole]) else None


def _between(calls: Sequence[TimedExecution]) -> list[tuple[float, int]]:
    """From the last step of an epoch to the first of the next."""
    filled = [[p for p in call.passes if p] for call in calls]
    return [(b[0] - a[-1], 1) for passes in filled for a, b in pairwise(passes)]


def _rate(stretches: Iterable[tuple[float, int]]) -> float | None:
    """Seconds apiece of (seconds, count): the median over rounds; None: there are none."""
    rounds: list[float] = []
    seconds, n = 0.0, 0
    for more_seconds, more in stretches:
        seconds, n = seconds + more_seconds, n + more
        if seconds >= ROUND_SECONDS:
            rounds.append(seconds / n)
            seconds, n = 0.0, 0
    if not rounds and n:
        rounds.append(seconds / n)
    return median(rounds) if rounds else None


def _first(call: TimedExecution) -> float:
    return next(p[0] for p in call.passes if p)


def _last(call: TimedExecution) -> float:
    return next(p[-1] for p in reversed(call.passes) if p)


PASS_SECONDS = 0.25
"""After so long a pass of our own trainers is left: it goes on alike."""


class TimingOverError(
    BaseException
):  # BaseException: `except Exception` in an objective lets it pass
    """Raised in an objective of the user's when its time is up."""


class ExecutionWatch:
    """Of one execution, which is to end after so many seconds, at a report or a step."""

    def __init__(
        self,
        clock: DeviceClock[object],
        seconds: float,
        *,
        cuts: bool,
        least_steps: int = 2,
        pass_seconds: float = PASS_SECONDS,
    ) -> None:
        """`cuts`: passes of our own trainers are left after `pass_seconds` and `least_steps`;
        between two lies the time of one. A user's function has its time from its first step or
        report on: it may read its data before."""
        self._clock, self._cuts = clock, cuts
        self._passes: list[list[object]] = [[]]
        self._reports: list[object] = []
        self._outcomes: list[TrialOutcome] = []
        self._least_steps = least_steps
        self._seconds, self._pass_seconds = seconds, pass_seconds
        self._ends = time.perf_counter() + seconds if cuts else None
        self._pass_begun = time.perf_counter()
        self._left_a_pass = self._ended_it = False
        """It did less than a trial does; it ends since its time is up."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """All steps in this process are this trial's meanwhile."""
        self._begun = self._clock.mark()
        with ExitStack() as stack:
            if self._cuts:
                stack.enter_context(step_counter.listen_to_steps(self._told))
            else:
                hook = register_optimizer_step_post_hook(self._hooked)
                stack.callback(hook.remove)
            yield
        self._end = self._clock.finish()

    def on_events(self, events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        """For a pack, whose lanes' reports of an epoch come together."""
        self._outcomes += [event for event in events if isinstance(event, TrialOutcome)]
        reported = [event for event in events if isinstance(event, MetricsReported)]
        if not reported:
            return {}
        verdict = self._reported()
        return {event.trial: verdict for event in reported}

    @property
    def per_report(self) -> bool:
        """No optimizer of torch's took a step."""
        return not any(self._passes) and bool(self._reports)

    @property
    def trouble(self) -> str | None:
        """Why it failed, where it was not ended by us."""
        if self._ended_it:
            return None
        failed = [o for o in self._outcomes if isinstance(o, FailedOutcome | OutOfMemoryOutcome)]
        return failed[0].cause if failed else None

    def call(self) -> TimedExecution:
        """What was seen, after the end."""
        read = self._clock.reader()
        passes = [self._reports] if self.per_report else self._passes
        finished = all(isinstance(o, FinishedOutcome) for o in self._outcomes) and bool(
            self._outcomes
        )
        return TimedExecution(
            read(self._begun),
            tuple(tuple(map(read, marks)) for marks in passes if marks),
            read(self._end),
            whole=finished and not self._left_a_pass,
        )

    def _told(self, weights: torch.Tensor) -> bool:
        self._passes[-1].append(self._clock.mark())
        if len(self._passes[-1]) < self._least_steps:
            return False
        now = time.perf_counter()
        leaves = self._is_over(now) or now - self._pass_begun >= self._pass_seconds
        self._left_a_pass |= leaves
        return leaves

    def _hooked(self, optimizer: object, args: object, kwargs: object) -> None:
        self._passes[-1].append(self._clock.mark())
        if self._is_over(time.perf_counter()):
            self._ended_it = True
            raise TimingOverError

    def _reported(self) -> Verdict:
        self._reports.append(self._clock.mark())
        self._passes.append([])
        self._pass_begun = time.perf_counter()
        if not self._is_over(self._pass_begun):
            return Verdict.GO_ON
        self._ended_it = True
        return Verdict.STOP

    def _is_over(self, now: float) -> bool:
        if self._ends is None:
            self._ends = now + self._seconds
            return False
        return now >= self._ends
