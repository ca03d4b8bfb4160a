"""A command and a pattern are taken as they are typed."""

from __future__ import annotations

import re

import pytest

from automl.cli.space_overrides import quote_raw_texts
from tests.cli.conftest import Compose, Refuse

SPACE = "space={lr: 0.1}"


@pytest.mark.parametrize(
    "command",
    [
        "python train.py --epochs 5",
        "python train.py --lr {lr} --out={trial_dir}/x, {overrides} a=b",
        "bash -c 'python train.py {params} | tee log'",
        'python "my train.py" "a" \'{"b": [1]}\'',
        "'./my train' --x 'y'",
        "./train C:\\dir\\x",
        "./train [1,2]",
        "./train 1e-3 null",
    ],
)
def test_a_command_arrives_as_it_was_typed(command: str, composed: Compose) -> None:
    config = composed("objective=command", f"objective.command={command}", SPACE).config
    assert config.objective.command == command


@pytest.mark.parametrize(
    "pattern",
    [
        r"Average loss: (?P<val_loss>[\d.]+), Accuracy: (\d+)/",
        r"it's (?P<a>\S{1,3})\\$",
        r"'(?P<a>.)",
    ],
)
def test_a_pattern_arrives_as_it_was_typed(pattern: str, composed: Compose) -> None:
    words = "objective=command", "objective.command=train", f"++objective.pattern={pattern}", SPACE
    assert composed(*words).config.objective.pattern == pattern


@pytest.mark.parametrize(
    "override",
    ["objective.command='python train.py'", 'objective.command="a b"', "objective.pattern=null",
     "objective.target=a:b", "study.name=x y"],
)  # fmt: skip
def test_what_hydra_takes_already_stays(override: str) -> None:
    assert quote_raw_texts(override) == override


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["objective=command"], "objective=command needs train='python train.py'"),
        (
            ["objective=python", "objective.target=a:b", "objective.command=ls"],
            "objective.command=ls: is for objective=command: add it",
        ),
        (["objective=command", "objective.command=a 'b"], "no closing quotation: close the quot"),
        (["objective=command", "objective.command=a && b"], "no shell .* '&&'; ask one: bash -c"),
        (["objective=command", "objective.command=A=1 b"], "set a variable by: env A=1"),
        (
            ["objective=command", "objective.command=a", "objective.pattern=(a"],
            r"objective.pattern=\(a: it is no regular expression",
        ),
        (
            ["objective=command", "objective.command=a", "objective.pattern=(?P<step>a)"],
            "it needs a named group for each metric, such as",
        ),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], message: str, refused: Refuse) -> None:
    said = refused(*words, SPACE)
    assert re.search(message, said), said
