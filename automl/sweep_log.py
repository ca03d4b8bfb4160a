"""Where the package's own log lines go: all to `sweep.log`, warnings on screen too."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from automl.display import Display
from automl.texts import fit


class _Fit(logging.Formatter):
    """What is logged may hold a stranger's words."""

    def format(self, record: logging.LogRecord) -> str:
        return fit(super().format(record))


class _OnScreen(logging.Handler):
    def __init__(self, display: Display) -> None:
        super().__init__(logging.WARNING)
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        self._display.say(record.getMessage())


@contextmanager
def sweep_log(path: Path, display: Display) -> Iterator[None]:
    """Attach both handlers to the package's logger, and take them off again."""
    logger = logging.getLogger("automl")
    file = logging.FileHandler(path, encoding="utf-8")
    file.setFormatter(_Fit("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handlers: list[logging.Handler] = [file, _OnScreen(display)]
    level = logger.level
    logger.setLevel(logging.INFO)
    for handler in handlers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        logger.setLevel(level)
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()
