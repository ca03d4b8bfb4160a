"""Asks the policy for the loop: by the last reading, the ledger, and the processes kept warm.

Two sweeps that choose at once: each shows what it is about to promise before it looks. Pure.

Whoever looks later sees the other, and waits; where both look after both have shown, both wait.

A GPU on which a process died may be lost: nobody starts there until a reading shows it. Pure.

NVML says a second later that a device is lost. A trial that started there again meanwhile would die
a second time, for which it would have failed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from automl.admission.accounting.account import DeviceAccount, contexts_seen
from automl.admission.accounting.device_accounts import DeviceAccounts
from automl.admission.accounting.host_share import HostRooms
from automl.admission.accounting.ledger import Ledger, LedgerChanges
from automl.admission.backfill import PlacementSituation
from automl.admission.governor import SharingGovernor, shared_device
from automl.admission.limits import AdmissionLimits
from automl.admission.memory_caps import (
    ShownPromises,
    add_promises_elsewhere,
    coming_promises,
    memory_caps,
    unseen_promises,
)
from automl.admission.placement_policy import place_trial
from automl.admission.refusals import AdmissionRefusal, at_limit
from automl.admission.requests import RequestMaker
from automl.devices.device_reading import DeviceReading, DeviceSnapshot
from automl.running.loop.messages import AdmittedExecution, ExecutionStart, LoopPorts, WaitingTrial
from automl.trial import DeviceId, DeviceKind, Placement, ProcessId, RequestSource, ResourceRequest

_N_TRIES = 4
_CROWDED = AdmissionRefusal("waiting: other sweeps take what is free of the devices at this moment")


def agree_on_start(
    first: ExecutionStart,
    show: Callable[[ExecutionStart | None], None],
    decide: Callable[[], ExecutionStart | AdmissionRefusal],
) -> ExecutionStart | AdmissionRefusal:
    """What may start, which others can see, and which has room beside what they promise then.

    Parameters
    ----------
    show: what is promised, and this besides.
    decide: with what others show by then.
    """
    shown = first
    for _ in range(_N_TRIES):
        show(shown)
        decided = decide()
        if isinstance(decided, AdmissionRefusal):
            break
        if _is_shown(decided.placement, shown.placement):
            return decided
        shown = decided
    show(None)
    return decided if isinstance(decided, AdmissionRefusal) else _CROWDED


def _is_shown(decided: Placement, shown: Placement) -> bool:
    """On the same devices, and no more of any."""
    return decided.devices == shown.devices and all(
        share.reservation_bytes <= promised.reservation_bytes
        for share, promised in zip(decided.shares, shown.shares, strict=True)
    )


IN_DOUBT = "a process died there, and no later reading shows it yet"


def mark_doubted_devices(
    reading: DeviceReading, died_seconds: Mapping[DeviceId, float]
) -> DeviceReading:
    """The reading, in which GPUs where a process has died since it was begun take no trial.

    `died_seconds`: when that was heard of last (`time.monotonic()`).
    """
    doubted = {d for d, at in died_seconds.items() if at >= reading.begun_seconds}
    shown = filter(None, map(reading.find, doubted))
    if all(device.fault is not None for device in shown):
        return reading  # nobody starts there anyway
    devices = (
        replace(d, fault=d.fault or IN_DOUBT) if d.address in doubted else d
        for d in reading.devices
    )
    return replace(reading, devices=tuple(devices))


def failed_devices(reading: DeviceReading) -> frozenset[DeviceId]:
    """The devices that a reading says have failed."""
    return frozenset(d.address for d in reading.devices if has_device_failed(d))


def has_device_failed(device: DeviceSnapshot) -> bool:
    """Whether a reading says so, not we who doubt it."""
    return device.fault not in (None, IN_DOUBT)


@dataclass
class TrialPlacer:
    """What the loop knows of the devices. For the main thread."""

    ports: LoopPorts
    requests: RequestMaker
    ledger: Ledger
    limits: AdmissionLimits
    process: ProcessId | None
    executions: Mapping[int, AdmittedExecution]
    """Those that were not heard to be over."""
    reading: DeviceReading | None = None
    accounts: DeviceAccounts = field(default_factory=DeviceAccounts)
    governor: SharingGovernor | None = None
    """None: the user has said how many trials run at once, or nobody can tell their pace."""
    _freed_seconds: dict[DeviceId, float] = field(default_factory=dict)
    """When an execution there was heard to be over."""
    _last_freed_seconds: float = -math.inf
    _lasting: ShownPromises = field(default_factory=ShownPromises)
    _noted: LedgerChanges = field(default_factory=LedgerChanges)
    """Of the ledger, when a reading was noted last."""
    _died_seconds: dict[DeviceId, float] = field(default_factory=dict)
    """When a process was last heard to have died on a GPU."""

    def read(self, reading: DeviceReading, now_seconds: float) -> None:
        """The devices were read."""
        begun, died = reading.begun_seconds, self._died_seconds
        self._died_seconds = {device: at for device, at in died.items() if at >= begun}
        self.reading = reading = mark_doubted_devices(reading, self._died_seconds)
        if reading.error is None:
            self.limits = self.limits.by(reading.devices)
        if failed := failed_devices(reading):
            self.ports.end_idle(failed)  # their contexts have failed, too, even if it comes back
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
        if disturbed := self.accounts.disturbed:
            for execution in self.executions.values():
                execution.disturbed |= not disturbed.isdisjoint(execution.placement.devices)

    def _note(self, reading: DeviceReading) -> None:
        """What the reading tells of contexts, on devices of which it, or the ledger, tells
        something new."""
        differing, ledger = self.accounts.differing(reading), self.ledger.snapshot()
        changed = ledger.changes.since(self._noted)
        is_new = differing is None or changed is None
        on = {*ledger.pages} if is_new else {*(differing or ()), *(changed or ())}
        self._noted = ledger.changes
        self.ledger.note(reading, contexts_seen(reading, on), on)

    def _govern(self, reading: DeviceReading, now_seconds: float) -> None:
        """How fast what runs on each device is tells how many trials it takes from now on."""
        if self.governor is None:
            return
        n_steps, sharing, most = self.ports.n_steps(), {}, replace(self.limits, sharing={})
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
        """Whether others hold more of one of its devices than they ever did at the least."""
        self._accounts()
        return not self.accounts.disturbed.isdisjoint(placement.devices)

    def cap(self) -> None:
        """Hold each process to its promise, and to what is promised to nobody; where nothing
        changed it is held already."""
        if self.reading is not None and self.executions:
            accounts = self._accounts()
            changed = memory_caps(accounts, self.ledger.snapshot(), self.accounts.take_news())
            self.ports.cap_memory(changed)

    def device_accounts(self) -> list[DeviceAccount]:
        """By the last reading, if there is one."""
        return [*self._accounts().values()]

    def _accounts(self) -> Mapping[DeviceId, DeviceAccount]:
        if self.reading is None:
            return {}
        ledger = self.ledger.snapshot()
        return self.accounts.update(self.reading, ledger, self.limits.headroom_bytes)

    def freed(self, devices: Iterable[DeviceId], now_seconds: float) -> None:
        """An execution on them is over."""
        self._last_freed_seconds = now_seconds
        for device in devices:
            self._freed_seconds[device] = now_seconds

    def died(self, devices: Iterable[DeviceId], now_seconds: float) -> bool:
        """A process died on them: nobody starts there until a later reading shows them well.
        Returns whether one was known to have failed, whose fault it is then."""
        if self.reading is None:
            return False
        gpus = {device for device in devices if not device.on_host}
        shown = filter(None, map(self.reading.find, gpus))
        had_failed = any(map(has_device_failed, shown))
        died = dict.fromkeys(gpus, now_seconds)
        self._died_seconds |= died
        self.reading = mark_doubted_devices(self.reading, died)  # it doubts those of before already
        return had_failed

    @property
    def n_side_by_side(self) -> int:
        """How many can run at once with a core each, at least 1."""
        devices = () if self.reading is None else self.reading.devices
        n_places = self.limits.at_once([device.address for device in devices])
        return min(n_places, self.limits.n_cores)

    @property
    def n_places(self) -> Mapping[DeviceKind, int]:
        """How many can run at once by kind of device, as far as memory allows; of a cap on all
        together GPUs have the first."""
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
        """How many a device takes, a machine itself at least one, which it has once its GPUs have
        nothing to do."""
        ledger, share_of = self.ledger.snapshot(), self.accounts.host_share
        hosts = HostRooms(reading, ledger, limits, share_of, idle={}, in_threads=True)
        return lambda device: max(min(1, limits.on(device)), hosts.most_trials(device))

    @property
    def shows_the_last_end(self) -> bool:
        """Whether the last reading was begun after the last execution was over."""
        last_seconds = self._last_freed_seconds
        return self.reading is not None and self.reading.begun_seconds > last_seconds

    def request(self, waiting: WaitingTrial) -> ResourceRequest:
        """What it asks for, by what is known now."""
        kinds = self.kinds if waiting.where is None else frozenset({waiting.where})
        request = self.requests.request_for(waiting.trial.params, waiting.n_ran_out, kinds)
        if waiting.where is not None:
            request = replace(request, kinds=request.kinds & kinds or request.kinds)
        return replace(request, undisturbed=waiting.undisturbed)

    @property
    def least(self) -> ResourceRequest:
        """What any trial asks for at least."""
        return self.requests.least_request(self.kinds)

    @property
    def has_read(self) -> bool:
        """Whether the last reading shows devices."""
        return self.reading is not None and self.reading.error is None

    @property
    def kinds(self) -> frozenset[DeviceKind]:
        """Of device, that it shows."""
        return frozenset() if self.reading is None else self.reading.kinds

    def known_request(self, waiting: WaitingTrial) -> ResourceRequest | None:
        """The same; None: what it will want is being found out."""
        request = self.request(waiting)
        if request.source not in (RequestSource.UNKNOWN, RequestSource.PROBED):
            return request
        return None if self.ports.is_surveying(waiting.trial) else self.request(waiting)

    def place(self, request: ResourceRequest, now_seconds: float) -> Placement | AdmissionRefusal:
        """Where it starts now, or why it does not."""
        most = self.limits.max_concurrent_trials
        if most is not None and len(self.executions) >= most:
            return at_limit(most)  # reservations come back before we hear that they did
        return place_trial(
            request,
            self.reading,
            self.ledger.snapshot(),
            self.limits,
            now_seconds=now_seconds,
            process=self.process,
            idle=self.ports.idle(),
            accounts=self.accounts,
        )

    def agreed(
        self, decide: Callable[[], ExecutionStart | AdmissionRefusal], now_seconds: float
    ) -> ExecutionStart | AdmissionRefusal:
        """What is decided once other sweeps see it, beside what they show then. `decide` asks
        `place_trial` or looks at a `situation`, and may be called again."""
        found = decide()
        if isinstance(found, AdmissionRefusal) or found.placement.on_host:
            return found

        def again() -> ExecutionStart | AdmissionRefusal:
            nonlocal found
            before = self.reading
            assert before is not None, "it was decided by a reading"
            elsewhere = self.ports.promised_elsewhere(before.begun_seconds)
            self.reading = add_promises_elsewhere(before, elsewhere)
            if self.reading is not before:
                found = decide()
            return found

        n_shown = 0

        def show(coming: ExecutionStart | None) -> None:
            nonlocal n_shown
            if n_shown:  # what was shown before was not taken
                self._lasting.withdraw()
            n_shown += 1
            self._show(now_seconds, coming)

        return agree_on_start(found, show, again)

    def _show(self, now_seconds: float, coming: ExecutionStart | None = None) -> None:
        """Other sweeps what NVML does not show them, and this besides."""
        assert self.reading is not None
        found = unseen_promises(self.reading, self.ledger.snapshot())
        soon = () if coming is None else coming_promises(coming.placement, coming.key)
        self.ports.show_promises(self._lasting.promises_to_show(found, soon, now_seconds))

    def situation(
        self, now_seconds: float, ends_seconds: Mapping[int, float]
    ) -> PlacementSituation:
        """All that placing depends on; there is a reading. `ends_seconds`: by execution."""
        assert self.reading is not None
        return PlacementSituation(
            self.reading,
            self.ledger.snapshot(),
            self.limits,
            now_seconds,
            self.process,
            self.ports.idle(),
            ends_seconds,
            self.accounts,
        )

    def make_room(self, refusal: AdmissionRefusal) -> None:
        """What lacks may be what processes hold in which nothing runs; a later reading shows it.

        One that was begun before they gave their memory back shows what they held then.
        """
        for device in refusal.in_the_way:
            assert self.reading is not None, "it was in the way by a reading"
            if self.reading.begun_seconds > self._freed_seconds.get(device, -math.inf):
                self.ports.end_idle({device})
