"""Asks the policy for the loop: by the last reading, the ledger, and the processes kept warm."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from automl.admission.account import DeviceAccount, contexts_seen
from automl.admission.accounts import Accounts
from automl.admission.caps import caps
from automl.admission.governor import Governor, shared
from automl.admission.hosts import Hosts
from automl.admission.ledger import Changes, Ledger
from automl.admission.limits import Limits
from automl.admission.policy import place
from automl.admission.reasons import Refusal, at_limit
from automl.admission.requests import Requests
from automl.admission.situation import Situation
from automl.admission.unseen import Lasting, about_to_be, unseen, with_elsewhere
from automl.devices.device import Reading
from automl.running.agreement import agreed
from automl.running.doubt import doubting, drained, has_failed
from automl.running.messages import Execution, Start, Waiting
from automl.running.ports import Ports
from automl.trial import (
    DeviceId,
    DeviceKind,
    Placement,
    ProcessId,
    Request,
    RequestSource,
)


@dataclass
class Placing:
    """What the loop knows of the devices. For the main thread."""

    ports: Ports
    requests: Requests
    ledger: Ledger
    limits: Limits
    process: ProcessId | None
    executions: Mapping[int, Execution]
    """Those that were not heard to be over."""
    reading: Reading | None = None
    accounts: Accounts = field(default_factory=Accounts)
    governor: Governor | None = None
    """None: the user has said how many trials run at once, or nobody can tell their pace."""
    _freed_seconds: dict[DeviceId, float] = field(default_factory=dict)
    """When an execution there was heard to be over."""
    _last_freed_seconds: float = -math.inf
    _lasting: Lasting = field(default_factory=Lasting)
    _noted: Changes = field(default_factory=Changes)
    """Of the ledger, when a reading was noted last."""
    _died_seconds: dict[DeviceId, float] = field(default_factory=dict)
    """When a process was last heard to have died on a GPU."""

    def read(self, reading: Reading, now_seconds: float) -> None:
        """The devices were read."""
        begun, died = reading.begun_seconds, self._died_seconds
        self._died_seconds = {device: at for device, at in died.items() if at >= begun}
        self.reading = reading = doubting(reading, self._died_seconds)
        if reading.error is None:
            self.limits = self.limits.by(reading.devices)
        if failed := drained(reading):
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

    def _note(self, reading: Reading) -> None:
        """What the reading tells of contexts, on devices of which it, or the ledger, tells
        something new."""
        differing, ledger = self.accounts.differing(reading), self.ledger.snapshot()
        changed = ledger.changes.since(self._noted)
        is_new = differing is None or changed is None
        on = {*ledger.pages} if is_new else {*(differing or ()), *(changed or ())}
        self._noted = ledger.changes
        self.ledger.note(reading, contexts_seen(reading, on), on)

    def _govern(self, reading: Reading, now_seconds: float) -> None:
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
            self.governor.observe(shared(device, most_on(here), there[here]), now_seconds)
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
            changed = caps(accounts, self.ledger.snapshot(), self.accounts.take_news())
            self.ports.cap_memory(changed)

    def device_accounts(self) -> list[DeviceAccount]:
        """By the last reading, if there is one."""
        return [*self._accounts().values()]

    def _accounts(self) -> Mapping[DeviceId, DeviceAccount]:
        if self.reading is None:
            return {}
        ledger = self.ledger.snapshot()
        return self.accounts.of(self.reading, ledger, self.limits.headroom_bytes)

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
        had_failed = any(map(has_failed, shown))
        died = dict.fromkeys(gpus, now_seconds)
        self._died_seconds |= died
        self.reading = doubting(self.reading, died)  # it doubts those of before already
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

    def _most(self, reading: Reading, limits: Limits) -> Callable[[DeviceId], int]:
        """How many a device takes, a machine itself at least one, which it has once its GPUs have
        nothing to do."""
        ledger, share_of = self.ledger.snapshot(), self.accounts.host_share
        hosts = Hosts(reading, ledger, limits, share_of, idle={}, in_threads=True)
        return lambda device: max(min(1, limits.on(device)), hosts.most(device))

    @property
    def shows_the_last_end(self) -> bool:
        """Whether the last reading was begun after the last execution was over."""
        last_seconds = self._last_freed_seconds
        return self.reading is not None and self.reading.begun_seconds > last_seconds

    def request(self, waiting: Waiting) -> Request:
        """What it asks for, by what is known now."""
        kinds = self.kinds if waiting.where is None else frozenset({waiting.where})
        request = self.requests.of(waiting.trial.params, waiting.n_ran_out, kinds)
        if waiting.where is not None:
            request = replace(request, kinds=request.kinds & kinds or request.kinds)
        return replace(request, undisturbed=waiting.undisturbed)

    @property
    def least(self) -> Request:
        """What any trial asks for at least."""
        return self.requests.least(self.kinds)

    @property
    def has_read(self) -> bool:
        """Whether the last reading shows devices."""
        return self.reading is not None and self.reading.error is None

    @property
    def kinds(self) -> frozenset[DeviceKind]:
        """Of device, that it shows."""
        return frozenset() if self.reading is None else self.reading.kinds

    def known_request(self, waiting: Waiting) -> Request | None:
        """The same; None: what it will want is being found out."""
        request = self.request(waiting)
        if request.source not in (RequestSource.UNKNOWN, RequestSource.PROBED):
            return request
        return None if self.ports.is_surveying(waiting.trial) else self.request(waiting)

    def place(self, request: Request, now_seconds: float) -> Placement | Refusal:
        """Where it starts now, or why it does not."""
        most = self.limits.max_concurrent_trials
        if most is not None and len(self.executions) >= most:
            return at_limit(most)  # reservations come back before we hear that they did
        return place(
            request,
            self.reading,
            self.ledger.snapshot(),
            self.limits,
            now_seconds=now_seconds,
            process=self.process,
            idle=self.ports.idle(),
            accounts=self.accounts,
        )

    def agreed(self, decide: Callable[[], Start | Refusal], now_seconds: float) -> Start | Refusal:
        """What is decided once other sweeps see it, beside what they show then. `decide` asks
        `place` or looks at a `situation`, and may be called again."""
        found = decide()
        if isinstance(found, Refusal) or found.placement.on_host:
            return found

        def again() -> Start | Refusal:
            nonlocal found
            before = self.reading
            assert before is not None, "it was decided by a reading"
            elsewhere = self.ports.promised_elsewhere(before.begun_seconds)
            self.reading = with_elsewhere(before, elsewhere)
            if self.reading is not before:
                found = decide()
            return found

        n_shown = 0

        def show(coming: Start | None) -> None:
            nonlocal n_shown
            if n_shown:  # what was shown before was not taken
                self._lasting.withdraw()
            n_shown += 1
            self._show(now_seconds, coming)

        return agreed(found, show, again)

    def _show(self, now_seconds: float, coming: Start | None = None) -> None:
        """Other sweeps what NVML does not show them, and this besides."""
        assert self.reading is not None
        found = unseen(self.reading, self.ledger.snapshot())
        soon = () if coming is None else about_to_be(coming.placement, coming.key)
        self.ports.show_promises(self._lasting.of(found, soon, now_seconds))

    def situation(self, now_seconds: float, ends_seconds: Mapping[int, float]) -> Situation:
        """All that placing depends on; there is a reading. `ends_seconds`: by execution."""
        assert self.reading is not None
        return Situation(
            self.reading,
            self.ledger.snapshot(),
            self.limits,
            now_seconds,
            self.process,
            self.ports.idle(),
            ends_seconds,
            self.accounts,
        )

    def make_room(self, refusal: Refusal) -> None:
        """What lacks may be what processes hold in which nothing runs; a later reading shows it.

        One that was begun before they gave their memory back shows what they held then.
        """
        for device in refusal.in_the_way:
            assert self.reading is not None, "it was in the way by a reading"
            if self.reading.begun_seconds > self._freed_seconds.get(device, -math.inf):
                self.ports.end_idle({device})
