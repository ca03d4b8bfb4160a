"""Tells admission which part of a cluster the sweep may use, and claims devices of a shared one.

The sweep has the whole cluster (`WholeCluster`), a whole cluster that can grow (`GrowingCluster` in
`autoscaler.py`), or claims on a cluster that other jobs use, too (`ClaimedResources`, `ray.claim`).
A claim is a whole GPU or a share of a node's CPUs. The sweep requests it while the head of the
queue waits for it, and gives it back when no trial has run on it for a minute. Any number of trials
train on a claimed GPU, one on a share of CPUs. How Ray grants a claim is in `ray_resources.py`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from automl.trial import DeviceId, DeviceKind

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
WANT_FRESH_SECONDS = 2.5
"""The head of the queue is believed to wait for this long after it last reported so."""


class ClusterUse(Protocol):
    """Tells which part of a cluster a sweep may use. For any thread."""

    def start(self) -> None:
        """Begin to watch the cluster."""

    def want(self, kinds: Iterable[DeviceKind], n: int) -> None:
        """Note that the queue's head waits for devices of these kinds, for up to `n` trials."""

    def held(self) -> Mapping[DeviceId, int] | None:
        """Return the number of claims on each device; None: trials may begin on all devices."""

    def use(self, key: int, devices: Iterable[DeviceId]) -> bool:
        """Return whether an execution may begin on the devices.

        If it may, they are not given back until `end_use`.
        """

    def end_use(self, key: int) -> None:
        """Note that the execution is over and uses its devices no more."""

    def close(self) -> None:
        """Give all back. Call it when no trial runs any more."""


class WholeCluster:
    """A cluster that the sweep has to itself, and that keeps its size."""

    def start(self) -> None:
        """Do nothing, since there is nothing to watch."""

    def want(self, kinds: Iterable[DeviceKind], n: int) -> None:
        """Do nothing, since no device can be added."""

    def held(self) -> None:
        """Return None, since trials may begin on all devices."""

    def use(self, key: int, devices: Iterable[DeviceId]) -> bool:
        """Return True, since all devices are the sweep's."""
        return True

    def end_use(self, key: int) -> None:
        """Do nothing, since nothing is given back."""

    def close(self) -> None:
        """Do nothing, since nothing was claimed."""


class ClusterWatch:
    """A thread that looks after a cluster once a second; only this thread waits for the cluster."""

    def __init__(self, name: str, look: Callable[[], None]) -> None:
        self._look = look
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self, timeout_seconds: float) -> None:
        """End the thread, but leave it alone if it still waits for the Ray head after that time."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while not self._closing.wait(LOOK_SECONDS):
            try:
                self._look()
            except Exception as error:  # noqa: BLE001 - the Ray head is away, and may come back
                logger.debug("the cluster cannot be asked: %s", error)


IDLE_SECONDS = 60.0
"""A claim is given back when no trial has run on it for this long."""
UNWANTED_SECONDS = 10.0
"""A request is withdrawn when the queue has not wanted its kind of device for this long."""
MAX_ASKED = {DeviceKind.GPU: 1, DeviceKind.CPU: 8}
"""Largest number of open requests by kind; one for GPUs, since several trials may share a GPU."""
MAX_FAILED = 5
"""No more devices of a kind are requested after this many claims could not tell their device."""
_LEAVE_SECONDS = 10.0
"""How long idle processes may take to leave a device before it is given back."""


class ClaimError(Exception):
    """Raised when a granted claim cannot tell which device it is."""


class ResourceClaim(Protocol):
    """A request for one whole GPU, or for a trial's share of a node's CPUs."""

    def device(self) -> DeviceId | None:
        """Return the granted device; None while the request waits. Raises ClaimError."""

    def is_lost(self) -> bool:
        """Return whether the claim was granted, and has been taken away since."""

    def give_back(self) -> None:
        """Give the device back, or withdraw the request. Raises nothing."""


@dataclass
class _HeldClaim:
    claim: ResourceClaim
    device: DeviceId
    idle_since: float
    users: set[int] = field(default_factory=set)
    """Keys of the executions that use the device."""
    leaving_since: float | None = None
    """Time since when no trial begins on the device; None while trials may begin."""


class ClaimedResources:
    """Requests, holds and gives back one sweep's claims on a shared cluster. Any thread."""

    def __init__(
        self,
        ask: Callable[[DeviceKind], ResourceClaim],
        end_idle: Callable[[DeviceId], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare to request claims with `ask`.

        `end_idle` makes idle processes leave a device, and returns whether they have left.
        """
        self._watch = ClusterWatch("claims", self.look)
        self._ask, self._end_idle, self._clock = ask, end_idle, clock
        self._asked: list[tuple[DeviceKind, ResourceClaim]] = []
        """Open requests; only the watching thread uses the list, until it has ended."""
        self._lock = threading.Lock()  # guards the two below, and never a wait for the cluster
        self._held: list[_HeldClaim] = []
        """Granted claims; only the watching thread adds and removes them."""
        self._wanted: dict[DeviceKind, tuple[int, float]] = {}
        """Number of wanted devices by kind, and when that was reported."""
        self._n_failed: Counter[DeviceKind] = Counter()

    def start(self) -> None:
        """Begin to look once a second."""
        self._watch.start()

    def want(self, kinds: Iterable[DeviceKind], n: int) -> None:
        """Note what the queue's head waits for; the next look requests it."""
        with self._lock:
            for kind in kinds:
                self._wanted[kind] = n, self._clock()

    def held(self) -> Mapping[DeviceId, int]:
        """Return the number of claims on each device on which trials may begin."""
        with self._lock:
            return Counter(h.device for h in self._held if h.leaving_since is None)

    def use(self, key: int, devices: Iterable[DeviceId]) -> bool:
        """Return whether there is a free claim on each device; if so, the execution has them."""
        with self._lock:
            found = [self._free(device) for device in devices]
            used = [h for h in found if h is not None]
            if len(used) < len(found):
                return False
            for h in used:
                h.users.add(key)
            return True

    def end_use(self, key: int) -> None:
        """Leave the execution's claims idle from now on."""
        with self._lock:
            for h in self._held:
                if key in h.users:
                    h.users.remove(key)
                    h.idle_since = self._clock()

    def look(self) -> None:
        """Take granted claims, request wanted devices, give back idle ones. Only one thread calls
        it."""
        self._take_granted()
        self._request_wanted()
        for h in self._leaving():
            assert h.leaving_since is not None
            if self._is_left(h.device) or self._clock() - h.leaving_since > _LEAVE_SECONDS:
                h.claim.give_back()
                with self._lock:
                    self._held.remove(h)
                logger.info("given back to the cluster: %s of %s", h.device.uuid, h.device.node)

    def close(self) -> None:
        """Give all claims back, and withdraw the requests."""
        self._watch.end(_LEAVE_SECONDS)
        with self._lock:
            claims = [claim for _, claim in self._asked] + [h.claim for h in self._held]
            self._asked, self._held = [], []
        for claim in claims:
            claim.give_back()

    def _free(self, device: DeviceId) -> _HeldClaim | None:
        """Return a claim that may be used; of several shares the last used one.

        Other shares then become idle. The caller holds the lock.
        """
        here = [h for h in self._held if h.device == device and h.leaving_since is None]
        if device.on_host:
            here = [h for h in here if not h.users]
        return max(here, key=lambda h: h.idle_since, default=None)

    # --- the watching thread ---

    def _take_granted(self) -> None:
        for kind, claim in [*self._asked]:
            try:
                device = claim.device()
            except ClaimError as error:
                logger.warning("a %s of the cluster cannot be used: %s", kind.name, error)
                self._n_failed[kind] += 1
                self._asked.remove((kind, claim))
                claim.give_back()
                continue
            if device is not None:
                self._asked.remove((kind, claim))
                self._hold(kind, _HeldClaim(claim, device, self._clock()))
        for h in [*self._held]:
            if h.claim.is_lost():
                logger.warning("the cluster took %s of %s away", h.device.uuid, h.device.node)
                with self._lock:
                    self._held.remove(h)

    def _hold(self, kind: DeviceKind, held: _HeldClaim) -> None:
        with self._lock:
            self._held.append(held)
            # The report is older than this claim: the queue's head has to ask for more again.
            if kind in self._wanted:
                self._wanted[kind] = self._wanted[kind][0], self._clock() - WANT_FRESH_SECONDS

    def _request_wanted(self) -> None:
        now = self._clock()
        with self._lock:
            wanted = dict(self._wanted)
            self._wanted = {k: w for k, w in wanted.items() if now - w[1] < UNWANTED_SECONDS}
        for kind, (n, since) in wanted.items():
            asked = [mine for mine in self._asked if mine[0] is kind]
            if now - since >= UNWANTED_SECONDS:
                for mine in asked:
                    self._asked.remove(mine)
                    mine[1].give_back()
                continue
            is_new = now - since < WANT_FRESH_SECONDS and self._n_failed[kind] < MAX_FAILED
            n_more = min(n, MAX_ASKED[kind]) - len(asked) if is_new else 0
            self._asked += [(kind, self._ask(kind)) for _ in range(n_more)]

    def _leaving(self) -> Sequence[_HeldClaim]:
        """Return the claims on which no trial begins any more, those idle for long included."""
        now = self._clock()
        with self._lock:
            for h in self._held:
                if not h.users and h.leaving_since is None and now - h.idle_since > IDLE_SECONDS:
                    h.leaving_since = now
            return [h for h in self._held if h.leaving_since is not None]

    def _is_left(self, device: DeviceId) -> bool:
        """Return whether our processes have left the device, or need not leave it.

        They need not where trials go on training on it by another claim.
        """
        return device in self.held() or self._end_idle(device)
