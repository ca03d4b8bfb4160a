"""Whether a cluster's head is there: its port tells at once what Ray itself says after a minute.

One that is stopped is not told from one that works: its kernel still answers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LOOK_SECONDS = 1.0


class HeadWatch:
    """Looks every second; start it once, `close` ends it."""

    def __init__(
        self,
        answers: Callable[[], bool],
        patience_seconds: float,
        gone: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`gone` is called once, in the watch's thread, when it did not answer for so long."""
        self._answers, self._gone, self._clock = answers, gone, clock
        self._patience_seconds = patience_seconds
        self._silent_since: float | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="head", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Return when it has ended."""
        self._closing.set()
        self._thread.join()

    def is_gone(self) -> bool:
        """Look; whether it has not answered for that long. Who was stopped meanwhile has to find it
        silent twice."""
        looked = self._clock()
        if self._answers():
            self._silent_since = None
            return False
        if self._silent_since is None:
            self._silent_since = looked
        return self._clock() - self._silent_since >= self._patience_seconds

    def _run(self) -> None:
        while not self._closing.wait(LOOK_SECONDS):
            if self.is_gone():
                self._gone()
                return
