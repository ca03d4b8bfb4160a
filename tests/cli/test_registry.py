"""The table of commands: what it names is there."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import automl.commands
from automl.cli.command_registry import COMMANDS, DEFAULT_COMMAND, Command

FOLDER = Path(automl.commands.__file__).parent


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_command_is_a_file_with_a_function_that_takes_a_call(command: Command) -> None:
    takes = inspect.signature(command.load()).parameters.values()
    assert [str(parameter.annotation) for parameter in takes] == ["CommandCall"]


def test_a_line_without_a_word_has_a_command() -> None:
    assert DEFAULT_COMMAND in COMMANDS


def test_a_file_with_a_run_is_a_command() -> None:
    files = {path.stem for path in FOLDER.glob("*.py") if "\ndef run(" in path.read_text("utf-8")}
    assert files == {name for name, command in COMMANDS.items() if not command.file}
