"""Every file of `conf/`: it composes, it is what the table of contents says, it hides nothing."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from automl.cli.paths import conf_dir
from automl.config import PRUNERS
from automl.search.samplers import samplers
from tests.cli.conftest import Compose, Refuse

FILES = sorted(path.relative_to(conf_dir()) for path in conf_dir().glob("*/*.yaml"))
NEEDED = {
    "data/csv": ["data.path=a.csv", "data.target=b"],
    "objective/python": ["objective.target=a:b"],
    "model/python": ["model.target=a:b"],
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


def test_every_sampler_has_its_file_and_its_defaults_stand_in_its_class() -> None:
    files = {path.stem: path for path in (conf_dir() / "sampler").glob("*.yaml")}
    assert set(files) == set(samplers())
    for name, path in files.items():
        assert yaml.safe_load(path.read_text("utf-8")) == {"defaults": [f"{name}_schema"]}


@pytest.mark.parametrize(("group", "classes"), [("pruner", PRUNERS)])
def test_every_argument_is_written_out(group: str, classes: dict[str, type]) -> None:
    files = {path.stem: path for path in (conf_dir() / group).glob("*.yaml")}
    assert set(files) == set(classes)
    for name, path in files.items():
        written = yaml.safe_load(path.read_text("utf-8"))
        defaults = {key.name: key.default for key in fields(classes[name])}
        assert written.pop("defaults") == [f"{name}_schema"]
        assert written == defaults
