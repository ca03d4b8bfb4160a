"""Entries of a space: what they mean, and what is refused in which words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from automl.errors import ConfigError
from automl.search.domains import ChoiceDomain, FixedDomain, RangeDomain
from automl.search.search_space import parse_space
from automl.trial import Params, ParamValue
from tests.search.conftest import ENTRIES


def domain(entry: object) -> object:
    return parse_space({"x": entry})["x"].domain


def test_entries_become_ranges_choices_and_fixed_values() -> None:
    assert domain({"low": 2, "high": 8}) == RangeDomain(2, 8)
    assert domain({"low": 0, "high": 0.5}) == RangeDomain(0.0, 0.5)
    assert domain({"low": 1e-4, "high": 1, "log": True}) == RangeDomain(1e-4, 1.0, log=True)
    assert domain({"choices": ["a", 2, None, True]}) == ChoiceDomain(("a", 2, None, True))
    assert domain(0.1) == FixedDomain(0.1)
    assert domain(None) == FixedDomain(None)


@pytest.mark.parametrize(
    "entry",
    [
        {"low": 1, "high": 300, "log": True},
        {"low": -7, "high": 9},
        {"low": 0, "high": 8, "step": 2},
        {"low": 0.1, "high": 0.9, "step": 0.1},
    ],
)
def test_each_value_of_a_range_lies_at_its_share_and_one_beyond_outside(entry: Any) -> None:
    span = domain(entry)
    assert isinstance(span, RangeDomain)
    values = [float(str(value)) for value in span.all_values()]
    assert len(values) == span.n_values
    assert [span.at(span.share(value)) for value in values] == values
    assert span.share(values[-1] + 1) > 1
    assert span.nearest(values[-1] + 1) == span.high


def test_integers_stay_integers_unless_one_number_is_a_float() -> None:
    whole, real = domain({"low": 2, "high": 8}), domain({"low": 2, "high": 8.0})
    assert isinstance(whole, RangeDomain)
    assert isinstance(real, RangeDomain)
    assert whole.is_integer
    assert not real.is_integer


def test_the_end_of_a_stepped_range_is_one_that_can_be_drawn() -> None:
    assert domain({"low": 0.0, "high": 0.35, "step": 0.1}) == RangeDomain(0.0, 0.3, step=0.1)
    assert domain({"low": 1, "high": 8, "step": 3}) == RangeDomain(1, 7, step=3)
    assert domain({"low": 0.0, "high": 0.3, "step": 0.1}) == RangeDomain(0.0, 0.3, step=0.1)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"x": {"low": 3, "high": 2}}, "space.x=3..2: low=3 is above high=2; exchange them."),
        ({"x": {"low": 0, "high": 1, "log": True}}, "space.x=log:0..1: a log range must begin"),
        ({"x": {"low": -1.0, "high": 1, "log": True}}, "space.x=log:-1.0..1.0: a log range must"),
        ({"x": {"choices": []}}, "space.x.choices=[]: no choices; name at least one."),
        (
            {"x": {"low": 0.0, "high": 1.0, "likely": 2}},
            "space.x.likely=2: must be numbers 0.0..1.0 (space.x).",
        ),
        ({"x": {"choices": [1, 2, 1]}}, "space.x.choices=[1, 2, 1]: 1 is repeated"),
        ({"x": {"choices": [1, True]}}, "True is repeated"),
        ({"x": {"choices": "ab"}}, "space.x.choices=ab: must be a list"),
        ({"x": {"choices": [[1], [2]]}}, "a value is a number, a text, true, false or null"),
        ({"x": "http://ann:s3cret@h"}, "space.x=http://ann:***@h: carries a credential"),
        ({"x": {"choices": ["http://h?key=s3cret"]}}, "space.x.choices=http://h?key=***: carries"),
        ({"x": {"choices": [1], "low": 1}}, "choices and a range exclude each other"),
        ({"x": {"low": 1}}, "space.x: high missing"),
        ({"x": {}}, "space.x: high and low missing"),
        ({"x": {"low": 1, "hihg": 2}}, "space.x: unknown key 'hihg'"),
        ({"x": {"low": "1e-4", "high": 1}}, "space.x.low=1e-4: must be a number."),
        ({"x": {"low": True, "high": 1}}, "space.x.low=True: must be a number."),
        ({"x": {"low": 0.0, "high": float("inf")}}, "space.x.high=inf: must be finite."),
        ({"x": {"low": -1.7e308, "high": 1.7e308}}, "too wide for a float64"),
        ({"x": {"low": 0, "high": 2**60}}, "whole numbers of a range go up to 2**53"),
        ({"x": {"choices": [2**63, 1]}}, "whole numbers have 64 bits; write it as a text"),
        ({"x": {"low": 1, "high": 9, "step": 0}}, "space.x=1..9/0: step=0 must be greater than 0."),
        ({"x": {"low": 0.1, "high": 1, "step": 0.1, "log": True}}, "log and step exclude"),
        ({"x": {"low": 1, "high": 2, "log": "yes"}}, "space.x.log=yes: must be true or false."),
        ({"x": [1, 2]}, "space.x=[1, 2]: a value is"),
        ({"1\nx": 1}, "the name of a param is a text of 1 to 250 printable characters"),
        ({"x": {"low": 1, "high": 2, "when": {"y": 1}}}, "space.x.when.y: no such param"),
        ({"x": {"low": 1, "high": 2, "when": "y"}}, "space.x.when=y: names a param and its value"),
        ({"x": {"low": 1, "high": 2, "when": {"y": []}}, "y": 1}, "space.x.when.y=[]: no value"),
        (
            {"x": {"low": 1, "high": 2, "when": {"y": "b"}}, "y": {"choices": ["a"]}},
            "space.x.when.y=b: can never hold; space.y is one of a.",
        ),
        (
            {
                "x": {"choices": [1], "when": {"y": 1}},
                "y": {"choices": [1], "when": {"x": 1}},
            },
            "space: the conditions of x, y wait for each other",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_key_value_and_remedy(
    entries: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_space(entries)
    assert message in str(raised.value)


def test_a_param_stands_after_those_it_depends_on_and_else_where_it_was_written() -> None:
    space = parse_space(
        {
            "c": {"choices": [1, 2], "when": {"b": 1}},
            "z": 1,
            "b": {"choices": [1, 2], "when": {"a": True}},
            "a": {"choices": [True, False]},
        }
    )
    assert space.names == ("z", "a", "b", "c")


def test_conditions_chain_and_a_list_of_values_means_any_of_them() -> None:
    space = parse_space(
        {
            "a": {"choices": ["x", "y", "z"]},
            "b": {"choices": [1], "when": {"a": ["x", "y"]}},
            "c": {"choices": [2], "when": {"b": 1}},
        }
    )

    def names(a: str) -> list[str]:
        values: dict[str, ParamValue] = {"a": a, "b": 1, "c": 2}
        return list(space.fill(lambda param: values[param.name]))

    assert names("x") == names("y") == ["a", "b", "c"]
    assert names("z") == ["a"]


def test_a_condition_on_a_fixed_value_or_true_is_not_met_by_one() -> None:
    space = parse_space(
        {"a": 1, "b": {"choices": [5], "when": {"a": 1}}, "t": {"choices": [True, 0]}}
    )
    assert space.fill(lambda p: 5 if p.name == "b" else True) == {"a": 1, "b": 5, "t": True}
    with pytest.raises(ConfigError, match="can never hold"):
        parse_space({"a": 1, "b": {"choices": [5], "when": {"a": True}}})


def test_the_plain_form_goes_through_json_and_means_the_same() -> None:
    space = parse_space(ENTRIES)
    assert parse_space(json.loads(json.dumps(space.plain()))) == space


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"width": 3}, "study.enqueue[0].width: no such param in the space (depth, lr,"),
        ({"depth": 9}, "study.enqueue[0].depth=9: must be whole numbers 2..8"),
        ({"depth": 3.5}, "study.enqueue[0].depth=3.5: must be whole numbers"),
        ({"depth": True}, "study.enqueue[0].depth=True"),
        ({"lr": 1.0}, "must be numbers log:0.0001..0.1 (space.lr)."),
        ({"optimizer": "adamw"}, "must be one of sgd, adam (space.optimizer)."),
        ({"dropout": 0.2}, "must be fixed to 0.1"),
        ({"momentum": 0.5}, "momentum is only there when optimizer is sgd; name that too"),
        ({"momentum": 0.5, "optimizer": "adam"}, "momentum is only there when optimizer is sgd"),
    ],
)
def test_enqueued_params_outside_the_space_are_refused(params: Params, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_space(ENTRIES).check(params, "study.enqueue[0]")
    assert message in str(raised.value)


def test_enqueued_params_may_be_some_or_all() -> None:
    space = parse_space(ENTRIES)
    space.check({})
    space.check({"lr": 0.01})
    space.check({"depth": 2, "lr": 0.1, "optimizer": "sgd", "momentum": 0, "dropout": 0.1})


def test_values_off_the_steps_are_outside() -> None:
    stepped = RangeDomain(0.0, 1.0, step=0.1)
    assert stepped.contains(0.3)
    assert not stepped.contains(0.35)
    assert ChoiceDomain(("a",)).contains("a")


@pytest.mark.parametrize(
    ("entry", "values"),
    [
        (3, (3, 3, 3)),
        ({"choices": ["a", "b", "c"]}, ("a", "b", "c")),
        ({"low": 1, "high": 4}, (1, 2, 4)),
        ({"low": 1e-4, "high": 1e-2, "log": True}, (1e-4, 1e-3, 1e-2)),
        ({"low": 8, "high": 512, "log": True}, (8, 64, 512)),
        ({"low": 0.0, "high": 0.9, "step": 0.3}, (0.0, 0.6, 0.9)),
        ({"low": 0, "high": 10, "step": 5}, (0, 5, 10)),
    ],
)
def test_a_value_can_be_had_by_where_it_lies(entry: object, values: tuple[object, ...]) -> None:
    found = parse_space({"x": entry})["x"].domain
    assert tuple(found.at(share) for share in (0.0, 0.5, 1.0)) == values
    assert all(found.contains(found.at(k / 10)) for k in range(11))
