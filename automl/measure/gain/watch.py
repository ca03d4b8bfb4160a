"""Watches a trial's steps and reports, ends it when the time is up, and computes step times.

A mark is the moment at which the device has finished all work so far: a time on the host, an event
in the stream of a GPU. Waiting for a GPU after each step would not time the real training, in which
the host runs ahead. The events are therefore read at the end.

A shared machine stalls a process now and then, so times are medians. Medians of single steps would
miss the stalls that every long stretch has. They are therefore taken over stretches
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

from automl.in_trial.reports import step_counter
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
"""The most steps that the host may run ahead of a GPU. To stop in time, the watch needs to know
roughly how far the GPU is."""


class DeviceClock(Protocol[MarkT]):
    """Marks moments of one execution on a device."""

    def mark(self) -> MarkT:
        """Return the moment at which the device will have finished all work queued so far."""

    def finish(self) -> MarkT:
        """Return a mark, after waiting until the device has reached it."""

    def reader(self) -> Callable[[MarkT], float]:
        """Return a function from marks to seconds, all on one scale. Call it after `finish`."""


class HostClock:
    """A `DeviceClock` of the CPU, where work is finished when a call returns."""

    def mark(self) -> float:
        return time.perf_counter()

    finish = mark

    def reader(self) -> Callable[[float], float]:
        return lambda mark: mark


class CudaClock:
    """A `DeviceClock` by events of the current stream (CUDA C++ Programming Guide, Events).

    It was never run on a GPU so far.
    """

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        self._first: torch.cuda.Event | None = None
        self._recent: deque[torch.cuda.Event] = deque()

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        if self._first is None:
            self._first = event
        self._recent.append(event)
        if len(self._recent) > _N_AHEAD:
            self._recent.popleft().synchronize()
        return event

    def finish(self) -> torch.cuda.Event:
        event = self.mark()
        torch.cuda.synchronize(self._device)
        return event

    def reader(self) -> Callable[[torch.cuda.Event], float]:
        first = self._first
        assert first is not None, "nothing was marked"

        def seconds(event: torch.cuda.Event) -> float:
            milliseconds: float = first.elapsed_time(event)
            return milliseconds / 1000

        return seconds


def device_clock(device: str) -> DeviceClock[object]:
    """Return the clock of the device `cpu` or `cuda:0`."""
    clock: DeviceClock[object] = HostClock() if device == "cpu" else CudaClock(device)  # type: ignore[assignment]
    return clock


ROUND_SECONDS = 0.05
"""The least length of a stretch of steps whose time enters a median."""


@dataclass(frozen=True)
class TimedExecution:
    """The moments of one execution of a trial (or pack), in seconds on one clock."""

    begun: float
    passes: tuple[tuple[float, ...], ...]
    """The ends of the steps, a tuple for each epoch; an epoch may have been cut short."""
    ended: float
    """The end of the execution, with its checkpoints written."""
    whole: bool = False
    """Whether the execution ran to its own end."""


def measured_step_seconds(calls: Sequence[TimedExecution]) -> float | None:
    """Return the seconds from the end of a step to the end of the next.

    None means that fewer than two steps were seen.
    """
    within = [(p[-1] - p[0], len(p) - 1) for call in calls for p in call.passes if len(p) > 1]
    return _seconds_each(within or _gaps_between_epochs(calls))


def estimate_trial_seconds(
    calls: Sequence[TimedExecution], n_epochs: int, n_steps: int
) -> float | None:
    """Return the seconds of a trial of `n_epochs` epochs with `n_steps` steps each.

    They include its start, evaluations, reports and checkpoints. None means that too little was
    seen.
    """
    seen = [call for call in calls if any(call.passes)]
    step = measured_step_seconds(seen)
    if step is None:
        return None
    lead = median(_first_step_end(call) - call.begun for call in seen)
    tail = median(call.ended - _last_step_end(call) for call in seen)
    between = _seconds_each(_gaps_between_epochs(seen))
    if between is None:
        between = tail + step  # one epoch only: its end had an evaluation and a report, too
    return lead + n_epochs * (n_steps - 1) * step + (n_epochs - 1) * between + tail


def whole_trial_seconds(calls: Sequence[TimedExecution]) -> float | None:
    """Return the median seconds of whole executions; None if there is none."""
    return median(s) if (s := [call.ended - call.begun for call in calls if call.whole]) else None


def _gaps_between_epochs(calls: Sequence[TimedExecution]) -> list[tuple[float, int]]:
    """Return (seconds, 1) from the last step of each epoch to the first step of the next."""
    filled = [[p for p in call.passes if p] for call in calls]
    return [(b[0] - a[-1], 1) for passes in filled for a, b in pairwise(passes)]


def _seconds_each(stretches: Iterable[tuple[float, int]]) -> float | None:
    """Return the seconds per count of (seconds, count), as the median over rounds.

    None means that there are no stretches.
    """
    rounds: list[float] = []
    seconds, n = 0.0, 0
    for stretch_seconds, count in stretches:
        seconds, n = seconds + stretch_seconds, n + count
        if seconds >= ROUND_SECONDS:
            rounds.append(seconds / n)
            seconds, n = 0.0, 0
    if not rounds and n:
        rounds.append(seconds / n)
    return median(rounds) if rounds else None


def _first_step_end(call: TimedExecution) -> float:
    return next(p[0] for p in call.passes if p)


def _last_step_end(call: TimedExecution) -> float:
    return next(p[-1] for p in reversed(call.passes) if p)


PASS_SECONDS = 0.25
"""The time after which a pass of a built-in trainer is cut short; the rest of it is alike."""


# A BaseException, which `except Exception` in an objective lets pass.
class TimingOverError(BaseException):
    """Raised in a user's objective when its time is up."""


class ExecutionWatch:
    """Watches one execution, and ends it after a number of seconds, at a report or a step."""

    def __init__(
        self,
        clock: DeviceClock[object],
        seconds: float,
        *,
        cuts: bool,
        least_steps: int = 2,
        pass_seconds: float = PASS_SECONDS,
    ) -> None:
        """Set the limits of the execution.

        With `cuts`, passes of built-in trainers are cut short after `pass_seconds` and
        `least_steps`; the time of a step needs the ends of two. The time of a user's function
        begins at its first step or report, since it may read its data before.
        """
        self._clock, self._cuts = clock, cuts
        self._passes: list[list[object]] = [[]]
        self._reports: list[object] = []
        self._outcomes: list[TrialOutcome] = []
        self._least_steps = least_steps
        self._seconds, self._pass_seconds = seconds, pass_seconds
        self._ends = time.perf_counter() + seconds if cuts else None
        self._pass_begun = time.perf_counter()
        self._cut_a_pass = self._is_ended = False
        """Whether a pass was cut short, and whether this watch ended the execution."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count all steps of this process as this trial's within the `with`."""
        self._begin_mark = self._clock.mark()
        with ExitStack() as stack:
            if self._cuts:
                stack.enter_context(step_counter.listen_to_steps(self._on_step))
            else:
                hook = register_optimizer_step_post_hook(self._on_optimizer_step)
                stack.callback(hook.remove)
            yield
        self._end_mark = self._clock.finish()

    def on_events(self, events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        """Take the events of a trial, or of a pack, whose lanes report an epoch together."""
        self._outcomes += [event for event in events if isinstance(event, TrialOutcome)]
        reported = [event for event in events if isinstance(event, MetricsReported)]
        if not reported:
            return {}
        verdict = self._on_report()
        return {event.trial: verdict for event in reported}

    @property
    def per_report(self) -> bool:
        """Whether no optimizer of torch's took a step, so that reports are timed."""
        return not any(self._passes) and bool(self._reports)

    @property
    def trouble(self) -> str | None:
        """The reason why the execution failed; None if this watch ended it."""
        if self._is_ended:
            return None
        failed = [o for o in self._outcomes if isinstance(o, FailedOutcome | OutOfMemoryOutcome)]
        return failed[0].cause if failed else None

    def call(self) -> TimedExecution:
        """Return the moments of the execution, after its end."""
        read = self._clock.reader()
        passes = [self._reports] if self.per_report else self._passes
        finished = all(isinstance(o, FinishedOutcome) for o in self._outcomes) and bool(
            self._outcomes
        )
        return TimedExecution(
            read(self._begin_mark),
            tuple(tuple(map(read, marks)) for marks in passes if marks),
            read(self._end_mark),
            whole=finished and not self._cut_a_pass,
        )

    def _on_step(self, weights: torch.Tensor) -> bool:
        self._passes[-1].append(self._clock.mark())
        if len(self._passes[-1]) < self._least_steps:
            return False
        now = time.perf_counter()
        cuts_pass = self._is_over(now) or now - self._pass_begun >= self._pass_seconds
        self._cut_a_pass |= cuts_pass
        return cuts_pass

    def _on_optimizer_step(self, optimizer: object, args: object, kwargs: object) -> None:
        self._passes[-1].append(self._clock.mark())
        if self._is_over(time.perf_counter()):
            self._is_ended = True
            raise TimingOverError

    def _on_report(self) -> Verdict:
        self._reports.append(self._clock.mark())
        self._passes.append([])
        self._pass_begun = time.perf_counter()
        if not self._is_over(self._pass_begun):
            return Verdict.GO_ON
        self._is_ended = True
        return Verdict.STOP

    def _is_over(self, now: float) -> bool:
        if self._ends is None:
            self._ends = now + self._seconds
            return False
        return now >= self._ends
