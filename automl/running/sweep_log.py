"""Where the package's own log lines go: all to `sweep.log`, warnings on screen too."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path

from automl.record.disk import opener
from automl.record.texts import fit
from automl.running.display import Display


class _Fit(logging.Formatter):
    """What is logged may hold a stranger's words."""

    def format(self, record: logging.LogRecord) -> str:
        return fit(super().format(record))


FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

logger = logging.getLogger("automl")


class _InFile(logging.FileHandler):
    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=opener)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """A line that the disk does not take is lost: logging would print a traceback for it."""


class _OnScreen(logging.Handler):
    def __init__(self, display: Display) -> None:
        super().__init__(logging.WARNING)
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        self._display.say(record.getMessage())


@contextmanager
def sweep_log(path: Path, display: Display) -> Iterator[None]:
    """Attach both handlers to the package's logger, and take them off again."""
    level = logger.level
    logger.setLevel(logging.INFO)
    handlers: list[logging.Handler] = [_OnScreen(display)]
    logger.addHandler(handlers[0])
    try:
        handlers.append(_InFile(path, encoding="utf-8"))
        handlers[1].setFormatter(_Fit(FORMAT))
        logger.addHandler(handlers[1])
    except OSError as error:
        logger.warning("%s cannot be written (%s); the sweep goes on", path, error.strerror)
    try:
        yield
    finally:
        logger.setLevel(level)
        for handler in handlers:
            logger.removeHandler(handler)
            with suppress(OSError):
                handler.close()
