"""`status.json`: written by a sweep, read by `status` from any other process."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from automl.config import Config, StudyConfig
from automl.errors import ConfigError
from automl.record.directory import StudyDirectory
from automl.running.view import (
    BestRow,
    FailureRow,
    RunningRow,
    SweepView,
    WaitingRow,
    find_study,
    print_status,
    read_view,
    write_view,
)

VIEW = SweepView(
    study="brave-otter",
    directory="/tmp/studies/brave-otter",
    time=1.5,
    n_trials=20,
    metric="val_loss",
    counts={"running": 1, "finished": 3, "pruned": 4, "failed": 1, "interrupted": 2},
    best=BestRow(3, 0.033, {"depth": 3, "lr": 0.0283, "optimizer": "sgd", "nesterov": True}),
    running=(RunningRow(8, "cpu", {"depth": 4}, 12.5, None, {}),),
    waiting=(WaitingRow(None, "waiting: 1 trials run"), WaitingRow(9, "waiting: 3.0 GiB asked")),
    failures=(FailureRow(1, "no table", 2),),
    seconds=75.0,
    trouble="connection refused",
)


def config(folder: Path, name: str | None = None) -> Config:
    return Config(study=StudyConfig(name=name, dir=str(folder)))


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """An empty study directory whose sweep has died."""
    with StudyDirectory.open(config(tmp_path, "brave-otter").study, must_exist=False) as directory:
        directory.config.touch()
        return directory.path


@pytest.mark.parametrize("view", [VIEW, replace(VIEW, best=None, running=(), ended="done")])
def test_a_view_comes_back_from_its_file(tmp_path: Path, view: SweepView) -> None:
    path = tmp_path / "status.json"
    write_view(path, view)
    assert read_view(path) == view


def test_only_final_states_count_as_ended() -> None:
    assert VIEW.n_ended == 8


def test_infinite_values_survive(tmp_path: Path) -> None:
    row = replace(VIEW.running[0], metrics={"val_loss": float("inf")})
    write_view(tmp_path / "status.json", replace(VIEW, running=(row,)))
    (back,) = read_view(tmp_path / "status.json").running
    assert back.metrics == {"val_loss": float("inf")}


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"best": null}'])
def test_a_file_that_is_none_of_ours_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "status.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match=r"status\.json cannot be read"):
        read_view(path)


def test_before_the_first_view_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no status yet"):
        read_view(tmp_path / "status.json")


# --- which study, and how it stands ---------------------------------------------------------------


def test_without_a_name_it_is_the_newest(tmp_path: Path) -> None:
    for age, name in enumerate(("new", "old")):
        (tmp_path / name).mkdir()
        for file in ("config.yaml", "status.json"):
            (tmp_path / name / file).touch()
            os.utime(tmp_path / name / file, (100.0 - age, 100.0 - age))
    assert find_study(config(tmp_path)) == tmp_path / "new"
    assert find_study(config(tmp_path, "old")) == tmp_path / "old"


def test_no_study_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no study yet; start one: python -m automl"):
        find_study(config(tmp_path))


def test_another_name_is_refused_with_those_there_are(study: Path) -> None:
    (study / "config.yaml").touch()
    with pytest.raises(ConfigError, match=r"study\.name=nope: there is no such.*: brave-otter"):
        find_study(config(study.parent, "nope"))


def test_a_dead_sweep_is_told_apart(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_view(study / "status.json", replace(VIEW, time=time.time()))
    assert print_status(config(study.parent)) == 0
    said = capsys.readouterr().out
    assert "8/20" in said
    assert "interrupted" in said.splitlines()[-1]
    assert "python -m automl resume study.name=brave-otter" in said


def test_a_living_sweep_is_not(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_view(study / "status.json", replace(VIEW, time=time.time()))
    with StudyDirectory.open(config(study.parent, study.name).study, must_exist=True):
        assert print_status(config(study.parent)) == 0
    assert "resume" not in capsys.readouterr().out


def test_an_ended_sweep_says_how(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_view(study / "status.json", replace(VIEW, time=time.time(), ended="done"))
    assert print_status(config(study.parent)) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("done, ")
