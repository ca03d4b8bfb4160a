"""A sweep that begins with an Optuna study takes from it what the line does not say."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from automl.cli.arguments import parse_command_line
from automl.cli.command_steps import compose_command
from automl.cli.optuna_begin import begin_with_optuna
from automl.config import Config
from automl.errors import ConfigError
from automl.trial import Direction
from tests.search.test_optuna_source import STORED

FUNCTION = ("objective=python", "train=my.py:train")


@pytest.fixture
def composed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.py").write_text("def train(lr, *, trial): return lr\n")
    return Path(shutil.copy(STORED / "optuna-3.1.1.log", "old.log"))


def config_of(*words: str) -> Config:
    return compose_command(begin_with_optuna(parse_command_line(words))).config


def test_space_and_direction_are_those_of_the_study(composed: Path) -> None:
    config = config_of("from=old.log:prices", *FUNCTION)
    assert config.study.began_with == "old.log:prices"
    assert config.study.direction is Direction.minimize
    assert list(config.space) == ["lr", "depth", "optimizer", "momentum"]
    assert config.space["momentum"]["when"] == {"optimizer": ["sgd"]}


def test_an_objective_that_asks_for_its_params_gets_no_space(composed: Path) -> None:
    config = config_of("from=old.log:prices", "objective=optuna", "train=my.py:train")
    assert config.space == {}


def test_what_the_line_says_counts(composed: Path) -> None:
    config = config_of("from=old.log:prices", *FUNCTION, "space={lr: log:1e-4..1}", "metric=loss")
    assert (list(config.space), config.study.metric) == (["lr"], "loss")


def test_several_values_become_several_metrics(composed: Path) -> None:
    config = config_of("from=old.log:front", *FUNCTION)
    assert config.study.metric == ["value_0", "value_1"]
    assert config.study.direction == [Direction.minimize, Direction.maximize]


def test_a_shared_study_is_refused(composed: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^study\.began_with=old\.log:prices: machines that share"
    ):
        config_of("from=old.log:prices", *FUNCTION, "study.storage=postgresql://u@h/d")


@pytest.mark.parametrize("address", ["old.log", "old.db", "old.sqlite3"])
def test_a_file_without_the_name_of_its_study_is_no_study_of_ours(address: str) -> None:
    line = parse_command_line([f"from={address}", *FUNCTION])
    assert (line.command, line.arguments) == ("sweep", (f"from={address}",))


def test_a_name_of_a_study_is_left_to_the_sweep_of_its_settings() -> None:
    line = parse_command_line(["from=prices", "name=next"])
    assert begin_with_optuna(line) == line
