"""Every file of `conf/`: it composes, it is what the table of contents says, it hides nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING
from pathlib import Path

import pytest
import yaml

from automl.cli.command_registry import conf_dir
from automl.cli.config_keys import OPTIONS_BY_CLASS
from automl.config import Config
from automl.running.prepare.identity_settings import to_plain_values
from tests.cli.conftest import Compose, Refuse

FILES = sorted(path.relative_to(conf_dir()) for path in conf_dir().glob("*/*.yaml"))
NEEDED = {
    "data/csv": ["data.path=a.csv", "data.target=b"],
    "data/python": ["data.source=a:b"],
    "objective/command": ["objective.command=train"],
    "objective/python": ["objective.target=a:b"],
    "model/python": ["model.target=a:b"],
    "objective/optuna": ["objective.target=a:b"],
}


@pytest.mark.parametrize("file", FILES, ids=str)
def test_composes(composed: Compose, file: Path) -> None:
    group, name = file.parent.name, file.stem
    assert (
        getattr(composed(f"{group}={name}", *NEEDED.get(f"{group}/{name}", [])).config, group)
        is not None
    )


@pytest.mark.parametrize("group", sorted({file.parent.name for file in FILES} - {"space"}))
def test_a_misspelt_key_is_refused(refused: Refuse, group: str) -> None:
    assert f"{group}.misspelt: there is no such key" in refused(f"{group}.misspelt=1")


@pytest.mark.parametrize("file", FILES, ids=str)
def test_says_what_it_is_in_its_first_line(file: Path) -> None:
    assert (conf_dir() / file).read_text("utf-8").startswith("# ")


@pytest.mark.parametrize(("group", "classes"), sorted(OPTIONS_BY_CLASS.items()))
def test_every_class_has_its_file_and_its_defaults_stand_in_it(
    group: str, classes: Mapping[str, type]
) -> None:
    files = {path.stem: path for path in (conf_dir() / group).glob("*.yaml")}
    assert set(files) == set(classes)
    for name, path in files.items():
        assert yaml.safe_load(path.read_text("utf-8")) == {"defaults": [f"{name}_schema"]}


@pytest.mark.parametrize("file", FILES, ids=str)
def test_a_default_stands_in_its_class_alone(file: Path) -> None:
    """A file lists what makes its option differ; a default said twice would say two things once one
    of them is changed."""
    if file.parent.name == "space":
        return  # what is searched has no default
    part = file.parent.name
    written = yaml.safe_load((conf_dir() / file).read_text("utf-8")) or {}
    defaults = json.loads(json.dumps(to_plain_values(getattr(Config(), part))))
    assert {key for key, value in written.items() if defaults.get(key, MISSING) == value} == set()
