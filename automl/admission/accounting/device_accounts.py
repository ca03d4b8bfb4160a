"""Keeps the accounts of all devices of a sweep from one decision to the next.

An account is computed anew only if the reading shows a change of its device, or its page of the
ledger has changed. The cost of a decision therefore does not grow with the number of devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

from automl.admission.accounting.account import DeviceAccount, is_same_but_shown, make_account
from automl.admission.accounting.device_index import DeviceIndex
from automl.admission.accounting.host_share import HostShare, gpu_process_bytes, host_share_of
from automl.admission.accounting.ledger import DeviceLedgerPage, LedgerChanges, LedgerSnapshot
from automl.admission.limits import AdmissionLimits
from automl.devices.device_reading import DeviceReading
from automl.trial import DeviceId


class DeviceAccounts:
    """The accounts of one sweep, by the last reading and ledger that were passed in. For the main
    thread.

    All other inputs come with one of the two: faults and promises of other sweeps with the reading,
    which changes with them; the memory of processes with the ledger.
    """

    def __init__(self) -> None:
        self._reading: DeviceReading | None = None
        self._headroom_bytes = 0
        self._changes = LedgerChanges()
        self._kept: dict[DeviceId, DeviceAccount] = {}
        self._index: DeviceIndex | None = None
        self._disturbed: set[DeviceId] = set()
        self._news: set[DeviceId] = set()
        self._differing: tuple[DeviceReading, set[DeviceId] | None] | None = None
        """The last reading that was compared, with the devices that differ."""
        self._process_bytes = 0
        self._shares: dict[DeviceId, tuple[DeviceLedgerPage, HostShare]] = {}
        self._shares_of: DeviceReading | None = None
        self._totals: dict[str, HostShare] = {}
        self._totals_changes = LedgerChanges()

    def update(
        self, reading: DeviceReading, ledger: LedgerSnapshot, headroom_bytes: int
    ) -> Mapping[DeviceId, DeviceAccount]:
        """Bring the accounts up to date, and return those of all devices of the reading, in its
        order.

        The mapping is the same object each time, and changes at the next call.
        """
        changed = ledger.changes.since(self._changes)
        differing = self.differing(reading)
        before, self._reading, self._changes = self._reading, reading, ledger.changes
        if differing is None or changed is None or headroom_bytes != self._headroom_bytes:
            self._headroom_bytes = headroom_bytes
            self._start_over(reading, ledger)
        else:
            if reading is not before:
                self._renew_snapshots(reading, differing)
            if changed or differing:
                self._renew(changed | differing, reading, ledger)
        return self._kept

    def differing(self, reading: DeviceReading) -> set[DeviceId] | None:
        """Return the devices whose account may change with this reading; None: it shows other
        devices.

        These are devices that the reading shows otherwise in a figure that counts, and devices on
        which an awaited context may have come.
        """
        if reading is self._reading:
            return set()
        if self._differing is None or self._differing[0] is not reading:
            self._differing = reading, self._compare(reading)
        return self._differing[1]

    def index(
        self, reading: DeviceReading, ledger: LedgerSnapshot, limits: AdmissionLimits
    ) -> DeviceIndex:
        """Return the index of the accounts, brought up to date."""
        accounts = self.update(reading, ledger, limits.headroom_bytes)
        if self._index is None:
            self._index = DeviceIndex(accounts, limits)
        self._index.follow(limits)
        return self._index

    @property
    def disturbed(self) -> Set[DeviceId]:
        """Devices of which others hold more than the least that they ever held."""
        return self._disturbed

    def take_news(self) -> set[DeviceId]:
        """Return the devices whose account has changed since the previous call."""
        news, self._news = self._news, set()
        return news

    def host_share(self, node: str, reading: DeviceReading, ledger: LedgerSnapshot) -> HostShare:
        """Return what our trials take of a machine, on devices of the reading or not.

        Nothing is added up for machines that nobody asks for.
        """
        if reading is not self._shares_of or gpu_process_bytes(ledger) != self._process_bytes:
            self._shares_of, self._process_bytes = reading, gpu_process_bytes(ledger)
            self._shares, self._totals = {}, {}
        changed = ledger.changes.since(self._totals_changes)
        self._totals_changes = ledger.changes
        if changed is None:
            self._totals = {}
        for device in changed or ():
            self._totals.pop(device.node, None)
        if node not in self._totals:
            self._totals[node] = self._total(node, reading, ledger)
        return self._totals[node]

    def _total(self, node: str, reading: DeviceReading, ledger: LedgerSnapshot) -> HostShare:
        total = HostShare()
        for device in ledger.on_node(node):
            kept, page = self._shares.get(device), ledger.on(device)
            if kept is None or kept[0] is not page:
                kept = page, host_share_of(device, page, reading, gpu_process_bytes(ledger))
                self._shares[device] = kept
            total += kept[1]
        return total

    def _start_over(self, reading: DeviceReading, ledger: LedgerSnapshot) -> None:
        self._news |= self._kept.keys()
        self._kept, self._index, self._disturbed = {}, None, set()
        self._renew((device.address for device in reading.devices), reading, ledger)

    def _compare(self, reading: DeviceReading) -> set[DeviceId] | None:
        before = self._reading
        if before is None or [*self._kept] != [device.address for device in reading.devices]:
            return None
        elsewhere = {*reading.promised_elsewhere, *before.promised_elsewhere}
        differing = {address for address, _ in elsewhere}
        for here, device in zip(self._kept.values(), reading.devices, strict=True):
            address = device.address
            if here.pending_bytes or not (
                is_same_but_shown(here.device, device)
                and reading.held_before_on(address) == before.held_before_on(address)
                and reading.held_after_on(address) == before.held_after_on(address)
            ):
                differing.add(address)
        return differing

    def _renew_snapshots(self, reading: DeviceReading, differing: Set[DeviceId]) -> None:
        """Renew the snapshots in accounts of devices that differ in nothing that counts."""
        for device in reading.devices:
            kept = self._kept[device.address]
            if device is not kept.device and device.address not in differing:
                self._kept[device.address] = replace(kept, device=device)

    def _renew(
        self, addresses: Iterable[DeviceId], reading: DeviceReading, ledger: LedgerSnapshot
    ) -> None:
        for address in addresses:
            device = reading.find(address)
            if device is None:
                continue
            new = make_account(device, reading, ledger.on(address), self._headroom_bytes)
            self._kept[address] = new
            self._news.add(address)
            if new.is_undisturbed:
                self._disturbed.discard(address)
            else:
                self._disturbed.add(address)
            if self._index is not None:
                self._index.put(new)
