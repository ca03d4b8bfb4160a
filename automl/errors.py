"""The few errors raised on purpose. Each message says the rule, the value and the remedy."""

from __future__ import annotations

import os
import traceback

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class AutoMLError(Exception):
    """The root: raised when something that the user can mend stops a command."""

    exit_code = 1

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows in place of all frames: the caller's line, and the
        message."""
        frames = traceback.extract_tb(self.__traceback__)
        inner = next(
            (n for n, frame in enumerate(frames) if frame.filename.startswith(_PACKAGE)), 0
        )
        lines = [f"{type(self).__name__}: {self}"]
        if inner:
            caller = frames[inner - 1]
            function = "" if caller.name == "<module>" else f"{caller.name}, "
            lines.insert(0, f"{function}line {caller.lineno}: {caller.line}")
        return lines


class UnreadableCellWarning(UserWarning):
    """Warns of cells that a model reads as missing: texts where training had numbers or dates.

    Each call of `predict` and its kind warns at most once. `warnings.filterwarnings("ignore",
    category=automl.UnreadableCellWarning)` silences it, and `"error"` makes it an exception.
    """


class ConfigError(AutoMLError):
    """Raised when a setting, a search space, a table or an objective cannot work. Exit code 2."""

    exit_code = 2


class StudyInUseError(ConfigError):
    """Raised when another living sweep holds the study directory."""


class StorageError(AutoMLError):
    """Raised when the study cannot be written any more (full disk, lost database).

    What stands on disk is whole up to the last finished write; the same study can be resumed.
    """


class TrialsLeftBehindError(AutoMLError):
    """Raised when trials run on in threads that cannot be ended: the process has to, at once.

    The study stays locked until then. What else there is to be said is the error's cause.
    """

    def __init__(self, exit_code: int = AutoMLError.exit_code) -> None:
        super().__init__("trials that do not stop were left behind; this process ends with them")
        self.exit_code = exit_code


class SweepFailedError(AutoMLError):
    """Raised when a sweep ends without one finished trial, or stops on repeated failures."""
