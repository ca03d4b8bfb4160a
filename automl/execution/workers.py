"""Trials in warm processes, each supervised by the pool's thread that was given the trial.

Small trials do not get faster by threads (two run at 0.8 to 1.0 times the speed of one), and one
CUDA assert poisons its whole process. So the thread waits, and a process trains: forked in 12 ms
from a server that has torch loaded, used for many trials, killed with its group when a trial hangs.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import automl.execution.worker as worker_main
from automl.execution.executor import Capabilities
from automl.execution.memory_slots import MemorySlots
from automl.execution.output import last_lines
from automl.execution.worker import Answer, Broken, Idle, ToParent, WorkerSetup
from automl.trial import (
    HOST_UUID,
    Entry,
    Failed,
    Feed,
    Hosted,
    Interrupted,
    OnEvents,
    Outcome,
    Placement,
    Reported,
    TrialEvent,
    TrialSpec,
    Verdict,
)

CONTEXT = multiprocessing.get_context("forkserver")
_END_SECONDS = 2.0
"""How long an idle worker may take to end before it is killed."""


def preload(module: str) -> None:
    """Start the fork server with a module loaded in it. It must not touch CUDA there."""
    CONTEXT.set_forkserver_preload([module])
    forkserver.ensure_running()


@dataclass(frozen=True)
class WorkerLimits:
    """When a trial or a worker is ended."""

    max_workers: int
    trial_timeout_seconds: float | None = None
    silence_timeout_seconds: float | None = None
    recycle_after_trials: int = 1000
    recycle_growth_bytes: int = 2 * 1024**3


class WorkersExecutor:
    """Keeps workers warm per device and carries each trial in one of them."""

    can = Capabilities(own_process=True, timeouts=True, own_output=True, packs=False)

    def __init__(self, entry: Entry, output_directory: Path, limits: WorkerLimits) -> None:
        self._entry, self._output, self._limits = entry, output_directory, limits
        self._slots = MemorySlots(limits.max_workers)
        self._lock = threading.Lock()
        self._free_slots = list(range(limits.max_workers))
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()

    def execute(self, feed: Feed, placement: Placement, on_events: OnEvents) -> None:
        spec = feed.next()
        assert spec is not None, "an executor is called with a trial in its feed"
        with self._worker(placement) as worker:
            on_events([Hosted(spec.number, time.time(), worker.pid)])
            output = self._output / f"trial-{spec.number:05d}.log"
            _Supervision(worker, spec, placement, on_events, self._limits, output).run()

    def held_bytes(self) -> Mapping[tuple[str, int], int]:
        """By (device uuid, pid): what each living worker last said it holds. Any thread."""
        with self._lock:
            workers = [*self._idle, *self._busy]
            return {(w.device_uuid, w.pid): self._held_by(w) for w in workers}

    def _held_by(self, worker: _Worker) -> int:
        """On a GPU what it says; on the host what its process grew by since it was forked."""
        if worker.device_uuid != HOST_UUID:
            return self._slots.read(worker.slot)
        return max(0, _resident_bytes(worker.pid) - worker.memory_at_start_bytes)

    def stop_trials(self) -> None:
        """Tell running trials to stop, without waiting for their next report to be answered."""
        with self._lock:
            for worker in self._busy:
                worker.stop_trial()

    def kill(self) -> bool:
        """See `Executor.kill`."""
        with self._lock:
            for worker in self._busy:
                worker.kill()
        return True

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.end()
        self._slots.close()

    @contextmanager
    def _worker(self, placement: Placement) -> Iterator[_Worker]:
        """A worker of the placement's device: idle before, and idle again unless it broke."""
        worker = self._take(placement)
        try:
            yield worker
        finally:
            self._put_back(worker)

    def _take(self, placement: Placement) -> _Worker:
        with self._lock:
            same = [w for w in self._idle if w.device_uuid == placement.device_uuid]
            retired = None
            if same:
                worker = same[-1]  # the one used last is the warmest
                self._idle.remove(worker)
                self._busy.add(worker)
                return worker
            if not self._free_slots:  # all slots belong to idle workers of other devices
                retired = self._idle.pop(0)
                self._free_slots.append(retired.slot)
            slot = self._free_slots.pop()
        if retired is not None:
            retired.end()
        self._slots.clear(slot)
        worker = _Worker(self._entry, placement.device_uuid, self._slots.path, slot)
        with self._lock:
            self._busy.add(worker)
        return worker

    def _put_back(self, worker: _Worker) -> None:
        fit = worker.idle and not worker.is_worn(self._limits)
        with self._lock:
            self._busy.discard(worker)
            if fit:
                self._idle.append(worker)
        if not fit:
            worker.end()
            with self._lock:
                self._free_slots.append(worker.slot)


class _Worker:
    """One child process, from the parent's side."""

    def __init__(self, entry: Entry, device_uuid: str, slots_path: str, slot: int) -> None:
        self.device_uuid, self.slot = device_uuid, slot
        self.idle = True
        self.n_trials = 0
        self._first_memory_bytes: int | None = None
        self._sending = threading.Lock()
        self.pipe, theirs = CONTEXT.Pipe()
        setup = WorkerSetup(entry, device_uuid, slots_path, slot)
        self.process: ForkServerProcess = CONTEXT.Process(
            target=worker_main.main, args=(setup, theirs), name=f"automl-worker-{slot}"
        )
        self.process.start()
        theirs.close()
        assert self.process.pid is not None
        self.pid: int = self.process.pid
        self.memory_at_start_bytes = _resident_bytes(self.pid)
        self.trial: int | None = None

    def begin(self, work: worker_main.Work) -> None:
        self.idle = False
        self.n_trials += 1
        self.trial = work.spec.number
        self._send(work)

    def answer(self, verdicts: Mapping[int, Verdict]) -> None:
        """Give the verdicts on reports; a worker that died needs none."""
        self._send(Answer(verdicts))

    def stop_trial(self) -> None:
        """Tell the trial that runs here, if any, to stop at its next report."""
        if self.trial is not None:
            self._send(Answer({self.trial: Verdict.STOP}, unasked=True))

    def kill(self) -> None:
        """End the worker and its children now."""
        with suppress(ProcessLookupError):  # it ended by itself
            os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Let the worker end, or make it."""
        self._send(None)
        self.process.join(_END_SECONDS if self.idle else 0)
        if self.process.is_alive():
            self.kill()
            self.process.join()
        self.pipe.close()
        self.process.close()

    def is_worn(self, limits: WorkerLimits) -> bool:
        """Whether it has served long enough, or its memory grew and stayed."""
        memory = _resident_bytes(self.pid)
        if self._first_memory_bytes is None:
            self._first_memory_bytes = memory
        grown = memory - self._first_memory_bytes
        return self.n_trials >= limits.recycle_after_trials or grown > limits.recycle_growth_bytes

    def _send(self, message: worker_main.ToWorker) -> None:
        with self._sending, suppress(OSError):  # dead: whoever waits for its answer is told so
            self.pipe.send(message)


@dataclass
class _Supervision:
    """Follows one trial in a worker to its outcome."""

    worker: _Worker
    spec: TrialSpec
    placement: Placement
    on_events: OnEvents
    limits: WorkerLimits
    output: Path

    def run(self) -> None:
        self._began = self._heard = time.monotonic()
        self.worker.begin(worker_main.Work(self.spec, self.placement, str(self.output)))
        ended = False
        while not self.worker.idle:
            message = self._receive()
            if isinstance(message, Idle):
                self.worker.idle, self.worker.trial = True, None
            elif not ended:
                ended = self._take(message)
                if ended and self.worker.process.exitcode is not None:
                    break
        with suppress(OSError):  # most trials print nothing
            if self.output.stat().st_size == 0:
                self.output.unlink()

    def _receive(self) -> ToParent:
        """The worker's next message; its death and its time-outs become outcomes."""
        while True:
            ready = wait([self.worker.pipe, self.worker.process.sentinel], self._patience())
            if self.worker.pipe in ready:
                try:
                    message: ToParent = self.worker.pipe.recv()
                except (EOFError, OSError):
                    return [self._death()]
                self._heard = time.monotonic()
                return message
            if ready:
                return [self._death()]
            if (cause := self._overdue()) is not None:
                self.worker.kill()
                self.worker.process.join()
                return [self._failed(cause)]

    def _take(self, message: Sequence[TrialEvent] | Broken) -> bool:
        """Hand events on; whether the trial's outcome was among them."""
        if isinstance(message, Broken):
            message = [
                Failed(self.spec.number, time.time(), message.cause, message.details, hopeless=True)
            ]
        events = [self._with_output(e) if isinstance(e, Failed) else e for e in message]
        verdicts = self.on_events(events)
        if any(isinstance(event, Reported) for event in events):
            self.worker.answer(verdicts)
        return any(isinstance(event, Outcome) for event in events)

    def _death(self) -> Interrupted:
        self.worker.process.join()
        code = self.worker.process.exitcode
        assert code is not None
        how = f"exit status {code}" if code >= 0 else signal.Signals(-code).name
        cause = f"its process died: {how}"
        if lines := last_lines(self.output, 1):
            cause += f"; last output: {lines}"
        return Interrupted(self.spec.number, time.time(), cause, by_worker_death=True)

    def _failed(self, cause: str) -> Failed:
        return self._with_output(Failed(self.spec.number, time.time(), cause))

    def _with_output(self, failed: Failed) -> Failed:
        lines = last_lines(self.output, 20)
        if not lines:
            return failed
        details = f"{failed.details}\nlast output:\n{lines}"
        return Failed(failed.trial, failed.time, failed.cause, details, failed.hopeless)

    def _deadlines(self) -> Iterator[tuple[float, str]]:
        if (limit := self.limits.trial_timeout_seconds) is not None:
            yield self._began + limit, f"exceeded execution.trial_timeout_seconds={limit:g}"
        if (limit := self.limits.silence_timeout_seconds) is not None:
            yield (
                self._heard + limit,
                f"reported nothing for execution.silence_timeout_seconds={limit:g}",
            )

    def _patience(self) -> float | None:
        """Seconds until the next deadline; None: there is none."""
        deadlines = [at for at, _ in self._deadlines()]
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None

    def _overdue(self) -> str | None:
        now = time.monotonic()
        return next((cause for at, cause in self._deadlines() if now >= at), None)


def _resident_bytes(pid: int) -> int:
    """Main memory of a process (Linux; 0 elsewhere, where workers are recycled by count alone)."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
