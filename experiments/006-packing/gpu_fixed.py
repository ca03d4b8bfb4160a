"""The same trials without admission: a fixed number at once, by the same workers."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from gpu_machine import Bench
from gpu_sweeps import Ran
from gpu_workers import carry, preload_torch, spec_of, workers

from automl.execution.workers_executor import WorkersExecutor
from automl.trial import Event, FailedOutcome, OutOfMemoryOutcome, Params, Placement, TrialStarted


class _Line:
    """Trials that wait, for k threads; who ran out of memory comes again once all others are over,
    alone."""

    def __init__(self, params: Mapping[int, Params], until: float) -> None:
        self._params, self.until = params, until
        self._lock = threading.Lock()  # guards all below
        self._waiting = deque(params)
        self.ran_out: list[int] = []
        self.events: list[Event] = []

    def work(self, executor: WorkersExecutor, placement: Placement, folder: Path) -> None:
        """Carry out one after another until none is left."""
        while (number := self._next()) is not None:
            if isinstance(self.carry(number, executor, placement, folder), OutOfMemoryOutcome):
                with self._lock:
                    self.ran_out.append(number)

    def carry(
        self, number: int, executor: WorkersExecutor, placement: Placement, folder: Path
    ) -> Event:
        params = self._params[number]
        self._note(TrialStarted(number, time.time(), params, placement.label))
        outcome, _ = carry(executor, spec_of(number, params, folder), placement)
        self._note(outcome)
        return outcome

    def _next(self) -> int | None:
        with self._lock:
            is_over = time.monotonic() > self.until or not self._waiting
            return None if is_over else self._waiting.popleft()

    def _note(self, event: Event) -> None:
        with self._lock:
            self.events.append(event)


def fixed(bench: Bench, folder: Path, params: Mapping[int, Params], k: int, seconds: float) -> Ran:
    """k at once; none is started after so many seconds."""
    preload_torch()
    line = _Line(params, time.monotonic() + seconds)
    placement, own = bench.placement, folder / f"fixed-{k}"
    own.mkdir()
    with workers("train", own, k) as executor:
        with ThreadPoolExecutor(k) as pool:
            for future in [pool.submit(line.work, executor, placement, own) for _ in range(k)]:
                future.result()
        executor.end_idle(placement.devices)  # their contexts and caches, before who is alone
        for number in line.ran_out:
            if time.monotonic() > line.until:
                break
            again = line.carry(number, executor, placement, own)
            if isinstance(again, OutOfMemoryOutcome):
                line.events.append(FailedOutcome(number, again.time, again.cause))
    ran = Ran(line.events)
    is_over = ran.n_finished + ran.n_lost == len(params)
    return ran if is_over else replace(ran, trouble="its time was over")
