"""Python values as a space, settings and overrides: what they come to in the composed config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import yaml

from automl.api.python_values import entry_of, lines_of, lines_of_settings, store_space
from automl.api.study_handle import COMPOSE_LOCK, compose_for_call
from automl.config import Config
from automl.config.range_text import entry_text
from automl.errors import ConfigError
from automl.search.search_space import parse_space

ODD_TEXTS = [
    "x,y",
    "it's",
    'say "no"',
    "a\nb",
    "${oc.env:HOME}",
    "\\${x}",
    "[1]",
    "{a: 1}",
    "é",
    "",
]
ODD_NAMES = ["opt.lr", "a b", "é", "x[0]", "lr/head", "1st", "defaults", "a=b", "it's"]


def composed_space(space: Mapping[str, Any], *overrides: str) -> tuple[dict[str, Any], str]:
    with COMPOSE_LOCK:
        made = compose_for_call("sweep", [store_space(space), *overrides])
    return made.config.space, made.stored_config


def composed_config(overrides: Mapping[str, Any]) -> Config:
    return compose_for_call("sweep", lines_of(overrides)).config


@pytest.mark.parametrize(
    ("value", "entry"),
    [
        ((-5.0, 5.0), {"low": -5.0, "high": 5.0}),
        ((2, 8), {"low": 2, "high": 8}),
        ((np.float64(0.5), np.int64(1)), {"low": 0.5, "high": 1}),
        (range(2, 9), {"low": 2, "high": 8}),
        (range(0, 10, 3), {"low": 0, "high": 9, "step": 3}),
        ([-5.0, 5.0], {"choices": [-5.0, 5.0]}),
        ((True, False), {"choices": [True, False]}),
        (("adam", "sgd"), {"choices": ["adam", "sgd"]}),
        (np.linspace(0, 1, 3), {"choices": [0.0, 0.5, 1.0]}),
        ({"low": np.float32(0.5), "high": 1, "log": np.True_}, {"low": 0.5, "high": 1, "log": 1}),
        ("a,b", {"choices": ["a,b"]}),
        (None, None),
    ],
)
def test_an_entry_means_what_its_type_says(value: object, entry: object) -> None:
    assert entry_of("space.x", value) == entry


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ((1e-4, 0.1, "log-uniform"), r'in a dict, \{"low": 0.0001, "high": 0.1, "log": True\}'),
        ("interval(1e-4,1e-1)", r"a text is one value in Python\. A range is written as a tuple"),
        (range(9, 2, -1), "or falls"),
        ([object], "Choose among texts, and look objects up by them"),
        ([(64, 64), (128,)], r"space\.x=\[64, 64\]: a value is a number"),
        ("???", r"a text other than \?\?\?"),
    ],
)
def test_what_no_space_holds_is_refused(value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_space({"x": entry_of("space.x", value)})


def test_names_and_texts_stay_what_they_are_and_are_so_stored(folder: Path) -> None:
    space = dict.fromkeys(ODD_NAMES, ODD_TEXTS) | {"last": (0, 1), "one": "p,q"}
    found, stored = composed_space(space)
    assert found == {name: {"choices": ODD_TEXTS} for name in ODD_NAMES} | {
        "last": {"low": 0, "high": 1},
        "one": {"choices": ["p,q"]},
    }
    assert list(yaml.safe_load(stored)["space"]) == list(space)


def test_a_text_may_spell_a_range_as_on_the_command_line(folder: Path) -> None:
    typed = {"lr": "log:1e-4..1e-1", "depth": "2..8", "share": "0..1/0.1", "path": "../here"}
    space, _ = composed_space(typed)
    assert space == {
        "lr": {"low": 1e-4, "high": 1e-1, "log": True},
        "depth": {"low": 2, "high": 8},
        "share": {"low": 0, "high": 1, "step": 0.1},
        "path": "../here",
    }
    with pytest.raises(ConfigError, match=r"^space\.lr=1\.\.: a number is missing"):
        composed_space({"lr": "1.."})


def test_a_space_replaces_the_one_that_is_there_and_overrides_change_it(folder: Path) -> None:
    found, _ = composed_space({"depth": (1, 4), "lr": 0.1}, "space.depth.high=6", "~space.lr")
    assert found == {"depth": {"low": 1, "high": 6}}


def test_overrides_of_a_dict_have_the_values_that_it_holds(folder: Path) -> None:
    for text in ODD_TEXTS[:-1]:
        command = f"python train.py {text!r}"
        config = composed_config({"objective": "command", "objective.command": command})
        assert config.objective.command == command
    config = composed_config(
        {
            "data": "csv",
            "data.path": Path("lab") / "a, b.csv",
            "data.target": "it's",
            "data.columns.a b": "number",
            "data.columns": {"c, d": "category"},
            "study.seed": 3,
            "study.name": "true",
            "sampler": "random",
            "study.enqueue": [{"lr": 0.01, "a b": "x,y"}],
            "study.dir": Path("lab"),
        }
    )
    assert [*config.data.columns] == ["a b", "c, d"]
    assert (config.data.path, config.data.target) == ("lab/a, b.csv", "it's")
    assert (config.study.seed, config.study.name, config.study.dir) == (3, "true", "lab")
    assert config.study.enqueue == [{"lr": 0.01, "a b": "x,y"}]


def test_overrides_that_are_one_text_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"must be a list of texts, overrides=\['study.seed=1'\]"):
        lines_of("study.seed=1")


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [(60, 60), ("90s", 90), ("10min", 600), ("1h30min", 5400), ("1.5 h", 5400), ("45", 45)],
)
def test_a_timeout_is_seconds_or_a_duration(timeout: object, seconds: float) -> None:
    arguments = {"timeout": timeout, "seed": 3, "epochs": 4, "n_trials": 5}
    config = compose_for_call("sweep", lines_of_settings(arguments)).config
    assert config.study.timeout_seconds == seconds
    assert (config.study.seed, config.training.epochs, config.study.n_trials) == (3, 4, 5)


@pytest.mark.parametrize("timeout", ["", "min", "10 parsecs", "1h-5min", "10mins", True])
def test_what_is_no_duration_is_refused(timeout: object) -> None:
    with pytest.raises(ConfigError, match="a duration is a number of seconds, or numbers with the"):
        lines_of_settings({"timeout": timeout})


@pytest.mark.parametrize(
    ("distribution", "entry"),
    [
        (optuna.distributions.FloatDistribution(1e-4, 0.1, log=True), "log:0.0001..0.1"),
        (optuna.distributions.FloatDistribution(0.0, 1.0, step=0.25), "0.0..1.0/0.25"),
        (optuna.distributions.IntDistribution(2, 8), "2..8"),
        (optuna.distributions.CategoricalDistribution(["a", "b"]), "a,b"),
    ],
    ids=str,
)
def test_distributions_of_optuna_are_entries(distribution: Any, entry: str) -> None:
    assert entry_text(entry_of("space.x", distribution)) == entry


def test_spaces_of_ray_tune_are_entries_or_refused_with_the_nearest() -> None:
    tune = pytest.importorskip("ray.tune", reason="needs pip install 'automl-sweep[ray]'")
    entries = {
        "log:0.0001..0.1": tune.loguniform(1e-4, 1e-1),
        "0.0..1.0": tune.uniform(0, 1),
        "0.0..1.0/0.25": tune.quniform(0, 1, 0.25),
        "2..8": tune.randint(2, 9),
        "2..8/3": tune.qrandint(2, 8, 3),
        "log:8..512": tune.lograndint(8, 513),
        "a,b": tune.choice(["a", "b"]),
    }
    assert {entry_text(entry_of("space.x", value)): value for value in entries.values()} == entries
    normal = "no normal distribution; .* {low: -2.0, high: 2.0, likely: 0.0}"
    with pytest.raises(ConfigError, match=normal):
        entry_of("space.x", tune.randn(0, 1))
    with pytest.raises(ConfigError, match=r"log and step exclude each other; .* log:0\.0001\.\.0"):
        entry_of("space.x", tune.qloguniform(1e-4, 1e-1, 1e-4))
