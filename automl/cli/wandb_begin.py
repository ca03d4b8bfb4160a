"""Gives a sweep that begins with a sweep configuration of W&B (`from=sweep.yaml`) its settings.

What the line says itself counts. A line on stderr names what was left out.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from automl.cli.arguments import CommandLine
from automl.cli.command_arguments import is_wandb_file
from automl.errors import ConfigError

_TYPED = ("objective.command",)
"""Settings that are taken as typed, without quotes."""


def begin_with_wandb(line: CommandLine) -> CommandLine:
    """Return the line with the settings of the W&B sweep that it names by `from=`; any other line
    as it is. Raises ConfigError."""
    words = [word for word in line.arguments if word.startswith("from=")]
    files = [word.partition("=")[2].strip("'\"") for word in words]
    if line.command != "sweep" or not files or not is_wandb_file(files[0]):
        return line
    others = tuple(word for word in line.arguments if word not in words)
    added = tuple(_settings(files[0], line.overrides))
    return replace(line, overrides=(*added, *line.overrides), arguments=others)


def _settings(file: str, overrides: tuple[str, ...]) -> Iterator[str]:
    from automl.cli.schemas import register_space
    from automl.cli.space_overrides import is_about_space, override_text
    from automl.cli.wandb_sweep import read_wandb_sweep

    python = "python" if shutil.which("python") else sys.executable
    sweep = read_wandb_sweep(_read(file), file, os.environ, python)
    for note in sweep.notes:
        sys.stderr.write(f"automl: {file}: {note}\n")
    given = {word.lstrip("+~").partition("=")[0] for word in overrides}
    for key, value in sweep.settings.items():
        # Another pruner of the line's does not know the keys of this one.
        if key not in given and key.partition(".")[0] not in given:
            yield f"{key}={value if key in _TYPED else override_text(value)}"
    if not any(map(is_about_space, overrides)):
        yield register_space(sweep.space)  # nested params have names with dots


def _read(file: str) -> object:
    import yaml

    try:
        return yaml.safe_load(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"from={file}: {error.strerror}. Give the file of a W&B sweep."
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        cause = str(error).partition("\n")[0]
        raise ConfigError(f"from={file}: it cannot be read as YAML ({cause}).") from error
