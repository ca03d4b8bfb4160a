"""The few errors raised on purpose. Each message says the rule, the value and the remedy."""

from __future__ import annotations


class AutoMLError(Exception):
    """The root: raised when something that the user can mend stops a command."""

    exit_code = 1


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
