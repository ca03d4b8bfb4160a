"""Asks a cluster's autoscaler for more nodes while the queue's head waits for lack of devices.

A request is a size of the whole cluster, so that added nodes stay until it is withdrawn. The
cluster keeps only the last request of all its users, and keeps it beyond the end of the sweep;
therefore the sweep withdraws its request on every exit. Ray's side is in `ray_resources.py`.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, TypeAlias

from automl.execution.cluster.claims import WANT_FRESH_SECONDS, ClusterWatch
from automl.trial import DeviceId, DeviceKind

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 5.0
"""The head of the queue waits this long before the autoscaler is asked, and again between two
requests."""
_CLOSE_SECONDS = 5.0
Bundle: TypeAlias = Mapping[str, float]
"""Amounts of Ray's resources by name, which one node has to offer together."""
RESOURCE = {DeviceKind.CPU: "CPU", DeviceKind.GPU: "GPU"}


class Autoscaler(Protocol):
    """A service that adds nodes to a cluster."""

    def is_there(self) -> bool | None:
        """Return whether this cluster has an autoscaler; None while that is not known."""

    def totals(self) -> Bundle:
        """Return the resources of all living nodes together."""

    def ask(self, bundles: Sequence[Bundle]) -> None:
        """Request a cluster as large as all bundles need; no bundles withdraw the request."""


def wanted_bundles(
    totals: Bundle, kinds: Iterable[DeviceKind], n: int, cpus_per_trial: int
) -> Sequence[Bundle]:
    """Return bundles for the cluster's present size and for `n` more trials.

    The cluster at most doubles, or grows by one where it has no device of a kind.
    """
    bundles: list[Bundle] = []
    for kind, resource in RESOURCE.items():
        size = cpus_per_trial if kind is DeviceKind.CPU else 1
        n_there = int(totals.get(resource, 0)) // size
        n_more = min(n, max(1, n_there)) if kind in kinds else 0
        bundles += [{resource: float(size)}] * (n_there + n_more)
    return bundles


class GrowingCluster:
    """A cluster that the sweep has to itself, and that an autoscaler may enlarge. Any thread."""

    def __init__(
        self,
        autoscaler: Autoscaler,
        cpus_per_trial: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watch = ClusterWatch("growing", self.look)
        self._autoscaler, self._cpus, self._clock = autoscaler, cpus_per_trial, clock
        self._lock = threading.Lock()  # guards the two below
        self._wanted: tuple[frozenset[DeviceKind], int] = frozenset(), 0
        """Kinds of devices that the queue's head waits for, and the trials that could start."""
        self._waited: tuple[float, float] | None = None
        """Times since when the head waits, and when that was last reported."""
        self._asked: Sequence[Bundle] = ()
        self._asked_at = -math.inf
        self._is_there: bool | None = None

    def start(self) -> None:
        """Begin to look once a second."""
        self._watch.start()

    def held(self) -> None:
        """Return None, since trials may begin on all devices."""

    def use(self, key: int, devices: Iterable[DeviceId]) -> bool:
        """Return True, since all devices are the sweep's."""
        return True

    def end_use(self, key: int) -> None:
        """Do nothing, since nodes stay until the end."""

    def want(self, kinds: Iterable[DeviceKind], n: int) -> None:
        """Note that the head waits; the sweep's loop calls this about once a second."""
        now = self._clock()
        with self._lock:
            is_new = self._waited is None or now - self._waited[1] > WANT_FRESH_SECONDS
            since = now if is_new or self._waited is None else self._waited[0]
            self._wanted, self._waited = (frozenset(kinds), n), (since, now)

    def look(self) -> None:
        """Ask the autoscaler if the head has waited for `PATIENCE_SECONDS`. Only one thread calls
        it."""
        now = self._clock()
        with self._lock:
            (kinds, n), waited = self._wanted, self._waited
        if waited is None or now - waited[1] > WANT_FRESH_SECONDS:
            return
        too_soon = now - max(waited[0], self._asked_at) < PATIENCE_SECONDS
        if too_soon or not self._has_one():
            return
        self._asked_at = now
        bundles = wanted_bundles(self._autoscaler.totals(), kinds, n, self._cpus)
        if bundles != self._asked:
            logger.info("the cluster's autoscaler is asked for %s", _in_words(bundles))
        self._asked = bundles
        self._autoscaler.ask(bundles)

    def close(self) -> None:
        """Withdraw the request, without waiting long for a Ray head that does not answer."""
        self._watch.end(_CLOSE_SECONDS)
        if self._asked:
            last = threading.Thread(target=self._withdraw, name="withdrawing", daemon=True)
            last.start()
            last.join(_CLOSE_SECONDS)

    def _withdraw(self) -> None:
        with suppress(Exception):  # the cluster is gone, and its autoscaler with it
            self._autoscaler.ask(())

    def _has_one(self) -> bool:
        if self._is_there is None:
            self._is_there = self._autoscaler.is_there()
            if self._is_there is False:
                # A warning is shown on screen: a user who expects more nodes would wait for them.
                logger.warning("this cluster has no autoscaler: it stays as large as it is")
        return bool(self._is_there)


def _in_words(bundles: Sequence[Bundle]) -> str:
    totals = {name: sum(bundle.get(name, 0) for bundle in bundles) for name in RESOURCE.values()}
    return " and ".join(f"{total:g} {name}s" for name, total in totals.items() if total)
