"""What the tests of commands share: a folder of studies, and a config that names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from automl.config import Config, StudyConfig
from automl.record.study_directory import StudyDirectory


def config(folder: Path, name: str | None = None) -> Config:
    return Config(study=StudyConfig(name=name, dir=str(folder)))


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study directory whose sweep has died."""
    with StudyDirectory.open(config(tmp_path, "brave-otter").study, must_exist=False) as directory:
        directory.files.config.touch()
        return directory.path
