"""The notations of a range (ours and Hydra's) and the mapping they mean."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from automl.cli.space_overrides import canonical_entry, canonical_space
from automl.config.other_distributions import nearest_to_text
from automl.config.range_text import entry_text
from automl.errors import ConfigError
from automl.search.search_space import parse_space


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("2..8", {"low": 2, "high": 8}),
        ("2..8.0", {"low": 2, "high": 8.0}),
        ("-1..1", {"low": -1, "high": 1}),
        ("1e-4..1e-1", {"low": 1e-4, "high": 1e-1}),
        (".5...75", {"low": 0.5, "high": 0.75}),
        ("log:1e-4..1e-1", {"low": 1e-4, "high": 1e-1, "log": True}),
        (" log: 8 .. 512 ", {"low": 8, "high": 512, "log": True}),
        ("0..1/0.1", {"low": 0, "high": 1, "step": 0.1}),
        ("2..8/3", {"low": 2, "high": 8, "step": 3}),
        ("../a", "../a"),
        ("a..b", "a..b"),
        ("log:here", "log:here"),
        ("interval(1e-4,1e-1)", {"low": 1e-4, "high": 1e-1}),
        (" interval( 1, 2 ) ", {"low": 1.0, "high": 2.0}),
        ("int(interval(2,8))", {"low": 2, "high": 8}),
        ("tag(log,interval(1e-4,1e-1))", {"low": 1e-4, "high": 1e-1, "log": True}),
        ("tag(log, int(interval(8,512)))", {"low": 8, "high": 512, "log": True}),
        ("int(tag(log,interval(8,512)))", {"low": 8, "high": 512, "log": True}),
        ("tag(log,range(1,65))", {"low": 1, "high": 64, "log": True}),
        ("range(2,9)", {"low": 2, "high": 8}),
        ("range(4)", {"low": 0, "high": 3}),
        ("range(2,9,3)", {"low": 2, "high": 8, "step": 3}),
        ("range(2,10,3)", {"low": 2, "high": 8, "step": 3}),
        ("range(0,1,0.1)", {"low": 0.0, "high": 0.9, "step": 0.1}),
        ("32,64", {"choices": [32, 64]}),
        ("sgd, adam", {"choices": ["sgd", "adam"]}),
        ("true,false,null", {"choices": [True, False, None]}),
        ("choice(a,'b c')", {"choices": ["a", "b c"]}),
        ("{low: 1, high: 2}", {"low": 1, "high": 2}),
        ("sgd", "sgd"),
        ("two words", "two words"),
        ("${study.seed},3", "${study.seed},3"),
    ],
)
def test_a_string_means_its_mapping(text: str, entry: object) -> None:
    found = canonical_entry("x", text)
    assert found == entry
    assert repr(found) == repr(entry)  # 2 is not 2.0: one is a whole-number range


@pytest.mark.parametrize("entry", [3, 0.1, True, None, {"low": 1, "high": 2}, {"choices": ["a,b"]}])
def test_mappings_and_single_values_stay(entry: object) -> None:
    assert canonical_space({"x": entry}) == {"x": entry}


def test_a_list_means_choices() -> None:
    assert canonical_entry("x", [1, "a"]) == {"choices": [1, "a"]}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("interval(1)", "missing a required argument"),
        ("interval(a,b)", "incompatible"),
        ("range(3,3)", "holds no value"),
        ("range(9,2,-1)", "the step above 0"),
        ("tag(scale,interval(1,2))", "the only tag is log"),
        ("tag(log,choice(1,2))", "a choice has no scale"),
        ("glob(*)", "chooses among files"),
        ("a,(b", "space.lr=a,(b"),
    ],
)
def test_what_is_no_entry_is_refused_with_the_forms(text: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        canonical_entry("lr", text)
    assert str(caught.value).startswith("space.lr=")
    assert why in str(caught.value)
    assert "interval(1e-4,1e-1)" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("1..", "a number is missing (the high end of the range)"),
        ("..5", "a number is missing (the low end of the range)"),
        ("log:a..b", "a is no number (the low end of the range)"),
        ("1..b", "b is no number (the high end of the range)"),
        ("1..5/", "a number is missing (the step of the range)"),
        ("0..inf", "inf is no number"),
        ("1..2,3", "a choice is one value, not a range"),
        ("5..2", "low=5 is above high=2; exchange them"),
        ("log:0..1", "a log range must begin above 0"),
        ("0..1/0", "step=0 must be greater than 0"),
        ("log:1..9/2", "log and step exclude each other"),
    ],
)
def test_a_wrong_range_is_refused_with_param_text_and_rule(text: str, rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_space(canonical_space({"lr": text}))
    assert str(caught.value).startswith(f"space.lr={text.split('/')[0].split(',')[0]}")
    assert rule in str(caught.value)


NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)


@given(NUMBERS, NUMBERS, st.booleans(), st.none() | NUMBERS)
def test_a_printed_range_can_be_typed(low: float, high: float, log: bool, step: Any) -> None:
    entry = {"low": low, "high": high, "log": log, "step": step}
    typed = canonical_entry("x", entry_text(entry))
    written = {name: value for name, value in entry.items() if value is not None}
    assert {"log": False} | typed == written
    assert all(type(typed[name]) is type(written[name]) for name in typed)


@given(st.integers(-50, 50), st.integers(1, 60), st.integers(1, 9))
def test_a_range_holds_what_pythons_range_holds(start: int, length: int, step: int) -> None:
    entry: dict[str, Any] = canonical_entry("x", f"range({start},{start + length},{step})")
    values = range(entry["low"], entry["high"] + 1, entry.get("step", 1))
    assert list(values) == list(range(start, start + length, step))


NORMAL = "the nearest, with 95 % of its values, is {low: -2.0, high: 2.0, likely: 0.0}"
ONES = "{choices: [1, 2], likely: 2}: choices have no weights"


@pytest.mark.parametrize(
    ("entry", "nearest"),
    [
        ("normal(0,1)", NORMAL),
        ("tune.randn(mean=0, sd=1)", NORMAL),
        ("tune.qrandn(0.2, 1, 0.5)", "{low: -2.0, high: 2.0, likely: 0.0, step: 0.5}"),
        ("lognormal(0, 1)", "{low: 0.135335, high: 7.38906, likely: 1.0, log: true}"),
        ("loguniform(1e-4, 1e-1)", "log:0.0001..0.1"),
        ("qloguniform(1e-4, 1e-1, 1e-4)", "log:0.0001..0.1: a log range has no step"),
        ("quniform(0, 1, 0.1)", "0.0..1.0/0.1"),
        ("randint(2, 9)", "2..8"),
        ("qrandint(2, 8, 3)", "2..8/3"),
        ("lograndint(8, 513)", "log:8..512"),
        ({"distribution": "normal", "mu": 0, "sigma": 1}, NORMAL),
        ({"distribution": "q_normal", "mu": 0, "sigma": 1, "q": 0.5}, "step: 0.5}"),
        ({"distribution": "log_uniform", "min": 0, "max": 1}, "log:1.0..2.71828"),
        ({"distribution": "log_uniform_values", "min": 1e-4, "max": 0.1}, "log:0.0001..0.1"),
        ({"min": 0, "max": 3}, "0..3"),
        ({"min": 0.0, "max": 3}, "0.0..3.0"),
        ({"values": [1, 2], "probabilities": [0.2, 0.8]}, ONES),
        ({"grid_search": [1, 2]}, "{choices: [1, 2]}"),
    ],
    ids=str,
)
def test_another_tools_distribution_is_refused_with_a_range_that_a_space_takes(
    entry: object, nearest: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_space(canonical_space({"x": entry}))
    assert nearest in str(refused.value)
    written = re.search(r" is ({.*}|\S+?)[.:]( |$)", str(refused.value))
    assert written is not None
    assert parse_space(canonical_space({"x": yaml.safe_load(written[1])}))["x"].is_searched


@pytest.mark.parametrize("text", ["f(1,2)", "normal(a,b)", "normal(1)", "uniform", "normal"])
def test_a_text_that_is_no_known_distribution_gets_no_nearest_range(text: str) -> None:
    assert nearest_to_text(text) is None
