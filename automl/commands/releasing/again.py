"""The command that goes on with a release. Pure."""

from __future__ import annotations

import shlex
from enum import Enum

from automl.config import Config
from automl.record.directory import command_line


def same_again(config: Config) -> str:
    """What to type, with all settings of the steps that are not the default: other seeds or rows
    would be another refit, and another name another registered model."""
    words = [command_line("release", config.study)]
    for group in ("evaluate", "refit", "export", "register"):
        part = getattr(config, group)
        default = type(part)()
        for key, value in vars(part).items():
            if value != getattr(default, key):
                text = value.name if isinstance(value, Enum) else value
                words.append(shlex.quote(f"{group}.{key}={text}"))
    return " ".join(words)
