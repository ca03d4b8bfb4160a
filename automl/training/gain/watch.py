"""Sees a trial's steps and reports as they come, and ends it when the time is up."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from automl.training import steps
from automl.training.gain.clocks import Clock
from automl.training.gain.pace import Call
from automl.trial import (
    Failed,
    Finished,
    Outcome,
    OutOfMemory,
    Reported,
    TrialEvent,
    Verdict,
)

PASS_SECONDS = 0.25
"""After so long a pass of our own trainers is left: it goes on alike."""


class Enough(BaseException):  # BaseException: `except Exception` in an objective lets it pass
    """Raised in an objective of the user's when its time is up."""


class Watch:
    """Of one execution, which is to end after so many seconds, at a report or a step."""

    def __init__(
        self,
        clock: Clock[object],
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
        self._outcomes: list[Outcome] = []
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
                stack.enter_context(steps.told(self._told))
            else:
                hook = register_optimizer_step_post_hook(self._hooked)
                stack.callback(hook.remove)
            yield
        self._end = self._clock.finish()

    def on_events(self, events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
        """For a pack, whose lanes' reports of an epoch come together."""
        self._outcomes += [event for event in events if isinstance(event, Outcome)]
        reported = [event for event in events if isinstance(event, Reported)]
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
        failed = [o for o in self._outcomes if isinstance(o, Failed | OutOfMemory)]
        return failed[0].cause if failed else None

    def call(self) -> Call:
        """What was seen, after the end."""
        read = self._clock.reader()
        passes = [self._reports] if self.per_report else self._passes
        finished = all(isinstance(o, Finished) for o in self._outcomes) and bool(self._outcomes)
        return Call(
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
            raise Enough

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
