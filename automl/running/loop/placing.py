"""Asks the placement policy on behalf of the loop: by the last reading, the ledger and the warm
processes.

Two sweeps may choose at the same moment. Each looks at the other's promises, decides and shows what
it is about to reserve under one lock, so that the second sees the first.

A GPU on which a process died may be lost, which NVML reports only a second later. No trial starts
there until a reading shows the GPU well: a trial that started there at once would die a second
time, and count as failed. The same holds for all devices of a node that lost a trial.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from automl.admission.accounting.account import DeviceAccount, visible_contexts
from automl.admission.accounting.device_table import DeviceTable
from automl.admission.accounting.host_share import HostCapacities
from automl.admission.accounting.ledger import Ledger, LedgerChanges
from automl.admission.backfill import PlacementSituation
from automl.admission.governor import SharingGovernor, shared_device
from automl.admission.limits import AdmissionLimits
from automl.admission.memory_caps import (
    PromiseRetention,
    add_promises_elsewhere,
    coming_promises,
    memory_caps,
    unseen_promises,
)
from automl.admission.placement_policy import place_trial
from automl.admission.refusals import AdmissionRefusal, at_limit_refusal
from automl.admission.requests import RequestMaker
from automl.devices.device_reading import DeviceReading, DeviceSnapshot
from automl.running.loop.messages import AdmittedExecution, ExecutionStart, WaitingTrial
from automl.running.loop.ports import LoopPorts
from automl.trial import DeviceId, DeviceKind, Placement, ProcessId, RequestSource, ResourceRequest

IN_DOUBT = "a process was lost there, and no later reading shows it yet"


def mark_doubted_devices(
    reading: DeviceReading, died_seconds: Mapping[DeviceId, float]
) -> DeviceReading:
    """Return the reading in which devices take no trial if a process was lost there since it was
    begun.

    `died_seconds`: when the last loss on each device was reported (`time.monotonic()`).
    """
    doubted = {d for d, at in died_seconds.items() if at >= reading.begun_seconds}
    shown = filter(None, map(reading.find, doubted))
    if all(device.fault is not None for device in shown):
        return reading  # no trial starts on a failed device anyway
    devices = (
        replace(d, fault=d.fault or IN_DOUBT) if d.address in doubted else d
        for d in reading.devices
    )
    return replace(reading, devices=tuple(devices))


def failed_devices(reading: DeviceReading) -> frozenset[DeviceId]:
    """Return the devices that a reading reports as failed."""
    return frozenset(d.address for d in reading.devices if has_device_failed(d))


def has_device_failed(device: DeviceSnapshot) -> bool:
    """Return whether the reading itself reports a fault, rather than our own doubt."""
    return device.fault not in (None, IN_DOUBT)


@dataclass
class TrialPlacer:
    """Knows the state of the devices and places the loop's trials. For the main thread."""

    ports: LoopPorts
    requests: RequestMaker
    ledger: Ledger
    limits: AdmissionLimits
    process: ProcessId | None
    executions: Mapping[int, AdmittedExecution]
    """Executions that are not known to be over."""
    reading: DeviceReading | None = None
    table: DeviceTable = field(default_factory=DeviceTable)
    governor: SharingGovernor | None = None
    """Limits the trials per device. None if the user has set the number, or if no pace can be
    measured."""
    next_key: int = 0
    """Key of the execution that starts next."""
    hold: AdmissionRefusal | None = None
    """Why nothing starts now, whatever the devices have. None if trials may start."""
    _freed_seconds: dict[DeviceId, float] = field(default_factory=dict)
    """When an execution on each device was last reported over."""
    _last_freed_seconds: float = -math.inf
    _lasting: PromiseRetention = field(default_factory=PromiseRetention)
    _noted: LedgerChanges = field(default_factory=LedgerChanges)
    """Changes of the ledger up to the last reading that was noted."""
    _died_seconds: dict[DeviceId, float] = field(default_factory=dict)
    """When a process was last reported lost on each device."""

    def read(self, reading: DeviceReading, now_seconds: float) -> None:
        """Take a new reading of the devices."""
        begun, died = reading.begun_seconds, self._died_seconds
        self._died_seconds = {device: at for device, at in died.items() if at >= begun}
        self.reading = reading = mark_doubted_devices(reading, self._died_seconds)
        if reading.error is None:
            self.limits = self.limits.with_places_of(reading.devices)
        if failed := failed_devices(reading):
            # The contexts of idle processes have failed, too, even if the device comes back.
            self.ports.processes.end_idle(failed)
        self._note(reading)
        self._show(now_seconds)
        if reading.error is not None:
            return
        self._govern(reading, now_seconds)
        self.ledger.note_foreign(
            (address, here.foreign_bytes)
            for address, here in self._accounts().items()
            if here.foreign_bytes == here.least_foreign_bytes
        )
        self._accounts()
        if disturbed := self.table.disturbed:
            for execution in self.executions.values():
                execution.disturbed |= not disturbed.isdisjoint(execution.placement.devices)

    def _note(self, reading: DeviceReading) -> None:
        """Note the contexts that the reading shows, on devices with news in the reading or the
        ledger."""
        differing, ledger = self.table.differing(reading), self.ledger.snapshot()
        changed = ledger.changes.since(self._noted)
        is_new = differing is None or changed is None
        on = {*ledger.pages} if is_new else {*(differing or ()), *(changed or ())}
        self._noted = ledger.changes
        self.ledger.note(reading, visible_contexts(reading, on), on)

    def _govern(self, reading: DeviceReading, now_seconds: float) -> None:
        """Limit the trials on each device by the pace of the trials that run there."""
        if self.governor is None:
            return
        n_steps, sharing, most = (
            self.ports.processes.n_steps(),
            {},
            replace(self.limits, sharing={}),
        )
        there: dict[DeviceId, dict[int, int | None]] = defaultdict(dict)
        for execution in self.executions.values():
            for here in execution.placement.devices:
                there[here][execution.key] = n_steps.get(execution.key)
        most_on = self._most(reading, most)
        for device in reading.devices:
            here = device.address
            self.governor.observe(shared_device(device, most_on(here), there[here]), now_seconds)
            if (found := self.governor.limit(here)) is not None:
                sharing[here] = found
        self.limits = replace(most, sharing=sharing)

    def is_disturbed(self, placement: Placement) -> bool:
        """Return whether others hold more of one of the devices than they ever did at the least."""
        self._accounts()
        return not self.table.disturbed.isdisjoint(placement.devices)

    def cap(self) -> None:
        """Cap each process at its reservation plus the memory reserved by no one. Caps that did not
        change are already in force."""
        if self.reading is not None and self.executions:
            accounts = self._accounts()
            changed = memory_caps(accounts, self.ledger.snapshot(), self.table.take_news())
            self.ports.processes.cap_memory(changed)

    def device_accounts(self) -> list[DeviceAccount]:
        """Return the accounts of the devices by the last reading, or none without a reading."""
        return [*self._accounts().values()]

    def _accounts(self) -> Mapping[DeviceId, DeviceAccount]:
        if self.reading is None:
            return {}
        ledger = self.ledger.snapshot()
        return self.table.update(self.reading, ledger, self.limits.headroom_bytes)

    def freed(self, devices: Iterable[DeviceId], now_seconds: float) -> None:
        """Note when an execution on these devices ended."""
        self._last_freed_seconds = now_seconds
        for device in devices:
            self._freed_seconds[device] = now_seconds

    def died(self, devices: Iterable[DeviceId], now_seconds: float) -> bool:
        """Let no trial start on the GPUs where a process died, until a later reading shows them
        well.

        Returns whether one of them was already known to have failed, which then is the cause of the
        death.
        """
        if self.reading is None:
            return False
        gpus = {device for device in devices if not device.on_host}
        shown = filter(None, map(self.reading.find, gpus))
        had_failed = any(map(has_device_failed, shown))
        self._doubt(gpus, now_seconds)
        return had_failed

    def node_lost(self, node: str, now_seconds: float) -> None:
        """Let no trial start on a node that lost one, until a later reading shows the node."""
        devices = () if self.reading is None else self.reading.devices
        self._doubt({d.address for d in devices if d.address.node == node}, now_seconds)

    def _doubt(self, devices: Collection[DeviceId], now_seconds: float) -> None:
        died = dict.fromkeys(devices, now_seconds)
        self._died_seconds |= died
        if self.reading is not None:  # earlier losses are marked in it already
            self.reading = mark_doubted_devices(self.reading, died)

    @property
    def n_side_by_side(self) -> int:
        """Number of trials that can run at once with a core each, at least 1."""
        devices = () if self.reading is None else self.reading.devices
        n_places = self.limits.at_once([device.address for device in devices])
        return min(n_places, self.limits.n_cores)

    @property
    def n_places(self) -> Mapping[DeviceKind, int]:
        """Number of trials that can run at once by kind of device, as far as memory allows. GPUs
        come first where a cap holds for all kinds together."""
        devices = () if self.reading is None else self.reading.devices
        places: dict[DeviceKind, int] = defaultdict(int)
        open_ones = [d.address for d in devices if d.fault is None and d.closed is None]
        if self.reading is not None:
            most_on = self._most(self.reading, self.limits)
            for address in open_ones:
                places[address.kind] += most_on(address)
        if (most := self.limits.max_concurrent_trials) is not None:
            places[DeviceKind.GPU] = min(places[DeviceKind.GPU], most)
            left = most - places[DeviceKind.GPU]
            places[DeviceKind.CPU] = min(places[DeviceKind.CPU], left)
        return places

    def _most(self, reading: DeviceReading, limits: AdmissionLimits) -> Callable[[DeviceId], int]:
        """Return how many trials each device takes. A host takes at least one once its GPUs have
        nothing to do."""
        ledger, share_of = self.ledger.snapshot(), self.table.host_share
        hosts = HostCapacities(reading, ledger, limits, share_of, idle={}, in_threads=True)
        return lambda device: max(min(1, limits.max_trials_on(device)), hosts.most_trials(device))

    @property
    def shows_the_last_end(self) -> bool:
        """Whether the last reading was begun after the last execution was over."""
        last_seconds = self._last_freed_seconds
        return self.reading is not None and self.reading.begun_seconds > last_seconds

    def request(self, waiting: WaitingTrial) -> ResourceRequest:
        """Return what the trial asks for, by what is known now."""
        kinds = self.kinds if waiting.where is None else frozenset({waiting.where})
        request = self.requests.request_for(waiting.trial.params, waiting.n_ran_out, kinds)
        if waiting.where is not None:
            request = replace(request, kinds=request.kinds & kinds or request.kinds)
        return replace(request, undisturbed=waiting.undisturbed)

    @property
    def least(self) -> ResourceRequest:
        """The smallest request that any trial can make."""
        return self.requests.least_request(self.kinds)

    @property
    def has_read(self) -> bool:
        """Whether the last reading shows devices."""
        return self.reading is not None and self.reading.error is None

    @property
    def kinds(self) -> frozenset[DeviceKind]:
        """Kinds of device that the last reading shows."""
        return frozenset() if self.reading is None else self.reading.kinds

    def known_request(self, waiting: WaitingTrial) -> ResourceRequest | None:
        """Return what the trial asks for, or None while a survey measures its needs."""
        request = self.request(waiting)
        if request.source not in (RequestSource.UNKNOWN, RequestSource.PROBED):
            return request
        is_surveying = DeviceKind.GPU in self.kinds and self.ports.surveys.is_surveying(
            waiting.trial
        )
        return None if is_surveying else self.request(waiting)

    def place(self, request: ResourceRequest, now_seconds: float) -> Placement | AdmissionRefusal:
        """Return where the request starts now, or why it does not."""
        if self.hold is not None:
            return self.hold
        most = self.limits.max_concurrent_trials
        if most is not None and len(self.executions) >= most:
            return at_limit_refusal(most)  # reservations come back before the loop is told of it
        return place_trial(
            request,
            self.reading,
            self.ledger.snapshot(),
            self.limits,
            now_seconds=now_seconds,
            process=self.process,
            idle=self.ports.processes.idle(),
            table=self.table,
        )

    def place_alone(
        self, now_seconds: float, waiting: WaitingTrial
    ) -> ExecutionStart | AdmissionRefusal:
        """Return where the trial starts now by itself, or why it does not."""
        request = self.request(waiting)
        found = self.place(request, now_seconds)
        if isinstance(found, AdmissionRefusal):
            return found
        return ExecutionStart([waiting], request, found)

    def agreed(
        self, decide: Callable[[], ExecutionStart | AdmissionRefusal], now_seconds: float
    ) -> ExecutionStart | AdmissionRefusal:
        """Return what is decided beside the promises of other sweeps, which see the start then.

        `decide` asks `place_trial` or looks at a `situation`, and may be called twice.
        """
        found = decide()
        if isinstance(found, AdmissionRefusal) or found.placement.on_host:
            return found
        before = self.reading
        assert before is not None, "a decision needs a reading"
        with self.ports.promises.locked():
            elsewhere = self.ports.promises.others(before.begun_seconds)
            self.reading = add_promises_elsewhere(before, elsewhere)
            if self.reading is not before:
                found = decide()
            if isinstance(found, ExecutionStart):
                self._show(now_seconds, found)
        return found

    def _show(self, now_seconds: float, coming: ExecutionStart | None = None) -> None:
        """Show other sweeps what NVML does not show them, and the coming start with it."""
        assert self.reading is not None
        found = unseen_promises(self.reading, self.ledger.snapshot())
        soon = () if coming is None else coming_promises(coming.placement, self.next_key)
        self.ports.promises.show(self._lasting.promises_to_show(found, soon, now_seconds))

    def situation(
        self, now_seconds: float, ends_seconds: Mapping[int, float]
    ) -> PlacementSituation:
        """Return everything that placing depends on. There must be a reading.

        `ends_seconds`: the expected end of each execution, by its key.
        """
        assert self.reading is not None
        return PlacementSituation(
            self.reading,
            self.ledger.snapshot(),
            self.limits,
            now_seconds,
            self.process,
            self.ports.processes.idle(),
            ends_seconds,
            self.table,
        )

    def make_room(self, refusal: AdmissionRefusal) -> None:
        """End idle processes on the devices in the way. A later reading shows the memory they free.

        A reading that was begun before such a process gave its memory back still shows the memory
        as used, and ends nothing.
        """
        for device in refusal.in_the_way:
            assert self.reading is not None, "the refusal was made by a reading"
            if self.reading.begun_seconds > self._freed_seconds.get(device, -math.inf):
                self.ports.processes.end_idle({device})
