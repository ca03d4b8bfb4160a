"""The words between a running trial and a library that its objective logs through, such as MLflow.

Whoever carries a trial out offers its `LoggingTrial`. Whoever stands in for the library (an
`LoggingRedirect`)
tells it what is logged, and closes what the objective leaves open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

from automl.trial import LoggedPoint, Params


class LoggingTrial(Protocol):
    """A running trial, as the library sees it; for any thread of its process."""

    @property
    def number(self) -> int: ...

    @property
    def params(self) -> Params:
        """Those of the search space."""

    @property
    def folder(self) -> Path:
        """Where artifacts go; made by whoever writes the first."""

    def log(
        self,
        points: Sequence[LoggedPoint] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Take what one call logs. In the trial's own thread it raises `TrialStopped` where the
        trial need not go on; another thread never meets it."""


class LoggingRedirect(Protocol):
    """Stands in for a library in a process that carries trials out."""

    def importing(self) -> AbstractContextManager[None]:
        """While the user's code is loaded."""

    def trial(self, side: LoggingTrial) -> AbstractContextManager[None]:
        """While an objective runs in this thread. Raises nothing of its own."""

    def program(
        self, side: LoggingTrial, elsewhere: Path | None, ask: Callable[[], None]
    ) -> AbstractContextManager[Mapping[str, str]]:
        """While a program runs that is the objective: variables for it. One of another environment
        (`elsewhere`: its path) lacks this package, and its library would not understand all.
        `ask` is called meanwhile, and may raise `TrialStopped`."""


class NoLoggingRedirect:
    """An `LoggingRedirect` for objectives of our own."""

    def importing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def trial(self, side: LoggingTrial) -> AbstractContextManager[None]:
        return nullcontext()

    def program(
        self, side: LoggingTrial, elsewhere: Path | None, ask: Callable[[], None]
    ) -> AbstractContextManager[Mapping[str, str]]:
        return nullcontext({})
