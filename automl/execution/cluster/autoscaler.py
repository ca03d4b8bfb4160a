"""A cluster that can grow: its autoscaler is asked while the head waits for want of devices.

What is asked for is a size of the whole cluster, so that nodes which came stay until that ends.
It is the cluster's last such wish, whoever said it, and would outlive the sweep: so it is withdrawn
on every exit.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, TypeAlias

from automl.execution.cluster.claims import FRESH_SECONDS, WatchedCluster
from automl.trial import DeviceKind

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 5.0
"""It is asked when the head has waited for so long, and again no sooner."""
_CLOSE_SECONDS = 5.0
Bundle: TypeAlias = Mapping[str, float]
RESOURCE = {DeviceKind.CPU: "CPU", DeviceKind.GPU: "GPU"}


class Autoscaler(Protocol):
    """What adds nodes to a cluster."""

    def is_there(self) -> bool | None:
        """Whether this cluster has one; None: not known yet."""

    def totals(self) -> Bundle:
        """What all living nodes have."""

    def ask(self, bundles: Sequence[Bundle]) -> None:
        """Have the cluster as large as all of these need; none: as its jobs need."""


def wanted_bundles(
    totals: Bundle, kinds: Iterable[DeviceKind], n: int, cpus_per_trial: int
) -> Sequence[Bundle]:
    """The cluster as it is, and besides what `n` trials need, at most as much again as it has."""
    bundles: list[Bundle] = []
    for kind, resource in RESOURCE.items():
        size = cpus_per_trial if kind is DeviceKind.CPU else 1
        n_there = int(totals.get(resource, 0)) // size
        n_more = min(n, max(1, n_there)) if kind in kinds else 0
        bundles += [{resource: float(size)}] * (n_there + n_more)
    return bundles


class GrowingCluster(WatchedCluster):
    """A cluster that is all ours, and grows where something adds nodes to it. Any thread."""

    def __init__(
        self,
        autoscaler: Autoscaler,
        cpus_per_trial: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__("growing")
        self._autoscaler, self._cpus, self._clock = autoscaler, cpus_per_trial, clock
        self._lock = threading.Lock()  # guards the two below
        self._wish: tuple[frozenset[DeviceKind], int] = frozenset(), 0
        self._waited: tuple[float, float] | None = None
        """Since when the head waits, and when it was last said to."""
        self._asked: Sequence[Bundle] = ()
        self._asked_at = -math.inf
        self._is_there: bool | None = None

    def want(self, kinds: Iterable[DeviceKind], n: int) -> None:
        """See `WholeCluster.want`. Once a second or so."""
        now = self._clock()
        with self._lock:
            is_new = self._waited is None or now - self._waited[1] > FRESH_SECONDS
            since = now if is_new or self._waited is None else self._waited[0]
            self._wish, self._waited = (frozenset(kinds), n), (since, now)

    def look(self) -> None:
        """Ask, where the head has waited."""
        now = self._clock()
        with self._lock:
            (kinds, n), waited = self._wish, self._waited
        if waited is None or now - waited[1] > FRESH_SECONDS:
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
        """Withdraw what was asked for; a head that does not answer is not waited for."""
        self._end_looking(_CLOSE_SECONDS)
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
                # On screen, too: who expects more nodes would wait for them.
                logger.warning("this cluster has no autoscaler: it stays as large as it is")
        return bool(self._is_there)


def _in_words(bundles: Sequence[Bundle]) -> str:
    totals = {name: sum(bundle.get(name, 0) for bundle in bundles) for name in RESOURCE.values()}
    return " and ".join(f"{total:g} {name}s" for name, total in totals.items() if total)
