"""A function that was given to `automl.sweep`: sent to workers as bytes, and written nowhere.

The process that calls keeps the function itself; another one has the bytes, and makes the function
of them when it is wanted, not before: what is imported then may look for its device.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from automl.errors import ConfigError


class CalledFunction:
    """A function of the caller's. Picklable, where it was pickled."""

    def __init__(
        self,
        function: Callable[..., Any],
        pickled: bytes | None,
        *,
        changed: bool = False,
        notes: tuple[str, ...] = (),
    ) -> None:
        self._function: Callable[..., Any] | None = function
        self._pickled = pickled
        """By cloudpickle, whose bytes `pickle` reads; None: it stays in this process."""
        self.changed = changed
        """The study goes on with it, even if it was begun with another."""
        self.notes = notes
        """What people should know of it."""

    def __getstate__(self) -> dict[str, Any]:
        assert self._pickled is not None, "a function that no other process is sent"
        return {"_function": None, "_pickled": self._pickled, "changed": False, "notes": ()}

    def load(self, name: str) -> Callable[..., Any]:
        """The function, whose name is for people. Raises ConfigError where it cannot be had."""
        if self._function is None:
            assert self._pickled is not None, "it has one or the other"
            try:
                self._function = pickle.loads(self._pickled)
            except Exception as error:  # what it refers to is imported, and may raise anything
                raise ConfigError(
                    f"{name} cannot be had in a worker process: {type(error).__name__}: {error}. "
                    "What it imports must be importable there, too: install it, or put it into a "
                    "file beside the caller's; or train in the caller's process with "
                    'overrides=["execution=inline"].'
                ) from error
            self._pickled = None  # the same again, and maybe large
        assert self._function is not None
        return self._function
