"""The one argument of a command's function, a `CommandCall`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from automl.config import CommandArguments, Config

A = TypeVar("A", bound=CommandArguments)


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
    arguments: CommandArguments | None = None
    """The arguments of the command. None: the defaults."""
    stored_study: Path | None = None
    """The directory of the study whose stored config was composed. None: it is from elsewhere."""

    def typed_arguments(self, cls: type[A]) -> A:
        """Return the arguments as those of the class, which the registry names for the command."""
        if self.arguments is None:
            return cls()
        assert isinstance(self.arguments, cls), "the registry names the class"
        return self.arguments
