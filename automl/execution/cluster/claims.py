"""What is held of a cluster that other jobs use, too (`ray.claim`): whole GPUs, and shares of CPU.

One is asked for while the head of the queue waits for want of it, and given back when no trial ran
on it for a minute. On a GPU that is held any number of trials train, on a share of CPU one. Nothing
here knows what carries it.

What of a cluster is the sweep's, as admission sees it: all (`WholeCluster`), what is held of one
that others use, too (`claims.py`), or all of one that can grow (`growing.py`).
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
FRESH_SECONDS = 2.5
"""So long it is believed that the head waits."""


class WholeCluster:
    """A cluster that is all ours, and stays as it is."""

    def start(self) -> None:
        """There is nothing to look after."""

    def want(self, kinds: Iterable[DeviceKind], n: int) -> None:
        """The head waits for want of devices of these kinds, on which `n` trials could start."""

    def held(self) -> Mapping[DeviceId, int] | None:
        """How often each device is held on which trials may begin; None: they may on all."""
        return None

    def use(self, key: int, devices: Iterable[DeviceId]) -> bool:
        """Whether an execution may begin there; what it uses is not given back until it is over."""
        return True

    def over(self, key: int) -> None:
        """The execution is."""

    def close(self) -> None:
        """Give all back. No trial is running any more."""


class WatchedCluster(WholeCluster):
    """What a thread looks after once a second, which alone waits for the cluster."""

    def __init__(self, name: str) -> None:
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """From now on it looks every second."""
        self._thread.start()

    def look(self) -> None:
        """Do what is due. From one thread."""
        raise NotImplementedError

    def _end_looking(self, timeout_seconds: float) -> None:
        """A look that waits for a head which does not answer is left alone after that time."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while not self._closing.wait(LOOK_SECONDS):
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 - the head is away, and may come back
                logger.debug("the cluster cannot be asked: %s", error)


IDLE_SECONDS = 60.0
"""What nothing ran on for so long is given back."""
UNWANTED_SECONDS = 10.0
"""What was asked for and not given is not waited for any more when nobody wanted it for so long."""
MAX_ASKED = {DeviceKind.GPU: 1, DeviceKind.CPU: 8}
"""So many of a kind are waited for at once: several trials may share a GPU."""
MAX_FAILED = 5
"""Of a kind of which so many could not tell what they are no more is asked for."""
_LEAVE_SECONDS = 10.0
"""How long idle processes may take to leave a device before it is given back."""


class ClaimError(Exception):
    """Raised when what was given cannot tell what it is."""


class ResourceClaim(Protocol):
    """One whole GPU, or a trial's share of a node's CPUs, that was asked for."""

    def device(self) -> DeviceId | None:
        """Which it is; None: it was not given yet. Raises ClaimError."""

    def is_lost(self) -> bool:
        """It was given, and is not ours any more."""

    def give_back(self) -> None:
        """Or withdraw the wish. Raises nothing."""


@dataclass
class _HeldClaim:
    claim: ResourceClaim
    device: DeviceId
    idle_since: float
    users: set[int] = field(default_factory=set)
    """Executions."""
    leaving_since: float | None = None
    """Nothing begins there any more, since then."""


class ClaimedResources(WatchedCluster):
    """Those of one sweep. Any thread."""

    def __init__(
        self,
        ask: Callable[[DeviceKind], ResourceClaim],
        end_idle: Callable[[DeviceId], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`end_idle` has idle processes leave a device, and tells whether they have."""
        super().__init__("claims")
        self._ask, self._end_idle, self._clock = ask, end_idle, clock
        self._asked: list[tuple[DeviceKind, ResourceClaim]] = []
        """Its thread's own, until that has ended."""
        self._lock = threading.Lock()  # guards the two below, and never a wait for the cluster
        self._held: list[_HeldClaim] = []
        """Added to and taken from by that thread alone."""
        self._wanted: dict[DeviceKind, tuple[int, float]] = {}
        """How many of a kind, as of when."""
        self._n_failed: Counter[DeviceKind] = Counter()

    def want(self, kinds: Iterable[DeviceKind], n: int) -> None:
        """See `WholeCluster.want`."""
        with self._lock:
            for kind in kinds:
                self._wanted[kind] = n, self._clock()

    def held(self) -> Mapping[DeviceId, int]:
        """See `WholeCluster.held`."""
        with self._lock:
            return Counter(h.device for h in self._held if h.leaving_since is None)

    def use(self, key: int, devices: Iterable[DeviceId]) -> bool:
        """See `WholeCluster.use`."""
        with self._lock:
            found = [self._free(device) for device in devices]
            used = [h for h in found if h is not None]
            if len(used) < len(found):
                return False
            for h in used:
                h.users.add(key)
            return True

    def over(self, key: int) -> None:
        """See `WholeCluster.over`."""
        with self._lock:
            for h in self._held:
                if key in h.users:
                    h.users.remove(key)
                    h.idle_since = self._clock()

    def look(self) -> None:
        """Take what was given, ask for what is wanted, give back what is idle."""
        self._take_given()
        self._ask_for_wanted()
        for h in self._leaving():
            assert h.leaving_since is not None
            if self._is_left(h.device) or self._clock() - h.leaving_since > _LEAVE_SECONDS:
                h.claim.give_back()
                with self._lock:
                    self._held.remove(h)
                logger.info("given back to the cluster: %s of %s", h.device.uuid, h.device.node)

    def close(self) -> None:
        """See `WholeCluster.close`."""
        self._end_looking(_LEAVE_SECONDS)
        with self._lock:
            claims = [claim for _, claim in self._asked] + [h.claim for h in self._held]
            self._asked, self._held = [], []
        for claim in claims:
            claim.give_back()

    def _free(self, device: DeviceId) -> _HeldClaim | None:
        """Of several shares that which was used last, so that others become idle. The lock is
        held."""
        here = [h for h in self._held if h.device == device and h.leaving_since is None]
        if device.on_host:
            here = [h for h in here if not h.users]
        return max(here, key=lambda h: h.idle_since, default=None)

    # --- its thread ---

    def _take_given(self) -> None:
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
                self._given(kind, _HeldClaim(claim, device, self._clock()))
        for h in [*self._held]:
            if h.claim.is_lost():
                logger.warning("the cluster took %s of %s away", h.device.uuid, h.device.node)
                with self._lock:
                    self._held.remove(h)

    def _given(self, kind: DeviceKind, held: _HeldClaim) -> None:
        with self._lock:
            self._held.append(held)
            if kind in self._wanted:  # as it was before this one: the head has to say it again
                self._wanted[kind] = self._wanted[kind][0], self._clock() - FRESH_SECONDS

    def _ask_for_wanted(self) -> None:
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
            is_new = now - since < FRESH_SECONDS and self._n_failed[kind] < MAX_FAILED
            n_more = min(n, MAX_ASKED[kind]) - len(asked) if is_new else 0
            self._asked += [(kind, self._ask(kind)) for _ in range(n_more)]

    def _leaving(self) -> Sequence[_HeldClaim]:
        """Those on which nothing begins any more, which may be new."""
        now = self._clock()
        with self._lock:
            for h in self._held:
                if not h.users and h.leaving_since is None and now - h.idle_since > IDLE_SECONDS:
                    h.leaving_since = now
            return [h for h in self._held if h.leaving_since is not None]

    def _is_left(self, device: DeviceId) -> bool:
        """Whether no process of ours is there; where trials go on training there none has to go."""
        return device in self.held() or self._end_idle(device)
