"""Keeps the devices of a sweep as one table: an account of each, and a numpy column of each figure.

`placement_policy.place_trial` compares whole columns, so one decision costs about the same for 1
device and for 8,000. An account is computed anew only if the reading shows a change of its device,
or its page of the ledger has changed.

The rows are sorted by node, GPUs before the host, then by UUID. So the devices of one node and kind
(a team) lie together, and the first row is taken among devices that are otherwise equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from automl.admission.accounting.account import DeviceAccount, is_same_but_shown, make_account
from automl.admission.accounting.host_share import HostShare, gpu_process_bytes, host_share_of
from automl.admission.accounting.ledger import DeviceLedgerPage, LedgerChanges, LedgerSnapshot
from automl.admission.limits import AdmissionLimits
from automl.devices.device_reading import DeviceReading
from automl.trial import DeviceId, DeviceKind

Figures: TypeAlias = npt.NDArray[np.int64]
"""A number of each row, `(n_devices,)`."""
Mask: TypeAlias = npt.NDArray[np.bool_]
"""Whether a row is meant, `(n_devices,)`."""


SAME_SIZE_FRACTION = 0.99
"""Sizes within this ratio count as equal, since the driver leaves a little more or less of devices
of one model."""


class DeviceTable:
    """The devices of one sweep, by the last reading and ledger that were passed in. For the main
    thread.

    All other inputs come with one of the two: faults and other sweeps' promises with the reading,
    the memory of processes with the ledger.
    """

    addresses: list[DeviceId]
    """The device of each row."""
    rows: Mapping[DeviceId, int]
    team: Figures
    """Number of the node and kind of each row."""
    on_gpu: Mask
    of_kind: Mapping[DeviceKind, Mask]
    hosts_of_gpus: Set[int]
    """Rows of machines whose GPUs have rows, too."""
    total_bytes: Figures
    empty_room_bytes: Figures
    room_bytes: Figures
    given_back_bytes: Figures
    """The most that our idle processes could give back."""
    n_trials: Figures
    rank: Figures
    is_well: Mask
    is_left: Mask
    """Whether the device is not lost."""
    is_open: Mask
    takes_trials: Mask
    """Whether the device is open, and no trial has it to itself."""

    def __init__(self) -> None:
        self._reading: DeviceReading | None = None
        self._headroom_bytes = 0
        self._changes = LedgerChanges()
        self._accounts: dict[DeviceId, DeviceAccount] = {}
        self._is_disturbed: Mask = np.zeros(0, np.bool_)
        self._news: set[DeviceId] = set()
        self._differing: tuple[DeviceReading, set[DeviceId] | None] | None = None
        """The last reading that was compared, with the devices that differ."""
        self._limits: AdmissionLimits | None = None
        self._process_bytes = 0
        self._shares: dict[DeviceId, tuple[DeviceLedgerPage, HostShare]] = {}
        self._shares_of: DeviceReading | None = None
        self._totals: dict[str, HostShare] = {}
        self._totals_changes = LedgerChanges()

    # --- accounts ---

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
            return self._accounts
        if reading is not before:
            self._renew_snapshots(reading, differing)
        for address in changed | differing:
            self._renew(address, reading, ledger)
        return self._accounts

    def differing(self, reading: DeviceReading) -> set[DeviceId] | None:
        """Return the devices whose account may change with this reading; None: it shows other
        devices.

        These are devices with a changed figure that counts, and devices on which an awaited context
        may have come.
        """
        if reading is self._reading:
            return set()
        if self._differing is None or self._differing[0] is not reading:
            self._differing = reading, self._compare(reading)
        return self._differing[1]

    @property
    def disturbed(self) -> Set[DeviceId]:
        """Devices of which others hold more than the least that they ever held."""
        return {self.addresses[row] for row in self._is_disturbed.nonzero()[0]}

    def take_news(self) -> set[DeviceId]:
        """Return the devices whose account has changed since the previous call."""
        news, self._news = self._news, set()
        return news

    def account(self, row: int | np.int64) -> DeviceAccount:
        return self._accounts[self.addresses[row]]

    def _start_over(self, reading: DeviceReading, ledger: LedgerSnapshot) -> None:
        self._news |= self._accounts.keys()
        self._accounts, self._limits = {}, None
        found = (device.address for device in reading.devices)
        self.addresses = sorted(found, key=lambda d: (d.node, d.on_host, d.uuid))
        self.rows = {device: row for row, device in enumerate(self.addresses)}
        teams: dict[tuple[str, DeviceKind], int] = {}
        of_team = [teams.setdefault((d.node, d.kind), len(teams)) for d in self.addresses]
        self.team = np.array(of_team, np.int64)
        self.on_gpu = np.array([not d.on_host for d in self.addresses], np.bool_)
        self.of_kind = {DeviceKind.GPU: self.on_gpu, DeviceKind.CPU: ~self.on_gpu}
        self.hosts_of_gpus = {
            row for d, row in self.rows.items() if d.on_host and (d.node, DeviceKind.GPU) in teams
        }
        n = len(self.rows)
        self.total_bytes, self.empty_room_bytes, self.room_bytes = np.zeros((3, n), np.int64)
        self.given_back_bytes, self.n_trials, self.rank = np.zeros((3, n), np.int64)
        self.is_well, self.is_left, self.is_open = np.zeros((3, n), np.bool_)
        self.takes_trials, self._is_disturbed = np.zeros((2, n), np.bool_)
        for device in reading.devices:
            self._renew(device.address, reading, ledger)

    def _compare(self, reading: DeviceReading) -> set[DeviceId] | None:
        before = self._reading
        if before is None or [*self._accounts] != [device.address for device in reading.devices]:
            return None
        elsewhere = {*reading.promised_elsewhere, *before.promised_elsewhere}
        differing = {address for address, _ in elsewhere}
        for here, device in zip(self._accounts.values(), reading.devices, strict=True):
            address = device.address
            if here.pending_bytes or not (
                is_same_but_shown(here.device, device)
                and reading.held_before_on(address) == before.held_before_on(address)
                and reading.held_after_on(address) == before.held_after_on(address)
            ):
                differing.add(address)
        return differing

    def _renew_snapshots(self, reading: DeviceReading, differing: Set[DeviceId]) -> None:
        """Renew the snapshots in the accounts of devices whose figures that count are unchanged."""
        for device in reading.devices:
            kept = self._accounts[device.address]
            if device is not kept.device and device.address not in differing:
                self._accounts[device.address] = replace(kept, device=device)

    def _renew(self, address: DeviceId, reading: DeviceReading, ledger: LedgerSnapshot) -> None:
        device = reading.find(address)
        if device is None:
            return
        a = make_account(device, reading, ledger.on(address), self._headroom_bytes)
        self._accounts[address], row = a, self.rows[address]
        self.total_bytes[row] = device.total_bytes
        self.empty_room_bytes[row] = a.empty_room_bytes
        self.room_bytes[row] = a.room_bytes
        self.given_back_bytes[row] = max(a.idle_bytes, a.foreign_bytes)
        self.n_trials[row] = a.n_trials
        self.rank[row] = a.rank
        self.is_well[row] = is_well = device.fault is None
        self.is_left[row] = not device.lost
        takes_processes = is_well and device.max_processes != 0
        self.is_open[row] = takes_processes and device.closed is None
        self.takes_trials[row] = takes_processes and not a.exclusive
        self._news.add(address)
        self._is_disturbed[row] = not a.is_undisturbed

    # --- questions about all rows ---

    def max_trials(self, limits: AdmissionLimits) -> Figures:
        """Return the most trials on each device, without what machines keep for their GPUs."""
        if limits is not self._limits:
            self._limits = limits
            self._max_trials = np.array([*map(limits.max_trials_on, self.addresses)], np.int64)
        return self._max_trials

    def keep_teams(self, mask: Mask, n_devices: int) -> Mask:
        """Return the mask without the teams that have fewer than `n_devices` rows in it."""
        if n_devices == 1:
            return mask
        n_in_team = np.bincount(self.team, mask)
        return mask & (n_in_team >= n_devices)[self.team]

    def nth_largest(self, figures: Figures, mask: Mask, n: int) -> int:
        """Return the row with the n-th largest figure of its team, of the team where that is
        largest.

        At least one team must have `n` rows in the mask.
        """
        rows = mask.nonzero()[0]
        if n > 1:
            rows = rows[np.lexsort((figures[rows], self.team[rows]))]
            # The (n - 1)th row after each n-th largest belongs to the same team.
            rows = rows[: 1 - n][self.team[rows[: 1 - n]] == self.team[rows[n - 1 :]]]
        return int(rows[figures[rows].argmax()])

    def keep_largest(self, mask: Mask, n_devices: int) -> Mask:
        """Return the devices of the largest size of each node, on the nodes that have the largest.

        At least one team must have `n_devices` rows in the mask.
        """
        sizes = self.total_bytes
        largest = sizes[self.nth_largest(sizes, mask, n_devices)]
        return self.keep_teams(mask & (sizes >= SAME_SIZE_FRACTION * largest), n_devices)

    # --- machines ---

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
