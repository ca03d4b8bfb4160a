"""A command made ready by the sweep: its words checked, its program asked; for those who start it.

No torch here, as the sweep's own process has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from automl.config import Config
from automl.config.checks import check
from automl.config.objective import find_groups
from automl.training.command.arguments import Flags, check_names
from automl.training.command.flags import ask
from automl.training.command.metrics import normalized
from automl.trial import Direction, Entry


@dataclass(frozen=True)
class CommandSetup:
    """What a process that starts programs is given. Picklable."""

    command: str
    pattern: str | None
    metric: str
    direction: Direction
    grace_seconds: float
    n_threads: int = 1
    flags: Flags = field(default_factory=Flags)
    inside: Entry | None = None
    """See `SessionSetup.inside`."""
    silent_seconds: float = 600.0
    """A program that reports nothing for so long is spoken of."""
    refit: bool = False
    """It is the final training of a study's winner, which the program is told."""


def ask_program(
    config: Config, names: Sequence[str], optional: Sequence[str]
) -> tuple[Flags, tuple[str, ...]]:
    """How the program spells its params, and lines for people. Raises ConfigError for a command
    that cannot be started so, or does not fit space and metric; `optional` params some trials lack.
    """
    command, pattern = config.objective.command, config.objective.pattern
    assert command is not None, "ObjectiveConfig refuses kind command without one"
    check_names(command, names, optional)
    if pattern is not None:
        groups = find_groups(pattern)
        check(
            normalized(config.study.metric) in map(normalized, groups),
            "study.metric",
            config.study.metric,
            f"objective.pattern names only {', '.join(groups)}. Set study.metric to one of these, "
            f"or call a group so.",
        )
    asked = ask(command, names, Path.cwd())
    return asked.flags, () if asked.note is None else (asked.note,)


def command_setup(config: Config, flags: Flags, inside: Entry | None) -> CommandSetup:
    """What a process that starts programs is given."""
    assert config.objective.command is not None, "ObjectiveConfig refuses kind command without one"
    return CommandSetup(
        config.objective.command,
        config.objective.pattern,
        config.study.metric,
        config.study.towards,
        config.study.grace_seconds,
        config.execution.threads_per_trial,
        flags,
        inside,
        refit=config.refit.of is not None,
    )
