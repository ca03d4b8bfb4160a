"""A command finds the study that it is about."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from automl.config import StudyConfig
from automl.errors import ConfigError
from automl.record.studies import find_study
from automl.record.study_directory import StudyDirectory


def config(folder: Path, name: str | None = None) -> StudyConfig:
    return StudyConfig(name=name, dir=str(folder))


def test_without_a_name_it_is_the_newest(tmp_path: Path) -> None:
    for age, name in enumerate(("new", "old")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").touch()
        os.utime(tmp_path / name / "config.yaml", (100.0 - age, 100.0 - age))
    assert find_study(config(tmp_path)) == tmp_path / "new"
    assert find_study(config(tmp_path, "old")) == tmp_path / "old"


def test_no_study_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no study yet; start one: python -m automl"):
        find_study(config(tmp_path))


def test_another_name_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with StudyDirectory.open(config(tmp_path, "brave-otter"), must_exist=False) as directory:
        directory.files.config.touch()
    with pytest.raises(ConfigError, match=r"study\.name=nope: there is no such.*: brave-otter"):
        find_study(config(tmp_path, "nope"))
