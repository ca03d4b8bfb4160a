"""Defines the protocols between a running trial and a logging library that its objective uses.

MLflow is one of these libraries. The code that runs a trial offers a `LoggingTrial`. The code that
replaces the library (a `LoggingRedirect`) passes on what is logged, and closes what the objective
leaves open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

from automl.trial import LoggedPoint, Params


class LoggingTrial(Protocol):
    """A running trial, as the library sees it; any thread of its process may use it."""

    @property
    def number(self) -> int: ...

    @property
    def params(self) -> Params:
        """Return the trial's params, which are values from the search space."""

    @property
    def folder(self) -> Path:
        """Return the folder for artifacts; the first writer creates it."""

    def log(
        self,
        points: Sequence[LoggedPoint] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Take what one call logs. Raise `TrialStopped` in the trial's own thread when the trial
        need not go on; other threads never get this exception."""


class LoggingRedirect(Protocol):
    """Replaces a logging library in a process that runs trials."""

    def importing(self) -> AbstractContextManager[None]:
        """Redirect the library while the user's code is imported."""

    def trial(self, side: LoggingTrial) -> AbstractContextManager[None]:
        """Redirect the library while an objective runs in this thread. Raises nothing of its
        own."""

    def program(
        self, side: LoggingTrial, elsewhere: Path | None, ask: Callable[[], None]
    ) -> AbstractContextManager[Mapping[str, str]]:
        """Redirect the library while a program runs as the objective, and yield environment
        variables for it.

        `elsewhere` is the path of the program's environment, if that is another one: it lacks this
        package, and its library may not understand every variable. `ask` is called meanwhile, and
        may raise `TrialStopped`.
        """


class NoLoggingRedirect:
    """A `LoggingRedirect` that redirects nothing, for the package's own objectives."""

    def importing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def trial(self, side: LoggingTrial) -> AbstractContextManager[None]:
        return nullcontext()

    def program(
        self, side: LoggingTrial, elsewhere: Path | None, ask: Callable[[], None]
    ) -> AbstractContextManager[Mapping[str, str]]:
        return nullcontext({})
