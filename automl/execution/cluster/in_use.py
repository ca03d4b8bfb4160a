"""Calls to a library that are under way when it is to be shut down. Ray ends the whole process
(exit 1) where one of its threads still asks it for something after that."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class GivenBackError(Exception):
    """Raised in place of a call that came too late."""


class InUse:
    """Counts calls. Any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards all below
        self._n = 0
        self._is_over = False

    @contextmanager
    def call(self) -> Iterator[None]:
        """Raises GivenBackError from `end` on."""
        with self._changed:
            if self._is_over:
                raise GivenBackError("the cluster was given back")
            self._n += 1
        try:
            yield
        finally:
            with self._changed:
                self._n -= 1
                self._changed.notify_all()

    def end(self, timeout_seconds: float) -> None:
        """No other begins; those that are under way are waited for so long at the most."""
        with self._changed:
            self._is_over = True
            self._changed.wait_for(lambda: not self._n, timeout_seconds)
