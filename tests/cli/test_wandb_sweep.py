"""What each key of a W&B sweep becomes; the forms are those of W&B's documentation, rewritten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from automl.cli.arguments import parse_command_line
from automl.cli.command_steps import compose_command
from automl.cli.wandb_begin import begin_with_wandb
from automl.cli.wandb_sweep import WandbSweep, read_wandb_sweep
from automl.config import Config
from automl.errors import ConfigError
from automl.trial import Direction

SWEEP = """
program: train.py
name: my first sweep
description: what a tutorial has
project: demo
entity: team
method: bayes
metric: {goal: minimize, name: validation_loss}
run_cap: 7
parameters:
  learning_rate: {min: 0.0001, max: 0.1}
  batch_size: {values: [16, 32, 64]}
  epochs: {value: 5}
  optimizer:
    parameters:
      name: {values: [adam, sgd]}
      adam: {parameters: {beta: {values: [0.9, 0.95]}}}
early_terminate: {type: hyperband, min_iter: 3}
"""


def read(text: str, **changes: Any) -> WandbSweep:
    return read_wandb_sweep({**yaml.safe_load(text), **changes}, "sweep.yaml", {"HOME": "/h"})


def entry_of(**given: Any) -> Any:
    return read(SWEEP, parameters={"x": given}).space["x"]


def test_a_whole_sweep() -> None:
    sweep = read(SWEEP)
    assert sweep.settings == {
        "objective": "command",
        "objective.command": "python train.py {params} --optimizer={optimizer}",
        "objective.wandb": True,
        "sampler": "gp",
        "study.metric": "validation_loss",
        "study.direction": "minimize",
        "study.n_trials": 7,
        "study.name": "my-first-sweep",
        "pruner": "halving",
        "pruner.factor": 3,
        "pruner.min_steps": 3,
    }
    assert sweep.space == {
        "learning_rate": {"low": 0.0001, "high": 0.1},
        "batch_size": {"choices": [16, 32, 64]},
        "epochs": 5,
        "optimizer.name": {"choices": ["adam", "sgd"]},
        "optimizer.adam.beta": {"choices": [0.9, 0.95]},
    }
    assert sweep.notes == ("project, entity, description: left out, for W&B alone has them",)


@pytest.mark.parametrize(
    ("given", "entry"),
    [
        ({"min": 1, "max": 8}, {"low": 1, "high": 8}),
        ({"min": 1, "max": 8.0}, {"low": 1.0, "high": 8.0}),
        ({"distribution": "int_uniform", "min": 1, "max": 8}, {"low": 1, "high": 8}),
        ({"distribution": "uniform", "min": 0, "max": 1}, {"low": 0.0, "high": 1.0}),
        (
            {"distribution": "log_uniform_values", "min": "1e-4", "max": 0.1},
            {"low": 1e-4, "high": 0.1, "log": True},
        ),
        (
            {"distribution": "inv_log_uniform_values", "min": 1e-4, "max": 0.1},
            {"low": 1e-4, "high": 0.1, "log": True},
        ),
        (
            {"distribution": "log_uniform", "min": -2, "max": 0},
            {"low": 0.135335, "high": 1.0, "log": True},
        ),
        (
            {"distribution": "inv_log_uniform", "min": 0, "max": 2},
            {"low": 0.135335, "high": 1.0, "log": True},
        ),
        (
            {"distribution": "q_uniform", "min": 0.1, "max": 1, "q": 0.25},
            {"low": 0.0, "high": 1.0, "step": 0.25},
        ),
        ({"distribution": "q_uniform", "min": 2, "max": 9}, {"low": 2, "high": 9, "step": 1}),
        (
            {"distribution": "q_log_uniform_values", "min": 32, "max": 256, "q": 1},
            {"low": 32, "high": 256, "log": True},
        ),
        ({"distribution": "categorical", "values": [None, "a"]}, {"choices": [None, "a"]}),
        ({"distribution": "constant", "value": "a"}, "a"),
        ({"values": [3]}, 3),
    ],
)
def test_an_entry(given: dict[str, Any], entry: object) -> None:
    assert entry_of(**given) == entry


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"distribution": "normal", "mu": 1, "sigma": 2}, "uniform, min: -3, max: 5"),
        ({"distribution": "log_normal"}, "log_uniform_values, min: 0.135335, max: 7.38906"),
        ({"distribution": "q_normal", "mu": 10, "q": 2}, "q_uniform, min: 8, max: 12, q: 2"),
        ({"distribution": "beta"}, "uniform, min: 0, max: 1"),
        (
            {"distribution": "q_log_uniform", "min": 0, "max": 2},
            "log_uniform_values, min: 1, max: 7.38906",
        ),
        ({"values": [1, 2], "probabilities": [0.1, 0.9]}, "The nearest is values: without them"),
        (
            {"distribution": "q_log_uniform_values", "min": 32, "max": 256, "q": 8},
            "log_uniform_values without q",
        ),
        ({"values": [[1, 2], [3]]}, "The nearest is its text"),
        ({"distribution": "gamma", "min": 0, "max": 1}, "distribution: gamma: there are uniform"),
        ({"min": 0}, "give value, values, or min and max"),
        ({"distribution": "log_uniform", "min": 0, "max": 1000}, "write log_uniform_values"),
        ({"min": "a", "max": 3}, "parameters.x.min: a: must be a number"),
    ],
)
def test_a_refused_entry_names_the_nearest(given: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError) as raised:
        entry_of(**given)
    assert str(raised.value).startswith("from=sweep.yaml: parameters.x")
    assert error in str(raised.value)


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["${env}", "python3", "${program}", "${args}"], "python3 train.py {params}"),
        (["${program}", "-b", "a b", "${args_no_hyphens}"], "train.py -b 'a b' {overrides}"),
        (["./run", "${args_no_equals}"], "./run --lr {lr} --n {n}"),
        (["./run", "${args_no_boolean_flags}"], "./run {params}"),
        (["./run", "--f", "${args_json_file}"], "./run --f {json}"),
        (["./run", "${args_append_hydra}"], "./run +lr={lr} +n={n}"),
        (["./run", "${args_override_hydra}"], "./run ++lr={lr} ++n={n}"),
        (["./run", "${envvar:HOME}/{x}", "${args}"], "./run '/h/{{x}}' {params}"),
        (["${env}", "A=1", "./run", "${args}"], "env A=1 ./run {params}"),
        (["${interpreter}", "${program}"], "env SWEEP_PARAMS={json} python train.py"),
    ],
)
def test_a_command(words: list[str], command: str) -> None:
    sweep = read(SWEEP, command=words, parameters={"lr": {"value": 1}, "n": {"value": 2}})
    assert sweep.settings["objective.command"] == command


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"method": "custom"}, "method: custom: there are bayes, random, grid. The nearest"),
        ({"job": "a/b"}, "job: a/b: jobs of W&B Launch"),
        ({"early_stopping": {}}, "early_stopping: {}: no such key"),
        ({"early_terminate": {"type": "envelope"}}, "The nearest is pruner=median"),
        (
            {"early_terminate": {"type": "hyperband", "min_iter": 1, "eta": 2.5}},
            "The nearest is eta: 2.",
        ),
        ({"early_terminate": {"type": "hyperband"}}, "needs min_iter, or max_iter and s"),
        ({"command": ["${args_json}"]}, "The nearest is ${args_json_file}"),
        ({"command": ["${arguments}"]}, "command: ${arguments}: no such macro"),
        ({"command": ["${envvar:NOWHERE}"]}, "set NOWHERE"),
        ({"command": "python train.py"}, "must be a list of words"),
        ({"program": None}, "must be named"),
        ({"metric": {"name": "a", "goal": "max"}}, "must be minimize or maximize"),
        ({"parameters": None}, "parameters: None: must be a mapping"),
    ],
)
def test_a_refused_key(changes: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(SWEEP, **changes)
    assert error in str(raised.value)


def test_the_brackets_of_a_known_length() -> None:
    early = {"type": "hyperband", "s": 2, "eta": 3, "max_iter": 27, "strict": True}
    sweep = read(SWEEP, early_terminate=early)
    assert sweep.settings["pruner.max_steps"] == 27
    assert (sweep.settings["pruner.min_steps"], sweep.settings["pruner.factor"]) == (3, 3)
    assert any(note.startswith("early_terminate.strict") for note in sweep.notes)


def test_without_early_termination_no_trial_ends_early() -> None:
    config = yaml.safe_load(SWEEP)
    del config["early_terminate"]
    assert read_wandb_sweep(config, "sweep.yaml", {}).settings["pruner"] == "none"


def test_a_grid_has_all_combinations() -> None:
    parameters = {
        "a": {"values": [1, 2, 3]},
        "b": {"min": 2, "max": 5},
        "c": {"distribution": "q_uniform", "min": 0, "max": 1, "q": 0.1},
        "d": {"value": 3},
    }
    config = {**yaml.safe_load(SWEEP), "method": "grid", "parameters": parameters}
    assert read_wandb_sweep(config, "sweep.yaml", {}).settings["study.n_trials"] == 7
    del config["run_cap"]
    assert read_wandb_sweep(config, "sweep.yaml", {}).settings["study.n_trials"] == 3 * 4 * 11


def test_several_metrics() -> None:
    metrics = [{"name": "loss"}, {"name": "acc", "goal": "maximize"}]
    sweep = read(SWEEP, metrics=metrics)
    assert sweep.settings["study.metric"] == ["loss", "acc"]
    assert sweep.settings["study.direction"] == ["minimize", "maximize"]


def test_a_target_ends_the_sweep() -> None:
    metric = {"name": "loss", "target": 0.1}
    assert read(SWEEP, metric=metric).settings["study.stop_value"] == 0.1


def test_no_metric_is_said() -> None:
    sweep = read(SWEEP, metric=None, method="random")
    assert "study.metric" not in sweep.settings
    assert "val_loss" in sweep.notes[-1]


# --- on a command line ----------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    (tmp_path / "train.py").write_text("print(1)\n")
    return tmp_path


def config_of(*words: str) -> Config:
    return compose_command(begin_with_wandb(parse_command_line(words))).config


def test_a_line_becomes_a_config(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = config_of("from=sweep.yaml")
    assert (config.study.name, config.study.n_trials) == ("my-first-sweep", 7)
    assert config.study.direction is Direction.minimize
    assert config.objective.wandb
    assert list(config.space)[-1] == "optimizer.adam.beta"
    assert capsys.readouterr().err.startswith("automl: sweep.yaml: project, entity")


def test_what_the_line_says_counts(folder: Path) -> None:
    config = config_of("from=sweep.yaml", "n_trials=3", "sampler=random", "pruner=none", "name=x")
    assert (config.study.name, config.study.n_trials) == ("x", 3)
    assert type(config.pruner).__name__ == "NoPruner"
    assert config_of("from=sweep.yaml", "space={lr: 1..2}").space.keys() == {"lr"}


def test_a_file_that_is_none(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"^from=no\.yaml: No such file"):
        config_of("from=no.yaml")
    Path("bad.yaml").write_text("a: [")
    with pytest.raises(ConfigError, match=r"^from=bad\.yaml: it cannot be read as YAML"):
        config_of("from=bad.yaml")
    Path("text.yaml").write_text("hello")
    with pytest.raises(ConfigError, match="must be a mapping"):
        config_of("from=text.yaml")


def test_wandb_is_for_programs_alone() -> None:
    with pytest.raises(ConfigError, match=r"objective\.wandb"):
        compose_command(parse_command_line(["data=digits", "objective.wandb=true"]))
