"""Every argument that names a file to write is treated alike."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from automl.cli.command_registry import COMMANDS
from automl.cli.typed_arguments import type_arguments
from automl.commands.command_call import CommandCall
from automl.config import Config, StudyConfig
from automl.errors import ConfigError
from tests.commands.test_archiving import make_study

WRITING = ("archive", "predict", "trials")


@pytest.mark.parametrize("command", WRITING)
@pytest.mark.parametrize("by_link", [False, True])
def test_what_is_no_file_is_refused_and_stays(tmp_path: Path, command: str, by_link: bool) -> None:
    study = make_study(tmp_path)
    path = tmp_path / "scores.csv"
    os.mkfifo(path)
    typed = tmp_path / "link.csv" if by_link else path
    if by_link:
        typed.symlink_to(path)
    words = [f"to={typed}", *(["table=rows.csv"] if command == "predict" else [])]
    config = Config(study=StudyConfig(name=study.name, dir=str(study.parent)))
    call = CommandCall(config, arguments=type_arguments(command, words))
    with pytest.raises(ConfigError, match=f"^to={typed}: this is a pipe"):
        COMMANDS[command].load()(call)
    assert stat.S_ISFIFO(path.stat().st_mode)
