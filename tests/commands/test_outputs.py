"""Every setting that names a file to write is treated alike."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from automl.cli.command_registry import COMMANDS
from automl.cli.config_keys import all_config_keys
from automl.commands.command_call import CommandCall
from automl.config import Config, StudyConfig
from automl.errors import ConfigError
from tests.commands.test_archiving import make_study

OUTPUTS = [key for key in all_config_keys() if key.endswith(".output")]


@pytest.mark.parametrize("key", OUTPUTS)
@pytest.mark.parametrize("by_link", [False, True])
def test_what_is_no_file_is_refused_and_stays(tmp_path: Path, key: str, by_link: bool) -> None:
    study = make_study(tmp_path)
    path = tmp_path / "scores.csv"
    os.mkfifo(path)
    typed = tmp_path / "link.csv" if by_link else path
    if by_link:
        typed.symlink_to(path)
    command = key.partition(".")[0]
    config = Config(study=StudyConfig(name=study.name, dir=str(study.parent)))
    settings = replace(getattr(config, command), output=str(typed))
    if command == "predict":
        settings = replace(settings, input="rows.csv")
    config = replace(config, **{command: settings})
    with pytest.raises(ConfigError, match=f"^{key}={typed}: this is a pipe"):
        COMMANDS[command].load()(CommandCall(config))
    assert stat.S_ISFIFO(path.stat().st_mode)
