"""Overrides of the search space, through Hydra, over the default space and over spaces in files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Compose, Refuse

MLP = {
    "depth": {"low": 1, "high": 4},
    "width": {"low": 8, "high": 256, "log": True},
    "lr": {"low": 1e-4, "high": 1e-1, "log": True},
    "batch_size": {"choices": [32, 64, 128, 256]},
}


def test_the_default_space(composed: Compose) -> None:
    assert composed().config.space == MLP


@pytest.mark.parametrize(
    ("override", "name", "entry"),
    [
        ("space.lr=interval(1e-4,1e-1)", "lr", {"low": 1e-4, "high": 1e-1}),
        ("space.lr='interval(1e-4,1e-1)'", "lr", {"low": 1e-4, "high": 1e-1}),
        ("space.batch_size=32,64", "batch_size", {"choices": [32, 64]}),
        ("space.depth=range(2,9)", "depth", {"low": 2, "high": 8}),
        (
            'space.width="tag(log, int(interval(4,64)))"',
            "width",
            {"low": 4, "high": 64, "log": True},
        ),
        ("space.depth.high=6", "depth", {"low": 1, "high": 6}),
        ("space.depth.step=2", "depth", {"low": 1, "high": 4, "step": 2}),
        ("space.lr.log=false", "lr", {"low": 1e-4, "high": 1e-1, "log": False}),
        ("space.depth={choices:[2,4]}", "depth", {"choices": [2, 4]}),
        ("space.batch_size=[32,64]", "batch_size", {"choices": [32, 64]}),
        ("space.batch_size.choices=32,64", "batch_size", {"choices": [32, 64]}),
        ("space.dropout=0.1", "dropout", 0.1),
        ("space.dropout={low: 0.0, high: 0.5}", "dropout", {"low": 0.0, "high": 0.5}),
        ("+space.dropout=0.1", "dropout", 0.1),
        ("++space.depth=3", "depth", 3),
        ('space.note="it\'s \\ {odd}: 50%"', "note", "it's \\ {odd}: 50%"),
        ("space.off=null", "off", None),
        ("space.small=1e-12", "small", 1e-12),
        (
            "space.momentum={low: 0.0, high: 0.9, when: {optimizer: sgd}}",
            "momentum",
            {"low": 0.0, "high": 0.9, "when": {"optimizer": "sgd"}},
        ),
    ],
)
def test_one_entry(composed: Compose, override: str, name: str, entry: object) -> None:
    space = composed(override).config.space
    assert repr(space.pop(name)) == repr(entry)
    assert space == {key: value for key, value in MLP.items() if key != name}


def test_a_condition_is_one_more_key(composed: Compose) -> None:
    space = composed("space.depth.when={optimizer: sgd}").config.space
    assert space["depth"] == {"low": 1, "high": 4, "when": {"optimizer": "sgd"}}


def test_entries_go_by_name_or_all_at_once(composed: Compose) -> None:
    assert "lr" not in composed("~space.lr").config.space
    assert composed("~space").config.space == {}
    assert composed("space={x: {low: 1, high: 2}, y: choice(a,b)}").config.space == {
        "x": {"low": 1, "high": 2},
        "y": {"choices": ["a", "b"]},
    }


def test_later_words_win(composed: Compose) -> None:
    assert composed("space.a=1", "space={x: 1}", "space.y=2").config.space == {"x": 1, "y": 2}
    assert (
        composed("space.lr=1", "space.lr={choices: [1, 2]}", "space.lr=3").config.space["lr"] == 3
    )


def test_a_file_of_the_group(composed: Compose) -> None:
    space = composed("space=doubling", "space.depth.high=5").config.space
    assert space["depth"] == {"low": 2, "high": 5}
    assert "width" not in space


@pytest.mark.parametrize(
    ("words", "space"),
    [
        ((), {}),
        (("space=mlp",), MLP),
        (("space.lr=0.1",), {"lr": 0.1}),
        (("space={lr: {choices: [1, 2]}}",), {"lr": {"choices": [1, 2]}}),
    ],
)
def test_an_objective_that_asks_for_its_params_has_the_space_that_is_written_for_it(
    composed: Compose, words: tuple[str, ...], space: object
) -> None:
    asks = ("objective=optuna", "objective.target=a:b")
    assert composed(*asks, *words).config.space == space
    assert composed(*words, *asks).config.space == space


@pytest.fixture
def own_config(folder: Path) -> Path:
    """A config of the user's with a space written in sweep notation."""
    text = """
defaults: [sweep, {override space: empty}, _self_]
space:
  lr: tag(log,interval(1e-4,1e-1))
  batch_size: 32,64
  depth: range(2,9)
  optimizer: [sgd, adam]
  seed: ${study.seed}
"""
    (folder / "mine").mkdir()
    (folder / "mine" / "own.yaml").write_text(text)
    return folder / "mine"


def test_an_objective_that_asks_takes_no_space_of_a_file_away(
    composed: Compose, own_config: Path
) -> None:
    words = ("--config-dir", str(own_config), "--config-name", "own", "objective=optuna")
    assert "optimizer" in composed(*words, "objective.target=a:b").config.space


def test_a_config_of_the_users_that_asks_has_the_space_that_it_writes(
    composed: Compose, folder: Path
) -> None:
    asks = "defaults: [sweep, {override objective: optuna}, _self_]\nobjective: {target: a:b}\n"
    (folder / "asks.yaml").write_text(asks)
    (folder / "writes.yaml").write_text(asks + "space: {lr: 0.1}\n")
    for name, space in (("asks", {}), ("writes", {"lr": 0.1})):
        words = ("--config-dir", str(folder), "--config-name", name)
        assert composed(*words).config.space == space
        assert composed(*words, "space.width=8").config.space == {**space, "width": 8}


def test_sweep_notation_in_a_file(composed: Compose, own_config: Path) -> None:
    words = ("--config-dir", str(own_config), "--config-name", "own", "study.seed=7")
    assert composed(*words).config.space == {
        "lr": {"low": 1e-4, "high": 1e-1, "log": True},
        "batch_size": {"choices": [32, 64]},
        "depth": {"low": 2, "high": 8},
        "optimizer": {"choices": ["sgd", "adam"]},
        "seed": 7,
    }


def test_a_whole_space_replaces_one_written_into_a_config(
    composed: Compose, own_config: Path
) -> None:
    words = ("--config-dir", str(own_config), "--config-name", "own", "space={x: 1}")
    assert composed(*words).config.space == {"x": 1}


@pytest.mark.parametrize("model", ["linear", "kernel", "trees", "boosting"])
def test_a_model_takes_the_space_of_its_name(composed: Compose, model: str) -> None:
    own = composed(f"model={model}").config.space
    assert own == composed("model=mlp", f"space={model}").config.space
    assert "depth" not in own


def test_the_space_of_a_model_is_changed_or_replaced_as_any(composed: Compose) -> None:
    own = composed("model=trees").config.space
    changed = composed("model=trees", "space.max_features=0.5", "~space.kind").config.space
    assert changed == {**{name: own[name] for name in own if name != "kind"}, "max_features": 0.5}
    assert composed("model=trees", "space={x: 1}").config.space == {"x": 1}
    assert "depth" in composed("model=trees", "space=mlp").config.space


def test_a_network_of_the_users_takes_that_of_the_default(composed: Compose) -> None:
    of_network = composed("model=python", "model.target=a:b").config.space
    assert of_network == composed().config.space


def test_a_batch_ensemble_has_the_space_of_networks_in_auto(composed: Compose) -> None:
    own = composed("model=tabm").config.space
    assert own["width"] == {"low": 64, "high": 512, "log": True}
    auto = composed("model=auto").config.space
    for name, entry in own.items():
        for family in ("mlp", "tabm"):
            found = auto[f"{family}_{name}"]
            if name == "batch_size":
                assert found == "by_rows"
            elif name == "weight_decay":
                assert found == {**entry, "when": {f"{family}_optimizer": "adamw"}}
            else:
                assert found == entry


def test_a_model_of_a_config_of_ones_own_takes_its_space(composed: Compose, folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "own.yaml").write_text("defaults: [sweep, {override model: trees}, _self_]")
    words = ("--config-dir", str(folder / "mine"), "--config-name", "own")
    assert composed(*words).config.space == composed("model=trees").config.space


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("space.depth.hihg=6", "no key hihg. Did you mean high? Keys: low, high, log, step"),
        ("space.depth=interval(1)", "space.depth=interval(1): cannot be read"),
        ("space.depth=glob(*)", "space.depth=glob"),
        ("space.depth.low=1,2", "one value for space.depth.low"),
        ("space=3", "the search space is a mapping"),
        (
            "space=wide",
            "Options of space: auto, boosting, catboost, doubling, empty, grid, kernel, lightgbm, ",
        ),
        ("~space.nope", "'space.nope' does not exist"),
    ],
)
def test_what_cannot_be_meant_is_refused(refused: Refuse, override: str, said: str) -> None:
    assert said in refused(override)
