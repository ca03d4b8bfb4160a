"""The two words for a setting without a value of its own, `auto` and `none`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import get_type_hints

import pytest
import yaml

from automl.cli.arguments import parse_command_line
from automl.cli.config_keys import OPTIONS_BY_CLASS, all_config_keys
from automl.cli.help_text import class_docstrings
from automl.cli.open_values import (
    AUTO_KEYS,
    explain_open_values,
    read_open_values,
    write_open_values,
)
from automl.cli.option_answers import answer_option
from automl.config import Config
from automl.config.decided import DECIDED
from tests.cli.conftest import Compose, Refuse

SHORT = {"study.n_trials": "n_trials"}


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield each key that may have no value, with its docstring."""
    hints = get_type_hints(Config)
    for section in fields(Config):
        for cls in OPTIONS_BY_CLASS.get(section.name, {"": hints[section.name]}).values():
            if isinstance(cls, type) and is_dataclass(cls):
                texts = class_docstrings(cls)
                for known in fields(cls):
                    if known.default is None or f"{section.name}.{known.name}" in AUTO_KEYS:
                        yield f"{section.name}.{known.name}", texts.get(known.name, "")


def test_the_docstring_of_a_key_says_its_word() -> None:
    for key, text in docstrings():
        assert "null" not in text, key
        word = re.search(r"\b(auto|none): ", text)
        if word is not None and key not in ("data.folds", "tracking.uri"):
            assert word[1] == ("auto" if key in AUTO_KEYS else "none"), key


@pytest.mark.parametrize("word", ["none", "null", "off", "false", "None", "OFF"])
@pytest.mark.parametrize(
    "key",
    [
        *("study.timeout_seconds", "study.keep_best", "study.storage", "study.stop_gain"),
        "study.stop_value",
        *("execution.trial_timeout_seconds", "training.patience_epochs", "objective.pattern"),
        *("data.sweep_rows", "study.min_free_space", "data.group"),
    ],
)
def test_no_limit_is_none(key: str, word: str, composed: Compose) -> None:
    section, _, name = key.partition(".")
    assert getattr(getattr(composed(f"{key}={word}").config, section), name) is None


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("execution.pack", "none"),
        ("data.combine", "none"),
        ("study.finish", "none"),
        ("admission.lookahead", 0),
        ("data.test", "none"),
    ],
)
@pytest.mark.parametrize("word", ["none", "null", "off", "false"])
def test_off_is_none(key: str, found: object, word: str, composed: Compose) -> None:
    section, _, name = key.partition(".")
    assert getattr(getattr(composed(f"{key}={word}").config, section), name) == found


@pytest.mark.parametrize("word", ["none", "off", "null", "false"])
def test_an_enum_has_the_same_spellings(word: str, composed: Compose) -> None:
    assert composed(f"admission.survey={word}").config.admission.survey.name == "none"
    assert composed(f"study.portfolio={word}").config.study.portfolio.name == "none"
    assert composed(f"tracking.checkpoints={word}").config.tracking.checkpoints.name == "none"


def test_the_program_decides_by_auto(composed: Compose) -> None:
    words = ("n_trials=auto", "direction=auto", "admission.request=auto", "epochs=auto")
    given = composed(*words, "sampler=cmaes", "sampler.population_size=auto").config
    assert (given.study.n_trials, given.study.direction) == (20, composed().config.study.direction)
    assert (given.admission.request, given.training.epochs) == (None, None)
    assert composed("n_trials=null").config.study.n_trials == 20


@pytest.mark.parametrize(
    ("word", "rule"),
    [
        ("n_trials=none", "study.n_trials=none: must be a number, or auto: the program decides."),
        ("timeout=auto", "study.timeout_seconds=auto: must be a number, or none."),
        ("study.portfolio=true", "study.portfolio=true: must be auto or none."),
        ("admission.survey=yes", "admission.survey=yes: must be auto or none."),
        ("training.precision=half", "must be float32, float64 or bfloat16."),
    ],
)
def test_any_other_word_is_refused_with_the_rule(word: str, rule: str, refused: Refuse) -> None:
    assert refused(word).endswith(rule)


def test_texts_and_params_stay() -> None:
    words = ["space.x=none", "study.metric=none", "~space.x", "study.name='none'", "sampler=auto"]
    assert read_open_values(words) == words


def test_the_printed_config_has_no_null_and_can_be_typed(
    composed: Compose, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answer_option(parse_command_line(["--cfg", "job", "space.x=null"])) == 0
    printed = capsys.readouterr().out
    assert re.findall(r".*null", printed) == ["  x: null"]
    plain = yaml.safe_load(printed)
    assert (plain["study"]["n_trials"], plain["study"]["timeout_seconds"]) == ("auto", "none")
    open_keys = [
        f"{section}.{name}={value}"
        for section, values in plain.items()
        if section not in ("space", "ray")  # naming ray.address chooses Ray
        for name, value in values.items()
        if value in ("auto", "none") and not name.startswith("kind")
    ]
    assert composed(*open_keys).config == composed().config


def test_a_part_of_the_config_is_printed_so_too() -> None:
    text = "# @package study\nn_trials: null\nconstraints:\n  a: null\ntimeout_seconds: null\n"
    shown = write_open_values(text, "study")
    assert shown.splitlines()[1:] == [
        *("n_trials: auto", "constraints:", "  a: null", "timeout_seconds: none")
    ]


def test_each_auto_says_what_it_becomes_and_why() -> None:
    reasons = {"study.n_trials": (20, "no number is given"), "data.folds": ("auto", "by its rows")}
    text = "study:\n  name: auto\n  n_trials: auto\ndata:\n  folds: auto\n  test: none\nspace: {}\n"
    assert explain_open_values(text, reasons).split("\n") == [
        "study:",
        "  name: auto",
        "  n_trials: 20  # auto: no number is given",
        "data:",
        "  folds: auto  # by its rows",
        "  test: none",
        "space: {}",
        "",
    ]


def test_the_table_of_what_auto_becomes_names_settings_with_a_last_case_for_all() -> None:
    last = {row.key: row for row in DECIDED}
    for key, row in last.items():
        assert key in all_config_keys()
        assert row.applies(Config()), "a setting that is left open always gets a value"
