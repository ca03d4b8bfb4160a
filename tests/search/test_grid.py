"""The grid: every combination once, in an order of its own, and what has none."""

from __future__ import annotations

from typing import Any

import pytest

from automl.errors import ConfigError
from automl.search.samplers.grid import GridSampler, axis_values, grid_points
from automl.search.search_space import parse_space
from automl.trial import Params, ParamValue
from tests.search.conftest import Studies, ask, finish

ENTRIES: dict[str, Any] = {
    "depth": {"low": 2, "high": 4},
    "lr": {"low": 0.1, "high": 0.3, "step": 0.1},
    "optimizer": {"choices": ["sgd", "adam"]},
    "momentum": {"choices": [0.0, 0.9], "when": {"optimizer": "sgd"}},
    "dropout": 0.1,
}
N_COMBINATIONS = 3 * 3 * (2 + 1)


def key(params: Params) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(params.items()))


def test_every_combination_is_there_once_with_conditions_kept() -> None:
    combinations = grid_points(parse_space(ENTRIES), seed=0)
    assert len(combinations) == len({key(params) for params in combinations}) == N_COMBINATIONS
    for params in combinations:
        assert ("momentum" in params) == (params["optimizer"] == "sgd")
        assert params["dropout"] == 0.1


def test_the_seed_decides_the_order_and_nothing_else() -> None:
    space = parse_space(ENTRIES)
    one, same, other = (
        grid_points(space, seed=1),
        grid_points(space, seed=1),
        grid_points(space, seed=2),
    )
    assert one == same
    assert one != other
    assert sorted(map(key, one)) == sorted(map(key, other))


def test_steps_are_exact_to_their_end() -> None:
    def values(entry: dict[str, Any]) -> tuple[object, ...]:
        return axis_values(parse_space({"x": entry})["x"])

    assert values({"low": 0.0, "high": 0.3, "step": 0.1}) == (0.0, 0.1, 0.2, 0.3)
    assert values({"low": 2, "high": 8, "step": 3}) == (2, 5, 8)
    assert values({"low": 2, "high": 4}) == (2, 3, 4)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"low": 0.1, "high": 0.2}, "space.x=0.1..0.2: sampler=grid needs a step (0.1..0.2/STEP)"),
        ({"low": 1, "high": 8, "log": True}, "space.x=log:1..8: sampler=grid needs a step"),
        ({"low": 0, "high": 10**9}, "space.x: 1000000001 values are too many for sampler=grid"),
    ],
)
def test_a_range_without_a_usable_step_is_refused(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        grid_points(parse_space({"x": entry}), seed=0)
    assert message in str(raised.value)


def test_a_grid_that_no_sweep_would_finish_is_refused() -> None:
    wide = {"low": 1, "high": 1000}
    with pytest.raises(ConfigError, match="more than 100000 combinations"):
        grid_points(parse_space({"x": wide, "y": wide}), seed=0)


def test_a_study_asks_each_combination_once_over_its_restarts_and_is_then_exhausted(
    studies: Studies,
) -> None:
    study = studies.open(entries=ENTRIES, sampler=GridSampler())
    asked = []
    while (trial := study.ask()) is not None:
        asked.append(key(trial.params))
        finish(study, trial.number)
        if trial.number % 10 == 5:
            study = studies.reopen(study, entries=ENTRIES, sampler=GridSampler())
    assert len(asked) == len(set(asked)) == N_COMBINATIONS
    assert study.ask() is None
    assert study.n_asked == N_COMBINATIONS


def test_an_enqueued_combination_is_not_tried_again(studies: Studies) -> None:
    first: dict[str, ParamValue] = {"depth": 3, "lr": 0.2, "optimizer": "adam"}
    study = studies.open(
        entries=ENTRIES, sampler=GridSampler(), enqueue=[first, {"optimizer": "sgd"}]
    )
    asked = [key(ask(study).params) for _ in range(N_COMBINATIONS)]
    assert asked[0] == key(first | {"dropout": 0.1})
    assert len(set(asked)) == N_COMBINATIONS
    assert study.ask() is None


def test_a_space_without_a_grid_is_refused_before_the_study_exists(studies: Studies) -> None:
    with pytest.raises(ConfigError, match="sampler=grid needs a step"):
        studies.open(sampler=GridSampler())
    assert studies.open().n_asked == 0, "and its folder is not taken"
