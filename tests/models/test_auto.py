"""Families as a choice of each trial."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from automl.cli.arguments import parse_command_line
from automl.cli.command_steps import compose_command
from automl.config import DataConfig, TrainingConfig
from automl.data.columns import TableColumns
from automl.data.dataset import Dataset
from automl.data.load import load_dataset
from automl.errors import ConfigError
from automl.models.families.auto.family import DEFAULT, MANY_ROWS, PART_ROWS, AutoFamily
from automl.models.families.boosting.family import LightGBMFamily
from automl.models.families.kernel.family import MOST_ROWS
from automl.models.families.linear.family import MOST_L2
from automl.models.families.mlp.family import MLPFamily
from automl.models.family import load_families
from automl.running.prepare.preparation import prepare_study
from automl.search.search_space import parse_space
from automl.trial import Params

PARAMS: Params = {"family": "mlp", "mlp_depth": 2, "mlp_width": 16, "mlp_lr": 0.01}
OWN: Params = {"depth": 2, "width": 16, "lr": 0.01}


def test_what_is_asked_of_a_trial_is_asked_of_its_family(disc: Dataset) -> None:
    auto, mlp, training = AutoFamily(families=["mlp"]), MLPFamily(), TrainingConfig()
    assert auto.of_trial(PARAMS) == (mlp, OWN)
    assert auto.request(PARAMS, disc, training) == mlp.request(OWN, disc, training)
    assert auto.work(PARAMS, disc, training) == mlp.work(OWN, disc, training)
    key = auto.pack_key(PARAMS, training, on_host=True)
    assert key is not None
    assert key.key == mlp.pack_key(OWN, training, on_host=True)


def test_the_params_of_a_family_hang_on_it_wherever_they_come_from() -> None:
    auto = AutoFamily(families=["mlp"])
    space = parse_space(auto.searched_space({"mlp_depth": 3, "mlp_lr": {"low": 0.1, "high": 0.2}}))
    assert space.names == ("family", "mlp_depth", "mlp_lr")
    assert [space[name].when for name in ("mlp_depth", "mlp_lr")] == [{"family": ("mlp",)}] * 2
    assert space.has({"family": "mlp", "mlp_depth": 3, "mlp_lr": 0.15})


@pytest.mark.parametrize("more", [[], ["model.families=[mlp,tabm]"]])
def test_the_whole_portfolio_is_in_the_space_that_is_searched(more: list[str]) -> None:
    config = compose_command(parse_command_line(["model=auto", "space=auto", *more])).config
    prepared = prepare_study(config)
    assert prepared.portfolio
    for params in prepared.portfolio:
        prepared.space.check(params)
    config = compose_command(
        parse_command_line(["model=auto", "space=auto", "study.portfolio=none"])
    ).config
    assert not prepare_study(config).portfolio


@pytest.mark.parametrize("family", ["linear", "boosting", "trees", "mlp", "kernel", "tabm"])
def test_a_family_alone_tries_its_portfolio_first(family: str) -> None:
    config = compose_command(parse_command_line([f"model={family}"])).config
    prepared = prepare_study(config)
    assert prepared.portfolio
    for params in prepared.portfolio:
        prepared.space.check(params)
    first = load_families()[family]().portfolio()[0]
    named = first.keys() & set(prepared.space.names)
    assert prepared.portfolio[0] == {name: first[name] for name in named}


def test_a_wrong_family_or_value_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"model\.families.*forest is none of them"):
        AutoFamily(families=["forest"])
    auto = AutoFamily(families=["mlp"])
    with pytest.raises(ValueError, match=r"^family=tree: must be one of"):
        auto.check_value("family", "tree")
    with pytest.raises(ValueError, match=r"^mlp_depth=-1: must be a whole number"):
        auto.check_value("mlp_depth", -1)


def test_one_class_weight_is_that_of_all_families() -> None:
    auto = AutoFamily()
    assert "class_weight" in auto.param_names()[0]
    auto.check_value("class_weight", "balanced")
    with pytest.raises(ValueError, match="must be one of none, balanced"):
        auto.check_value("class_weight", "heavy")
    for name in auto.families:
        own = auto.of_trial({"family": name, "class_weight": "balanced"})[1]
        assert own == {"class_weight": "balanced"}
    both = {"family": "mlp", "class_weight": "balanced", "mlp_class_weight": "none"}
    assert auto.of_trial(both)[1] == {"class_weight": "none"}


def test_a_loss_of_ones_own_is_for_networks_alone() -> None:
    own = TrainingConfig(loss="torch.nn.functional:huber_loss")
    with pytest.raises(ConfigError, match=r"linear, .*would descend theirs: take model.families"):
        AutoFamily().check_training(own)
    AutoFamily(families=["mlp"]).check_training(own)


ENTRIES = {"kernel_l2": {"low": 0.1, "high": 1.0}, "mlp_depth": {"low": 1, "high": 4}}


def test_of_many_rows_the_default_leaves_out_who_is_for_few() -> None:
    auto = AutoFamily(families=[*DEFAULT])
    few, many = (parse_space(auto.searched_space(ENTRIES, MOST_ROWS + n)) for n in (0, 1))
    assert few.names == ("family", "kernel_l2", "mlp_depth")
    assert few.has({"family": "kernel", "kernel_l2": 0.5})
    assert many.names == ("family", "mlp_depth")
    assert many.has({"family": "boosting"})
    assert not many.has({"family": "kernel"})
    assert "kernel (for up to 10,000 rows; 10,001 train)" in auto.notes(MOST_ROWS + 1, ENTRIES)[0]
    assert not auto.notes(MOST_ROWS, ENTRIES)


def test_a_trial_of_a_large_table_trains_on_a_part_of_the_rows() -> None:
    auto, entries = AutoFamily(families=["mlp"]), {"rows": "by_rows", "mlp_depth": 2}
    few, many = (parse_space(auto.searched_space(entries, MANY_ROWS + n)) for n in (0, 1))
    assert few.names == ("family", "mlp_depth")
    assert many.fixed["rows"] == PART_ROWS
    assert not auto.notes(MANY_ROWS, entries)
    assert "trains on 50,000 of the 100,001 rows" in auto.notes(MANY_ROWS + 1, entries)[0]
    with pytest.raises(ValueError, match=r"^rows=1: must be a whole number"):
        auto.check_value("rows", 1)


def test_memory_and_packs_are_those_of_the_rows_of_a_trial(disc: Dataset) -> None:
    auto, training = AutoFamily(families=["mlp"]), TrainingConfig()
    part = {**PARAMS, "rows": 100}
    assert auto.request(part, disc, training) == auto.request(PARAMS, disc.part(100), training)
    keys = [auto.pack_key(params, training, on_host=True) for params in (PARAMS, part)]
    assert keys[0] != keys[1], "lanes of a pack have the same rows"


def test_a_smaller_part_of_the_rows_is_within_a_larger_one(disc: Dataset) -> None:
    small, large = (
        {tuple(row) for row in disc.part(n).train.rows.numbers.tolist()} for n in (50, 100)
    )
    assert (len(small), len(large)) == (50, 100)
    assert small < large
    assert disc.part(len(disc.train)) is disc


def test_an_extra_that_is_installed_joins_and_is_said() -> None:
    auto = AutoFamily()
    assert auto.families[: len(DEFAULT) + 1] == [*DEFAULT, "lightgbm"]
    (line,) = auto.notes(1000, ENTRIES)
    assert re.match(r"lightgbm .*joins?, being installed: model\.families=\[linear,", line)
    assert any(params["family"] == "lightgbm" for params in auto.portfolio())
    many = parse_space(auto.searched_space(ENTRIES, MOST_ROWS + 1))
    assert many.names == ("family", "mlp_depth"), "kernels are left out, whoever joins"


def test_linear_models_and_boosted_trees_go_first_on_many_rows() -> None:
    disc = load_dataset(DataConfig(n_train=10, n_validation=10))
    many = replace(disc, train=disc.train.take(np.zeros(20_001, dtype=np.int64)))
    few = replace(disc, train=many.train.take(np.arange(20_000)))
    auto = AutoFamily(families=["linear", "boosting", "trees", "mlp", "lightgbm"])
    families = [params["family"] for params in auto.portfolio(many)]
    is_leading = [name in ("linear", "boosting", "lightgbm") for name in families]
    assert is_leading == sorted(is_leading, reverse=True)
    assert sorted(map(str, auto.portfolio(few))) == sorted(map(str, auto.portfolio(many)))
    assert [params["family"] for params in auto.portfolio(few)[:3]] == [
        "linear",
        "boosting",
        "trees",
    ]


def test_only_training_needs_the_extras_of_a_study(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ["model.families=[linear,lightgbm]", "model=auto", "space=auto"]
    config = compose_command(parse_command_line(words)).config
    monkeypatch.setattr(LightGBMFamily, "extra", "lightgbm_of_nobody")
    assert "lightgbm" not in AutoFamily().families
    with pytest.raises(ConfigError, match=r"pip install 'automl-sweep\[lightgbm_of_nobody\]'"):
        prepare_study(config)
    prepare_study(config, trains=False)


def test_families_that_somebody_chose_are_searched_on_any_rows() -> None:
    chosen, all_of_them = AutoFamily(families=["mlp", "kernel"]), {"choices": [*DEFAULT]}
    assert "kernel_l2" in parse_space(chosen.searched_space(ENTRIES, 10**6)).names
    written = AutoFamily().searched_space({"family": all_of_them, **ENTRIES}, 10**6)
    assert "kernel_l2" in parse_space(written).names
    assert not chosen.notes(10**6, ENTRIES)


def test_of_more_features_than_rows_a_linear_model_begins_with_weights_that_count() -> None:
    few, many = (auto_of_columns(n) for n in (30, 3000))
    assert few[0] == {"family": "linear", "linear_l2": 1.0}
    assert many[0] == {"family": "linear", "linear_l2": 1000.0}
    assert {"family": "linear", "linear_l2": 1.0} in many
    assert auto_of_columns(10**6)[0]["linear_l2"] == MOST_L2, "which is all that is searched"


def auto_of_columns(n: int) -> Sequence[Params]:
    """The portfolio on 40 rows of so many columns."""
    disc = load_dataset(DataConfig(n_train=40, n_validation=10))
    columns = TableColumns(disc.columns.numbers[:1] * n)
    return AutoFamily().portfolio(replace(disc, columns=columns))


def test_the_libraries_defaults_are_among_the_first_trials() -> None:
    data = load_dataset(DataConfig(n_train=40, n_validation=10))
    columns = TableColumns(data.columns.numbers[:1] * 9)
    first = AutoFamily(families=[*DEFAULT]).portfolio(replace(data, columns=columns))
    kinds = [params["family"] for params in first]
    assert kinds[:8] == [*DEFAULT, "boosting", "trees", "trees"]
    assert kinds[8:12] == ["boosting", "trees", "mlp", "kernel"]
    defaults = [params for params in first[:8] if params["family"] == "trees"]
    forests = [(p["trees_kind"], int(float(str(p["trees_max_features"])) * 9)) for p in defaults]
    assert forests == [("extra_trees", 9), ("extra_trees", 3), ("random_forest", 3)]
    assert {params["trees_min_samples_leaf"] for params in defaults} == {1}
