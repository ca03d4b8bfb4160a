"""What of a cluster is the sweep's, as admission sees it: all (`Everything`), what is held of one
that others use, too (`claims.py`), or all of one that can grow (`growing.py`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping

from automl.trial import DeviceId, DeviceKind

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
FRESH_SECONDS = 2.5
"""So long it is believed that the head waits."""


class Everything:
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


class Looked(Everything):
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
