"""Runs trials in warm worker processes, each supervised by the pool thread that has the trial.

Threads do not make small trials faster (two run at 0.8 to 1.0 times the speed of one), and one CUDA
assert poisons its whole process. Therefore the thread waits, and a process trains: it is forked in
12 ms from a server that has torch loaded, used for many trials, and killed with its group when a
trial hangs. The executor keeps the workers; `supervision.py` follows what runs in one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from automl.execution.executor import ExecutorCapabilities
from automl.execution.supervision import ExecutionSupervisor
from automl.execution.worker_messages import SharedNumbers, WorkerSetup
from automl.execution.worker_process import WorkerLimits, WorkerProcess
from automl.record.lease import lease_seconds
from automl.record.study_files import trial_log_name
from automl.trial import (
    HOST_UUID,
    DeviceId,
    ExecutionFeed,
    OnEvents,
    Placement,
    ProcessEntry,
    ProcessHosted,
    ProcessId,
    Verdict,
)

logger = logging.getLogger(__name__)


class WorkersExecutor:
    """Keeps workers warm per set of devices, and runs each trial, or pack of trials, in one."""

    can = ExecutorCapabilities(own_process=True, timeouts=True, own_output=True, packs=True)

    def __init__(self, entry: ProcessEntry, output_directory: Path, limits: WorkerLimits) -> None:
        self._entry, self._output, self._limits = entry, output_directory, limits
        self._lock = threading.Lock()  # guards all below
        self._warnings: set[str] = set()
        """Warnings of workers that were given already."""
        self._n_free = limits.max_workers
        """Number of workers that may be started besides those that live."""
        self._idle: list[WorkerProcess] = []
        self._busy: dict[WorkerProcess, ExecutionSupervisor | None] = {}
        self._caps: dict[int, Mapping[DeviceId, int]] = {}
        """Memory caps of executions that run or are about to begin, by key."""
        self._lease_until = 0.0
        """End of the workers' lease, by `lease_seconds()`; 0 means no end."""
        self._kill_cause: str | None = None
        """Cause for which all trials were killed; None while trials may run."""

    def execute(
        self,
        feed: ExecutionFeed,
        placement: Placement,
        on_events: OnEvents,
        on_unjudged: OnEvents | None = None,
    ) -> None:
        """Carry out the feed's first trial, or a pack that begins with it (`Executor.execute`).

        `on_unjudged` takes the events on which no trial waits for a verdict; verdicts on them may
        come later, by `answer`. By default `on_events` takes these events, too.
        """
        on_unjudged = on_unjudged or on_events
        first = feed.next()
        assert first is not None, "an executor is called with a trial in its feed"
        with self._worker(placement) as worker:
            supervision = ExecutionSupervisor(
                worker=worker,
                feed=feed,
                on_events=on_events,
                on_unjudged=on_unjudged,
                limits=self._limits,
                warn=self._warn_once,
            )
            with self._lock:
                self._busy[worker] = supervision
                self._cap(supervision)
                kill_cause = self._kill_cause
            if kill_cause is not None:
                supervision.kill(kill_cause)
            try:
                on_unjudged([ProcessHosted(first.number, time.time(), worker.address)])
                supervision.run(first, placement, self._output / trial_log_name(first.number))
            finally:
                with self._lock:
                    self._caps.pop(feed.key, None)

    def held_bytes(self) -> Mapping[tuple[DeviceId, ProcessId], int]:
        """Return the memory that workers hold of their GPUs, and of the host.

        A worker itself tells what it holds on a GPU. Its growth counts on the host, whether or not
        it trains there, and so does the memory of programs that it has started.
        """
        with self._lock:
            workers = [*self._idle, *self._busy]
            on_gpus = {
                (device, w.address): w.numbers.held_bytes[number]
                for w in workers
                for number, device in enumerate(w.devices)
                if not device.on_host
            }
            return on_gpus | {
                (DeviceId(w.address.node, HOST_UUID), w.address): (
                    w.grown_bytes + w.numbers.counters.programs_bytes
                )
                for w in workers
            }

    def n_steps(self) -> Mapping[int, int]:
        with self._lock:
            running = [s for s in self._busy.values() if s is not None]
            return {s.key: s.worker.numbers.counters.n_steps for s in running}

    def cap_memory(self, caps: Mapping[int, Mapping[DeviceId, int]]) -> None:
        """Cap the memory of executions; workers read caps ten times a second and before a trial."""
        with self._lock:
            self._caps.update(caps)
            for supervision in self._busy.values():
                if supervision is not None and supervision.key in caps:
                    self._cap(supervision)

    def lease(self, until_seconds: float) -> None:
        """Extend the lease of all workers; idle workers end with the lease, too."""
        with self._lock:
            was_over = 0 < self._lease_until < lease_seconds()
            self._lease_until = until_seconds
            for worker in (*self._idle, *self._busy):
                worker.numbers.lease(until_seconds)
        if was_over:
            self._drop_dead()

    def answer(self, key: int, verdicts: Mapping[int, Verdict]) -> None:
        """Pass on verdicts on events that `on_unjudged` took, if the execution still runs."""
        with self._lock:
            for worker, supervision in self._busy.items():
                if supervision is not None and supervision.key == key:
                    worker.answer(verdicts, waits=False)

    def stop_trials(self) -> None:
        with self._lock:
            for worker, supervision in self._busy.items():
                if supervision is not None:
                    worker.stop(supervision.live)

    def kill(self, cause: str) -> bool:
        """Kill all trials; trials that are just being started end in the same way."""
        with self._lock:
            self._kill_cause = self._kill_cause or cause
            for supervision in self._busy.values():
                if supervision is not None:
                    supervision.kill(cause)
        return True

    def end_trials(self, trials: Collection[int], cause: str) -> None:
        with self._lock:
            for supervision in self._busy.values():
                if supervision is not None and not set(trials).isdisjoint(supervision.live):
                    supervision.end(trials, cause)

    def idle(self) -> Mapping[tuple[DeviceId, ...], Sequence[ProcessId]]:
        found: dict[tuple[DeviceId, ...], list[ProcessId]] = {}
        with self._lock:
            for worker in self._idle:
                found.setdefault(worker.devices, []).append(worker.address)
        return found

    def end_idle(self, devices: Collection[DeviceId]) -> None:
        """End the idle workers of these devices, all at once, since they hold memory."""
        with self._lock:
            ending = [w for w in self._idle if not set(devices).isdisjoint(w.devices)]
            self._idle = [w for w in self._idle if w not in ending]
        for worker in ending:
            worker.dismiss()
        for worker in ending:
            worker.end()
            with self._lock:
                self._n_free += 1

    def renew(self, entry: ProcessEntry) -> None:
        with self._lock:
            self._entry = entry
            devices = {device for worker in self._idle for device in worker.devices}
        self.end_idle(devices)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.dismiss()
        for worker in idle:
            worker.end()

    def _cap(self, supervision: ExecutionSupervisor) -> None:
        own, worker = self._caps.get(supervision.key, {}), supervision.worker
        worker.numbers.caps_bytes[:] = [own.get(device, 0) for device in worker.devices]

    def _warn_once(self, text: str) -> None:
        """Log a warning unless it was logged before: every worker gives the same warnings."""
        with self._lock:
            if text in self._warnings:
                return
            self._warnings.add(text)
        logger.warning("%s", text)

    @contextmanager
    def _worker(self, placement: Placement) -> Iterator[WorkerProcess]:
        """Provide a worker of the placement's devices; keep it for other trials unless it broke."""
        worker = self._take_idle(placement.devices) or self._start(placement.devices)
        try:
            yield worker
        finally:
            self._put_back(worker)

    def _drop_dead(self) -> None:
        """Remove idle workers that have ended by themselves, and make room for others."""
        with self._lock:
            dead = [worker for worker in self._idle if not worker.is_alive]
            self._idle = [worker for worker in self._idle if worker not in dead]
            for worker in dead:
                worker.end()
                self._n_free += 1

    def _take_idle(self, devices: tuple[DeviceId, ...]) -> WorkerProcess | None:
        self._drop_dead()
        with self._lock:
            same = [worker for worker in self._idle if worker.devices == devices]
            if not same:
                return None
            worker = same[-1]  # the worker used last is the warmest
            self._idle.remove(worker)
            self._busy[worker] = None
            return worker

    def _start(self, devices: tuple[DeviceId, ...]) -> WorkerProcess:
        self._make_room()
        numbers = SharedNumbers(len(devices))
        numbers.lease(self._lease_until)
        worker = WorkerProcess(WorkerSetup(self._entry, devices, numbers, self._limits.judging))
        with self._lock:
            self._busy[worker] = None
            numbers.lease(self._lease_until)  # it may have been extended meanwhile
        return worker

    def _make_room(self) -> None:
        """Count one more worker, in the place of an idle one of other devices if it must be.

        As many workers may live as there are pool threads, so that there is room or an idle one.
        """
        with self._lock:
            if self._n_free:
                self._n_free -= 1
                return
            retired = self._idle.pop(0)
        retired.end()

    def _put_back(self, worker: WorkerProcess) -> None:
        fit = worker.idle and worker.entry is self._entry and not worker.is_worn(self._limits)
        with self._lock:
            del self._busy[worker]
            if fit:
                self._idle.append(worker)
        if not fit:
            worker.end()
            with self._lock:
                self._n_free += 1
            self._drop_dead()  # others of its fork server
