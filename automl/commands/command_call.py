"""The one argument of a command's function, a `CommandCall`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from automl.config import Config


@dataclass(frozen=True)
class StoredSettings:
    """The settings that a study has without those of the command line."""

    compose: Callable[[], Config]
    """Composes them as the study has them at that moment."""
    before_line: Config | None = None
    """The settings from before the line was composed; None: the command needs them afterwards."""


@dataclass(frozen=True)
class CommandCall:
    """One call of a command."""

    config: Config
    """The checked settings of the command line."""
    stored_config: str = ""
    """The YAML that `resume` composes the same config from; it holds no credential."""
    stored_settings: StoredSettings | None = None
    """The settings of the study. None: the command asks for none, or the line changes none."""
