"""Nodes of GPUs that come and go, in virtual time, under the real loop. See README.md.

The machine, its trials and the loop's ports are those of `experiments/006-packing`; here its
devices belong to nodes, each of which is heard of once a second, or is not.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from virtual_machine import OnDevice
from virtual_sweep import READ_SECONDS, Known, Sweep
from worlds import CONTEXT_BYTES, GIB, Setting, Trial, surveyed

from automl.admission.accounting.idle_processes import Idle
from automl.devices.device_reading import DeviceProcess, DeviceReading, DeviceSnapshot, HostState
from automl.running.loop.messages import (
    DevicesRead,
    ExecutionStart,
    LoopMessage,
    ReservationReleased,
    TrialEnded,
)
from automl.trial import DeviceId, InterruptedOutcome, ProcessId, host_device_of

N_GPUS, N_CORES = 8, 128
"""Of a node."""
SNAPSHOT_SECONDS = 1.0
SILENT_SECONDS, GONE_SECONDS = 3.0, 20.0
"""Without a snapshot for so long a node gets no new trial; its trials are interrupted."""
DEAD_SECONDS = 600.0
N_EPOCHS = 10
"""Of a trial; its checkpoint is that of the last one."""
SILENT = "its node does not answer"


@dataclass(frozen=True)
class Cluster(Setting):
    """Nodes of eight GPUs each, and a sweep on them."""

    n_nodes: int = 1
    sigma: float = 0.7
    """Of the logarithm of a trial's seconds."""

    @property
    def totals(self) -> dict[DeviceId, int]:
        nodes = [f"node-{n:04}" for n in range(self.n_nodes)]
        return {DeviceId(node, f"GPU-{n}"): self.gib * GIB for node in nodes for n in range(N_GPUS)}

    def trials(self, seed: int) -> list[Trial]:
        """Lognormal seconds (median 600) and sizes (median a quarter of a GPU, σ 0.9)."""
        random, drawn = Random(seed), []
        for _ in range(self.n_trials):
            size = min(self.gib / 4 * math.exp(0.9 * random.gauss(0, 1)), 0.85 * self.gib)
            seconds = max(10.0, 600 * math.exp(self.sigma * random.gauss(0, 1)))
            peak = int(max(0.3, size) * GIB)
            drawn.append(Trial(peak, seconds, surveyed(peak)))
        return drawn


@dataclass
class Costs:
    """CPU seconds of the loop, less those of the machine under it."""

    decisions_seconds: float = 0.0
    n_decisions: int = 0
    readings_seconds: float = 0.0
    n_snapshots: int = 0
    n_interrupted: int = 0
    most_running: int = 0


class ClusterSweep(Sweep):
    """One sweep over nodes that come and go."""

    def __init__(
        self,
        cluster: Cluster,
        seed: int,
        known: Known,
        deaths: Sequence[Death],
        every_seconds: float = SNAPSHOT_SECONDS,
        host_gib: int = 0,
    ) -> None:
        """`host_gib`: main memory of each node; 0: nobody tells."""
        self._host_gib = host_gib
        self._every_seconds, self._busy = every_seconds, Random(seed + 5)
        self.costs, self._ports_seconds = Costs(), 0.0
        self._dead_since: dict[str, float] = {}
        self._gone: set[str] = set()
        self.dead: list[tuple[float, float]] = []
        """From when to when a node was."""
        self._idle: dict[tuple[DeviceId, ...], tuple[ProcessId, ...]] = {}
        self._snapshots: dict[DeviceId, DeviceSnapshot] = {}
        self._progress_of: dict[int, float] = {}
        """Seconds of each trial that its checkpoint has."""
        super().__init__(cluster, cluster.trials(seed), seed, known)
        stale_seconds = max(self.limits.stale_seconds, 1.5 * every_seconds)
        self.loop._placing.limits = replace(self.limits, stale_seconds=stale_seconds)
        self.last_start_seconds, self._read_at = 0.0, -1.0
        self.by_node: dict[str, list[DeviceId]] = {}
        for device in self.totals:
            self.by_node.setdefault(device.node, []).append(device)
        for death in deaths:
            self.at(death.at_seconds, partial(self._die, death.node))

    def run_until(self, seconds: float) -> None:
        """Break it off then: for what it costs."""
        self._tick()
        while self.now < seconds and not self.loop.done:
            self.step()

    # --- nodes ---

    def _die(self, node: str) -> None:
        if node in self._dead_since:
            return
        self._dead_since[node] = self.now
        self.dead.append((self.now, self.now + DEAD_SECONDS))
        for device in self.by_node[node]:
            self._advance(device)
            self._version[device] += 1  # nothing ends there any more
        self.at(GONE_SECONDS, partial(self._count_as_gone, node))
        self.at(DEAD_SECONDS, partial(self._come_back, node))

    def _count_as_gone(self, node: str) -> None:
        """The driver has heard nothing for so long: what ran there is interrupted."""
        if self._read_at != self.now:
            self._read()  # by now it says that the node is silent
        self._gone.add(node)
        for device in self.by_node[node]:
            here, self.on[device] = self.on[device], {}
            self.kept[device].clear()
            self._idle.pop((device,), None)
            for number, trial in here.items():
                self.costs.n_interrupted += 1
                self._keep_checkpoint(number, trial)
                cause = "its node does not answer any more"
                gone = InterruptedOutcome(number, self.now, cause, by_worker_death=True)
                self._handle(TrialEnded(gone))
                self.ledger.release(number, self.now)
                self._handle(ReservationReleased(number))

    def _keep_checkpoint(self, number: int, trial: OnDevice) -> None:
        whole = self.trials[number].seconds
        done = math.floor(N_EPOCHS * (1 - trial.left_seconds / whole)) / N_EPOCHS * whole
        self._progress_of[number] = max(0.0, done)

    def _come_back(self, node: str) -> None:
        del self._dead_since[node]
        self._gone.discard(node)

    # --- the machine ---

    def begin(self, number: int, device: DeviceId, again: float = 0.0) -> ProcessId:
        process = super().begin(number, device, again - self._progress_of.get(number, 0.0))
        if device.node in self._dead_since:
            self._version[device] += 1
        self._note_idle(device)
        return process

    def end(self, number: int, device: DeviceId) -> None:
        super().end(number, device)
        self._note_idle(device)

    def _appear(self, number: int, device: DeviceId, here: OnDevice) -> None:
        if device.node not in self._dead_since:
            super()._appear(number, device, here)

    def _advance(self, device: DeviceId) -> None:
        if device.node in self._dead_since:
            self._since[device] = self.now
        else:
            super()._advance(device)

    def _note_idle(self, device: DeviceId) -> None:
        if kept := self.kept[device]:
            self._idle[device,] = tuple(kept)
        else:
            self._idle.pop((device,), None)

    # --- ports ---

    def submit(self, start: ExecutionStart) -> None:
        begun = time.thread_time()
        super().submit(start)
        self.last_start_seconds = self.now
        self.costs.n_decisions += 1
        self._ports_seconds += time.thread_time() - begun

    def idle(self) -> Idle:
        return self._idle

    def end_idle(self, devices: Collection[DeviceId]) -> None:
        for device in devices:
            self.kept[device].clear()
            self._note_idle(device)

    def _is_over_committed(self, device: DeviceId) -> bool:
        """By the machine's own books."""
        on_page = self.ledger.snapshot().on(device).reservations
        promised = {r.key: r.counted_bytes(device) for r in on_page}
        taken = sum(CONTEXT_BYTES + cached for cached in self.kept[device].values())
        for number, here in self.on[device].items():
            taken += max(here.held_bytes, promised[number]) + CONTEXT_BYTES
        return taken + self.limits.headroom_bytes > self.totals[device]

    # --- readings ---

    def _tick(self) -> None:
        self._read()
        is_over = not self.loop.queue.queued and self.loop.asking.n_asked == len(self.trials)
        self.at(READ_SECONDS if is_over else self._every_seconds, self._tick)

    def _read_soon(self) -> None:
        """Each node is heard of at its time."""

    def _read(self) -> None:
        """What each node has told last. Of those that are well it is new."""
        self._read_at = self.now
        for node, devices in self.by_node.items():
            if node not in self._dead_since:
                for device in devices:
                    self._snapshots[device] = self._snapshot(device)
                self.costs.n_snapshots += 1
        silent = {n for n, at in self._dead_since.items() if self.now - at >= SILENT_SECONDS}
        shown = tuple(
            _silent(snapshot) if device.node in silent else snapshot
            for device, snapshot in self._snapshots.items()
        )
        held = {
            (device, process): size
            for device in self.totals
            if device.node not in self._gone
            for process, size in self._held_on(device)
        }
        hosts = self._hosts(held) if self._host_gib else {}
        self._handle(DevicesRead(DeviceReading(self.now, shown, held, held, hosts=hosts)))

    def _hosts(self, held: dict[tuple[DeviceId, ProcessId], int]) -> dict[str, HostState]:
        """A process takes 1 GiB of its node's main memory besides, which is added to `held`."""
        processes = {process for _, process in held}
        held |= {(host_device_of(p.node), p): GIB for p in processes}
        n_on = Counter(p.node for p in processes)
        free = {n: max(0, self._host_gib - n_on[n]) * GIB for n in self.by_node}
        return {
            n: HostState(size, min(1.0, n_on[n] / N_CORES), N_CORES) for n, size in free.items()
        }

    def _held_on(self, device: DeviceId) -> list[tuple[ProcessId, int]]:
        working = [(t.process, t.held_bytes) for t in self.on[device].values()]
        return working + list(self.kept[device].items())

    def _snapshot(self, device: DeviceId) -> DeviceSnapshot:
        total, tenants = self.totals[device], self._held_on(device)
        taken = sum(CONTEXT_BYTES + held for _, held in tenants)
        processes = tuple(
            DeviceProcess(process.pid, CONTEXT_BYTES + held, CONTEXT_BYTES + held)
            for process, held in tenants
        )
        return DeviceSnapshot(
            device,
            "sim",
            total,
            max(0, total - taken),
            utilisation=0.7 + 0.1 * self._busy.random(),  # in one quarter, and never the same
            processes=processes,
        )

    # --- what it costs ---

    def _handle(self, message: LoopMessage) -> None:
        """An admission is a decision, as is the refusal of whoever waits first."""
        begun, self._ports_seconds = time.thread_time(), 0.0
        n_before = self.costs.n_decisions
        self.loop.handle(message, self.now)
        seconds = time.thread_time() - begun - self._ports_seconds
        self.costs.most_running = max(self.costs.most_running, len(self.loop.executions))
        if isinstance(message, DevicesRead):
            self.costs.n_decisions = n_before
            self.costs.readings_seconds += seconds
        else:
            self.costs.n_decisions += (
                bool(self.loop.queue.queued) or self.loop.asking.refusal is not None
            )
            self.costs.decisions_seconds += seconds


@dataclass(frozen=True)
class Death:
    """Of a node."""

    node: str
    at_seconds: float


def _silent(snapshot: DeviceSnapshot) -> DeviceSnapshot:
    return DeviceSnapshot(
        snapshot.address,
        snapshot.name,
        snapshot.total_bytes,
        snapshot.free_bytes,
        processes=snapshot.processes,
        fault=SILENT,
    )
