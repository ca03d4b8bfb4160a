"""Commands on their way to an agent: a call for news takes along what there is, for each call costs
either side a millisecond; while one is on its way a call of their own carries them."""

from __future__ import annotations

import threading

from automl.execution.cluster import messages as m

REPLY_SECONDS = 0.005
"""How long replies are waited for, so that they go with the next call for news."""


class Telling:
    """Numbers commands and gives each to one of two threads. Any thread may `put`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards all below
        self._commands: list[m.ToAgent] = []
        self._n_given = 0
        self._is_asked = False
        """A call for news is on its way."""
        self._is_over = False

    def put(self, command: m.ToAgent) -> None:
        with self._changed:
            self._commands.append(command)
            self._changed.notify_all()

    def heard(self) -> None:
        """The call for news has been answered."""
        with self._changed:
            self._is_asked = False

    def with_call(self, n_replies: int) -> m.Told:
        """What goes with the next call for news, after news that want so many replies."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_over or len(self._commands) >= n_replies, REPLY_SECONDS
            )
            self._is_asked = True
            self._changed.notify_all()
            return self._take()

    def alone(self) -> m.Told | None:
        """What has to go by itself, once there is something; None: nothing goes any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or (self._is_asked and self._commands))
            return None if self._is_over else self._take()

    def end(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _take(self) -> m.Told:
        told = m.Told(self._n_given, tuple(self._commands))
        self._n_given += len(self._commands)
        self._commands.clear()
        return told
