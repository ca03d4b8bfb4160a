"""When people should hear that a program tells nothing: one that never ends looks like one that
trains. Pure."""

from __future__ import annotations


class Silence:
    """Of one program; what it is asked and when is passed in."""

    def __init__(self, limit_seconds: float, now: float) -> None:
        self._limit_seconds, self._since = limit_seconds, now
        self._n_reports = 0
        self._said = False

    def is_news(self, n_reports: int, now: float) -> bool:
        """Whether it has reported nothing for as long as the limit; true once."""
        if n_reports != self._n_reports:
            self._n_reports, self._since = n_reports, now
        if self._said or now - self._since < self._limit_seconds:
            return False
        self._said = True
        return True

    @property
    def words(self) -> str:
        """The same of all programs, so that they need be said once."""
        limit = self._limit_seconds
        return (
            f"a program has told no metric for {limit / 60:g} minutes. If it never ends, Ctrl-C "
            f"ends it, and execution.silence_timeout_seconds={limit:g} has such trials fail"
        )
