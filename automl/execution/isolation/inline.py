"""Trials in threads of the sweep's own process, which cannot be ended for what they leave there."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from automl.execution.isolation.compared import Names, changed_names, names, put_back_names
from automl.execution.isolation.watched import WATCHED, Values, put_back, values
from automl.record.texts import fit_line

logger = logging.getLogger(__name__)

_OWN = tuple(watched for watched in WATCHED if watched.own_thread)
_SHARED = tuple(watched for watched in WATCHED if not watched.own_thread)


class ApartInThreads:
    """See `automl.trial.Apart`. What a thread has of its own is put back after each trial; what the
    process has, when no trial runs, since the others that run rely on it. Threads, processes and
    descriptors are not looked at: they may be the sweep's, or the user's."""

    spent = False

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards all below
        self._n_running = 0
        self._before: tuple[Values, Names] = {}, {}
        """As it was when none ran."""
        self._said: set[str] = set()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        own = values(_OWN)
        with self._lock:
            self._n_running += 1
            if self._n_running == 1:
                self._before = values(_SHARED), names()
            else:
                self._say(
                    "execution=inline: trials run side by side in this process; what one changes "
                    "there (environment, working directory, default dtype, …) is put back when "
                    "none runs. execution=workers keeps them apart."
                )
        try:
            yield
        finally:
            left = put_back(own)
            with self._lock:
                self._n_running -= 1
                if self._n_running == 0:
                    left = [*left, *self._put_back()]
                self._say_left(left)

    def _put_back(self) -> Iterator[str]:
        before, were = self._before
        yield from put_back(before)
        changed = changed_names(were)
        if changed:
            put_back_names(were)
        yield from (f"{name} was another" for name in changed)

    def _say_left(self, left: Sequence[str]) -> None:
        if left:
            self._say(
                "a trial left this process changed, which execution=inline cannot end, and the "
                f"next one may meet that: {fit_line('; '.join(left))}"
            )

    def _say(self, text: str) -> None:
        """Once."""
        if text not in self._said:
            self._said.add(text)
            logger.warning("%s", text)
