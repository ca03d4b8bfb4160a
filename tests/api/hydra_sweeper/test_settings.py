"""What `hydra.sweeper` says, as our settings and our space; the notation is Hydra's."""

from __future__ import annotations

import re
import runpy
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from automl.api.hydra_sweeper.sweeper_settings import (
    find_goal,
    find_space,
    plain_settings,
    setting_lines,
)
from automl.errors import ConfigError
from automl.search.samplers import samplers
from tests.api.hydra_sweeper.conftest import PLUGIN_PATH

PLUGIN = runpy.run_path(str(PLUGIN_PATH / "hydra_plugins" / "automl_sweeper.py"))


def settings(**given: Any) -> dict[str, Any]:
    sampler: dict[str, Any] = {"sampler": {"_target_": "auto", "seed": None}}
    return {**sampler, **PLUGIN["SETTINGS"], **given}


def lines(**given: Any) -> list[str]:
    return setting_lines(settings(**given), find_goal(settings(**given)))


def space_of(*words: str, **given: Any) -> Any:
    return find_space(settings(**given), words, OverridesParser.create())


@pytest.mark.parametrize(
    ("value", "entry"),
    [  # the first ten are those of hydra-optuna-sweeper's own tests
        ("choice(1,2)", {"choices": [1, 2]}),
        ("choice(true, false)", {"choices": [True, False]}),
        ("choice('hello', 'world')", {"choices": ["hello", "world"]}),
        ("shuffle(range(1,3))", {"choices": [1, 2]}),
        ("range(1,3)", {"low": 1, "high": 3, "step": 1}),
        ("interval(1, 5)", {"low": 1.0, "high": 5.0}),
        ("int(interval(1, 5))", {"low": 1, "high": 5}),
        ("tag(log, interval(1, 5))", {"low": 1.0, "high": 5.0, "log": True}),
        ("tag(log, int(interval(1, 5)))", {"low": 1, "high": 5, "log": True}),
        ("range(0.5, 5.5, step=1)", {"low": 0.5, "high": 5.5, "step": 1.0}),
        ("range(0,1,0.3)", {"low": 0.0, "high": 0.9, "step": 0.3}),
        ("adam,sgd", {"choices": ["adam", "sgd"]}),
        ("null,3", {"choices": [None, 3]}),
    ],
)
def test_hydras_notation_is_an_entry_of_the_space(value: str, entry: dict[str, Any]) -> None:
    for space in (space_of(f"key={value}"), space_of(params={"key": value})):
        (found,) = space.entries.values()
        if "choices" in found and "shuffle" in value:
            found = {"choices": sorted(found["choices"])}
        assert (found, [type(v) for v in found.values()]) == (
            entry,
            [type(v) for v in entry.values()],
        )
        assert (space.fixed, space.raw) == ((), ())


def test_lists_are_choices_as_hydra_writes_them() -> None:
    space = space_of("model.layers=[1,2],[3,'a b']")
    assert space.entries == {"model.layers": {"choices": ["[1,2]", "[3,'a b']"]}}
    assert space.raw == ("model.layers",)
    with pytest.raises(ConfigError, match=r"a list is a choice of a key such as model.layers"):
        space_of("+layers=[1],[2]")


def test_the_command_line_counts_more_than_the_params() -> None:
    params = {"x": "choice(1,2)", "y": "range(0,4)", "z": 5}
    space = space_of("x=7", "++z=interval(0,1)", "~w", "+v={a: 1}", params=params)
    assert list(space.entries) == ["y", "++z"]
    assert space.fixed == ("x=7", "~w", "+v={a: 1}")


def test_the_notation_before_params_is_taken() -> None:
    former = {
        "a": {"type": "float", "low": 1, "high": 2, "log": True, "step": None},
        "b": {"type": "int", "low": 1, "high": 9, "step": 2},
        "c": {"type": "categorical", "choices": ["x", "y"]},
    }
    assert space_of(search_space=former).entries == {
        "a": {"low": 1.0, "high": 2.0, "log": True},
        "b": {"low": 1, "high": 9, "step": 2},
        "c": {"choices": ["x", "y"]},
    }
    with pytest.raises(ConfigError, match=r"search_space\.a=.*must be categorical, int or float"):
        space_of(search_space={"a": {"type": "loguniform"}})


def test_a_sweep_that_searches_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"nothing is searched\. Give a param several values"):
        space_of("x=7")


def test_without_a_metric_the_returned_value_is_the_goal_and_prunes_nothing() -> None:
    assert lines() == [
        "study.metric='returned_value'",
        "study.direction='minimize'",
        "study.n_trials=20",
        "pruner=none",
    ]
    several = lines(direction=["minimize", "maximize"], pruner="median")
    assert several[:2] == [
        "study.metric=['returned_value_0','returned_value_1']",
        "study.direction=['minimize','maximize']",
    ]
    assert several[-1] == "pruner='median'"


def test_a_named_metric_is_pruned_as_usual() -> None:
    assert lines(
        metric="val/acc", direction="maximize", n_jobs=3, overrides=["study.repeats=2"]
    ) == [
        "study.metric='val/acc'",
        "study.direction='maximize'",
        "study.n_trials=20",
        "admission.max_concurrent_trials=3",
        "study.repeats=2",
    ]
    with pytest.raises(ConfigError, match=r"2 metrics, and hydra.sweeper.direction has 1"):
        find_goal(settings(metric=["a", "b"]))


def test_a_sampler_of_optuna_is_ours() -> None:
    tpe = {
        "_target_": "optuna.samplers.TPESampler",
        "seed": 7,
        "n_startup_trials": 5,
        "multivariate": False,
        "consider_prior": True,
        "warn_independent_sampling": True,
        "prior_weight": None,
    }
    assert [line for line in lines(sampler=tpe) if "sampler" in line or "seed" in line] == [
        "sampler=tpe",
        "study.seed=7",
        "sampler.n_startup_trials=5",
        "sampler.multivariate=false",
    ]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"sampler": {"_target_": "optuna.samplers.CmaEsSampler", "sigma0": 0.2}}, "sigma0=0.2: "),
        ({"sampler": {"_target_": "mine.Sampler"}}, "must be one of CmaEsSampler, "),
        ({"custom_search_space": "app.configure"}, "Name them in hydra.sweeper.params"),
        ({"storage": {"_target_": "optuna.storages.JournalStorage"}}, "such as sqlite:///"),
        ({"max_failure_rate": 2}, "must be from 0 to 1"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        lines(**given)


def test_every_option_of_a_sampler_is_one_of_ours() -> None:
    for cls, arguments in PLUGIN["SAMPLERS"].values():
        chosen = [line for line in lines(sampler={"_target_": cls}) if line.startswith("sampler=")]
        option = chosen[0].removeprefix("sampler=") if chosen else "auto"
        assert option in samplers()
        for name in arguments:
            asked = {"_target_": cls, name: "no such value"}
            try:
                taken = any(line.startswith(f"sampler.{name}=") for line in lines(sampler=asked))
            except ConfigError:
                continue
            assert not taken or hasattr(samplers()[option], name), (cls, name)


def test_containers_of_omegaconf_become_plain_values() -> None:
    config = OmegaConf.create({"a": 3, "params": {"x": "${a}"}, "direction": ["minimize"]})
    plain = plain_settings({"params": config.params, "direction": config.direction, "n": 3})
    assert plain == {"params": {"x": 3}, "direction": ["minimize"], "n": 3}


# --- what the application returned ----------------------------------------------------------------

content = PLUGIN["returned_content"]


def test_a_returned_number_is_the_value_of_the_metric() -> None:
    assert content(0.5, ["m"], is_needed=True) == {"m": 0.5}
    assert content((1, 2.5), ["a", "b"], is_needed=True) == {"a": 1.0, "b": 2.5}
    assert content({"m": 1, "other": 2}, ["m"], is_needed=True) == {"m": 1.0, "other": 2.0}
    assert content("much", ["m"], is_needed=True) == {"m": "'much'"}


def test_an_application_that_returns_nothing_must_name_what_it_prints() -> None:
    assert content(None, ["val_loss"], is_needed=False) is None
    assert "hydra.sweeper.metric=val_loss" in content(None, ["m"], is_needed=True)
    assert "returned 2 values ((1, 2))" in content((1, 2), ["m"], is_needed=True)
    assert "returned 1 value (3)" in content(3, ["a", "b"], is_needed=True)
