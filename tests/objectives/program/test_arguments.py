"""What a program is given: arguments, environment; and commands that contradict their space."""

from __future__ import annotations

import json
import shlex

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from automl.errors import ConfigError
from automl.objectives.program.program_arguments import (
    ProgramFlags,
    ProgramInputs,
    appended_params,
    check_command_params,
    command_words,
    override_text,
    program_arguments,
    program_environment,
)
from automl.trial import Params, ParamValue

GIVEN = ProgramInputs(
    seed=5, trial=3, checkpoint_dir="/s/t", trial_dir="/s/t/files", n_devices=2, json="/s/t/p.json"
)
PARAMS: Params = {"lr": 0.0, "batch_size": 32, "name": "a b", "fast": True, "none": None}


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (
            "python t.py",
            "python t.py --lr=0.0 --batch_size=32 '--name=a b' --fast=True",
        ),
        (
            "t --lr {lr} -b{batch_size}",
            "t --lr 0.0 -b32 '--name=a b' --fast=True",
        ),
        (
            "t {params} --out {trial_dir}/x",
            "t --lr=0.0 --batch_size=32 '--name=a b' --fast=True --out /s/t/files/x",
        ),
        ("t {json}", "t /s/t/p.json"),
        ("t {json} {params}", "t /s/t/p.json --lr=0.0 --batch_size=32 '--name=a b' --fast=True"),
        (
            "t {overrides} lr2={lr}",
            "t batch_size=32 \"name='a b'\" fast=True none=null lr2=0.0",
        ),
        (
            "t {json} --seed={seed} {trial} {checkpoint_dir} {n_devices}",
            "t /s/t/p.json --seed=5 3 /s/t 2",
        ),
        ("t {json} '{{a}}' '{\"a\": 1}' {}", "t /s/t/p.json '{a}' '{\"a\": 1}' '{}'"),
        (
            "bash -c 'python t.py {overrides} | tee log'",
            "bash -c 'python t.py lr=0.0 batch_size=32 '\"'\"'name='\"'\"'\"'\"'\"'\"'\"'\"'a b"
            "'\"'\"'\"'\"'\"'\"'\"'\"''\"'\"' fast=True none=null | tee log'",
        ),
    ],
)  # fmt: skip
def test_places_are_filled_and_the_rest_appended(command: str, found: str) -> None:
    assert program_arguments(command_words(command), PARAMS, GIVEN) == shlex.split(found)


def test_flags_are_spelt_as_the_program_does() -> None:
    flags = ProgramFlags({"batch_size": "--batch-size"}, {"fast": ("--fast", "--no-fast")})
    words = command_words("t")
    assert program_arguments(words, {"batch_size": 1, "fast": True}, GIVEN, flags) == (
        ["t", "--batch-size=1", "--fast"]
    )
    found = program_arguments(words, {"batch_size": None, "fast": False}, GIVEN, flags)
    assert found == ["t", "--no-fast"]
    assert program_arguments(words, {"batch_size": None, "fast": None}, GIVEN, flags) == ["t"]


def test_a_place_that_this_trial_cannot_fill_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"nothing for \{momentum\}"):
        program_arguments(command_words("t {momentum}"), {"lr": 1.0}, GIVEN)


def test_the_environment_says_the_same() -> None:
    found = program_environment({"lr": 0.5, "batch-size": 2}, GIVEN)
    assert found["AUTOML_LR"] == "0.5"
    assert found["AUTOML_BATCH_SIZE"] == "2"
    assert json.loads(found["AUTOML_PARAMS"]) == {"lr": 0.5, "batch-size": 2}
    assert {name: found[f"AUTOML_{name}"] for name in ("SEED", "TRIAL", "N_DEVICES")} == {
        "SEED": "5",
        "TRIAL": "3",
        "N_DEVICES": "2",
    }
    assert "AUTOML_LR" not in program_environment({"lr": None}, GIVEN)
    assert found["AUTOML_TRIAL_DIR"] == "/s/t/files"
    assert (found["AUTOML_CHECKPOINT_DIR"], found["AUTOML_JSON"]) == ("/s/t", "/s/t/p.json")


@pytest.mark.parametrize(
    "value",
    [
        "adam",
        "a b",
        "it's",
        "\\",
        "a\\'",
        "null",
        "1e-3",
        "",
        "x=1,y",
        "a\n b",
        '"q"',
        "${a}",
        True,
        0.0,
        7,
    ],
)
def test_hydra_reads_an_override_back(value: ParamValue) -> None:
    text = f"name={override_text(value)}"
    assert OverridesParser.create().parse_override(text).value() == value


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("t", ("lr", "width")),
        ("t --lr {lr}", ("width",)),
        ("t {params} {lr}", ("width",)),
        ("t {json}", ()),
        ("t {overrides}", ()),
    ],
)
def test_which_params_are_flags(command: str, names: tuple[str, ...]) -> None:
    assert appended_params(command_words(command), ("lr", "width")) == names


@pytest.mark.parametrize(
    ("command", "names", "optional", "message"),
    [
        (
            "t {wdith}",
            ["width"],
            [],
            r"nothing fills \{wdith\}\. There are \{width\}, \{seed\}.*\{\{",
        ),
        ("t", ["seed"], [], r"space.seed: \{seed\} is what the trial itself gives.*\{my_seed\}"),
        ("t --lr=0.1", ["lr"], [], r"lr stands in the command and in the space.*\{lr\}"),
        ("t --batch-size 3", ["batch_size"], [], "batch_size stands in the command and in the"),
        ("t {mom}", ["lr", "mom"], ["mom"], r"mom is not in every trial.*Leave it out"),
        ("t {json} --n={n}", ["n"], [], r"n is null in some trials, so.*\{n\} there. Leave it out"),
        ("t", ["lr", "LR"], [], "space.LR: the program could not tell it from lr.*AUTOML_LR"),
    ],
)
def test_a_command_that_contradicts_its_space(
    command: str, names: list[str], optional: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_command_params(command, names, optional, nullable=["n"])


def test_what_does_not() -> None:
    check_command_params(
        "t --epochs 3 --lr {lr} {{x}} {json} '{\"a\": 2}'", ["lr", "momentum"], ["momentum"]
    )
