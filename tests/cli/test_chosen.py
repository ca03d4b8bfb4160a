"""What goes with what was chosen: the model by the data, space and split by the model."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from automl.cli.schemas import find_chosen_options
from automl.config import UNLIMITED_N_TRIALS, Config
from automl.models.families.auto.family import AutoFamily
from automl.models.families.mlp.family import MLPFamily
from automl.models.families.trees.family import TreesFamily
from tests.cli.conftest import Compose, Refuse

TABLE = ("data=csv", "data.path=t.csv", "data.target=y")


def split_of(config: Config) -> tuple[object, object]:
    return config.data.folds, config.data.test


def test_a_table_is_for_any_family_and_all_its_rows_train_and_judge(composed: Compose) -> None:
    config = composed(*TABLE).config
    assert config.model == AutoFamily()
    assert "boosting_learning_rate" in config.space
    assert split_of(config) == ("auto", "none")
    assert composed(*TABLE, "model=auto").config == config


@pytest.mark.parametrize(
    ("words", "model", "split"),
    [
        ((), MLPFamily, (1, 0.2)),
        (("data=digits",), MLPFamily, (1, 0.2)),
        (("model=auto",), AutoFamily, (1, 0.2)),
        ((*TABLE, "model=mlp"), MLPFamily, (1, 0.2)),
        ((*TABLE, "model=trees"), TreesFamily, (1, 0.2)),
        ((*TABLE, "model=default"), AutoFamily, ("auto", "none")),
        ((*TABLE, "objective=python", "objective.target=a:b"), MLPFamily, (1, 0.2)),
        ((*TABLE, "data.folds=3"), AutoFamily, (3, "none")),
        ((*TABLE, "data.test=0.1"), AutoFamily, ("auto", 0.1)),
        ((*TABLE, "data.sweep_rows=100"), AutoFamily, (1, "none")),
        ((*TABLE, "data.test=late.csv"), AutoFamily, ("auto", "late.csv")),
    ],
)
def test_other_choices(
    composed: Compose, words: tuple[str, ...], model: type, split: tuple[object, float]
) -> None:
    config = composed(*words).config
    assert type(config.model) is model
    assert split_of(config) == split
    assert ("mlp_lr" in config.space) == (model is AutoFamily)


def test_with_a_time_limit_there_are_as_many_trials_as_it_allows(composed: Compose) -> None:
    limit = "study.timeout_seconds=60"
    assert composed(*TABLE).config.study.n_trials == 20
    found = composed(*TABLE, limit)
    assert found.config.study.n_trials == UNLIMITED_N_TRIALS
    assert yaml.safe_load(found.stored_config)["study"]["n_trials"] is None
    assert composed(*TABLE, limit, "study.n_trials=5").config.study.n_trials == 5
    for others in ((*TABLE, "model=mlp"), ("model=auto",)):
        assert composed(*others, limit).config.study.n_trials == 20


def test_the_network_on_a_table_is_what_it_was(composed: Compose) -> None:
    config = composed(*TABLE, "model=mlp").config
    table, config.data = config.data, Config().data
    assert (table.rules, table.validation_fraction) == (Config().data.rules, None)
    assert config == composed().config


def test_params_and_settings_go_with_the_model_that_is_chosen(composed: Compose) -> None:
    config = composed(*TABLE, "space.mlp_lr=0.1", "~space.trees_kind").config
    assert config.space["mlp_lr"] == 0.1
    assert "trees_kind" not in config.space
    assert composed(*TABLE, "space={mlp_lr: 0.1}").config.space.keys() == {"mlp_lr"}
    assert composed(*TABLE, "model.families=[trees]").config.model == AutoFamily(["trees"])


def test_what_is_stored_is_decided(composed: Compose) -> None:
    stored = yaml.safe_load(composed(*TABLE).stored_config)
    assert {"model": "auto_schema"} in stored["defaults"]
    assert (stored["data"]["folds"], stored["data"]["test"]) == ("auto", "none")
    stored = yaml.safe_load(composed(*TABLE, "model=mlp").stored_config)
    assert {"model": "mlp_schema"} in stored["defaults"]
    assert (stored["data"]["folds"], stored["data"]["test"]) == (1, 0.2)


def test_a_config_file_may_choose_too(composed: Compose, folder: Path) -> None:
    (folder / "own").mkdir()
    start = "defaults: [sweep, override /data: csv, {}_self_]\ndata: {{path: t.csv, target: y}}\n"
    (folder / "own" / "open.yaml").write_text(start.format(""))
    (folder / "own" / "named.yaml").write_text(start.format("override /model: mlp, "))
    own = ("--config-dir", "own", "--config-name")
    assert composed(*own, "open").config == composed(*TABLE).config
    assert composed(*own, "open", "model.families=[trees]").config.model == AutoFamily(["trees"])
    assert composed(*own, "named").config == composed(*TABLE, "model=mlp").config
    assert composed(*own, "open", "model=mlp").config == composed(*TABLE, "model=mlp").config


def test_a_length_that_a_file_says_is_told_from_the_default(
    composed: Compose, folder: Path
) -> None:
    (folder / "own").mkdir()
    start = "defaults: [sweep, override /data: csv, _self_]\ndata: {path: t.csv, target: y}\n"
    (folder / "own" / "silent.yaml").write_text(start)
    (folder / "own" / "said.yaml").write_text(start + "training: {epochs: 20}\n")
    own = ("--config-dir", "own", "--config-name")

    def epochs(*words: str) -> int | None:
        found = composed(*words)
        n_epochs: int | None = found.config.training.epochs
        assert yaml.safe_load(found.stored_config)["training"]["epochs"] == n_epochs
        return n_epochs

    assert epochs(*own, "silent") is None
    assert epochs(*own, "silent", "model=mlp") == 20
    assert epochs(*own, "silent", "training.epochs=20") == 20
    assert epochs(*own, "said") == 20
    assert epochs(*own, "said", "training.epochs=null") is None
    assert epochs("model=tabm") is None
    assert epochs("model=tabm", "training.epochs=20") == 20


def test_a_data_option_of_ones_own_is_known_by_its_kind(composed: Compose, folder: Path) -> None:
    (folder / "own" / "data").mkdir(parents=True)
    (folder / "own" / "data" / "prices.yaml").write_text(
        "defaults: [csv]\npath: t.csv\ntarget: y\n"
    )
    assert composed("--config-dir", "own", "data=prices").config == composed(*TABLE).config


def test_settings_of_another_model_are_refused_by_name(refused: Refuse) -> None:
    assert "it belongs to model=mlp" in refused(*TABLE, "model=auto", "model.growth=doubling")


@pytest.mark.parametrize(
    ("lines", "known"),
    [
        ((), True),
        (("data=csv", "data.path=t.csv", "space.lr=0.1", "~space.depth"), True),
        (("~space", "++space.lr=0.1"), True),
        (("data=mine",), False),
        (("data.kind=csv",), False),
        (("+model=mlp",), False),
        (("~model",), False),
    ],
)
def test_only_what_names_options_of_ours_is_known_without_composing(
    lines: tuple[str, ...], known: bool
) -> None:
    assert (find_chosen_options(lines) is not None) == known
