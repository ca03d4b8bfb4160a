"""What the tests of the command line share: one line in, a composed config or a refusal out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from automl.cli.arguments import parse_command_line
from automl.cli.command_steps import compose_command
from automl.cli.compose import ComposedConfig
from automl.errors import ConfigError


class Compose(Protocol):
    """Composes the words of a command line."""

    def __call__(self, *words: str) -> ComposedConfig: ...


class Refuse(Protocol):
    """The message with which the words of a command line are refused."""

    def __call__(self, *words: str) -> str: ...


@pytest.fixture(autouse=True)
def in_an_empty_folder(request: pytest.FixtureRequest) -> None:
    """The tests beside this file; those of the calls from Python have folders of their own."""
    if request.path.parent == Path(__file__).parent:
        request.getfixturevalue("folder")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """An empty working directory; composing writes nothing into it, ever."""
    before = os.getcwd()
    os.chdir(tmp_path)
    yield tmp_path
    assert os.getcwd() == str(tmp_path)
    os.chdir(before)


@pytest.fixture
def composed() -> Compose:
    return lambda *words: compose_command(parse_command_line(words))


@pytest.fixture
def refused() -> Refuse:
    def refuse(*words: str) -> str:
        with pytest.raises(ConfigError) as caught:
            compose_command(parse_command_line(words))
        assert caught.value.exit_code == 2
        return str(caught.value)

    return refuse
