"""Tests which trials of a space are small, middle and large."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from automl.running.trials.step_timing import distinct_sizes
from automl.search.search_space import SearchSpace, parse_space
from automl.trial import Params


def area(params: Params) -> int:
    """Return a request that depends on width and depth alone."""
    width, depth = params["width"], params.get("depth", 1)
    assert isinstance(width, int)
    assert isinstance(depth, int)
    return width * depth


def space(**entries: object) -> SearchSpace:
    return parse_space(entries)


LR: Mapping[str, Any] = {"low": 1e-4, "high": 1e-2, "log": True}


def test_least_median_and_most_with_all_else_halfway() -> None:
    widths, depths = {"low": 8, "high": 128, "log": True}, {"low": 1, "high": 3}
    found = distinct_sizes(space(width=widths, depth=depths, lr=LR), area)
    small, middle, large = found
    assert [size.name for size in found] == ["small", "middle", "large"]
    assert (small.params["width"], small.params["depth"]) == (8, 1)
    assert (large.params["width"], large.params["depth"]) == (128, 3)
    assert 8 < area(middle.params) < 128 * 3
    assert small.params["lr"] == large.params["lr"] == 1e-3


def test_a_param_is_there_where_its_condition_holds() -> None:
    deep = {"low": 2, "high": 9, "when": {"width": [64]}}
    small, _, large = distinct_sizes(space(width={"choices": [8, 64]}, depth=deep), area)
    assert small.params == {"width": 8}
    assert large.params == {"width": 64, "depth": 9}


def test_trials_that_are_all_alike_are_one_size() -> None:
    (only,) = distinct_sizes(space(width=8, lr=LR), area)
    assert only.name == "all alike"
    assert only.params == {"width": 8, "lr": 1e-3}


def test_without_arithmetic_the_ends_of_the_params_stand_for_sizes() -> None:
    found = distinct_sizes(space(width={"choices": [8, 64, 16]}, lr=LR), lambda params: None)
    assert [size.name for size in found] == ["first", "halfway", "last"]
    assert [size.params["width"] for size in found] == [8, 64, 16]
    assert [size.params["lr"] for size in found] == [1e-4, 1e-3, 1e-2]
    assert len(distinct_sizes(space(x=1), lambda params: None)) == 1
