"""The order of the portfolio: the quick families first where others take minutes."""

from __future__ import annotations

from automl.running.prepare.long_training import order_quick_families_first
from automl.trial import Params

POINTS: list[Params] = [
    *({"family": name, "n": 0} for name in ("linear", "boosting", "trees", "mlp")),
    *({"family": name, "n": 1} for name in ("boosting", "trees", "mlp")),
]


def names(seconds: dict[str, float | None]) -> list[str]:
    return [f"{p['family']}{p['n']}" for p in order_quick_families_first(POINTS, "family", seconds)]


def test_where_trials_are_short_it_stays_as_it_is() -> None:
    seconds = {"linear": None, "boosting": 60.0, "trees": 3.0, "mlp": 9.0}
    assert order_quick_families_first(POINTS, "family", seconds) == POINTS


def test_where_some_are_long_the_quick_ones_of_each_turn_go_first() -> None:
    seconds = {"linear": None, "boosting": 900.0, "trees": 70.0, "mlp": 200.0}
    first = ["linear0", "trees0", "mlp0", "boosting0"]
    assert names(seconds) == [*first, "trees1", "mlp1", "boosting1"]


def test_of_a_family_that_nobody_knows_nothing_is_held_against() -> None:
    assert names({"boosting": 900.0})[:4] == ["linear0", "trees0", "mlp0", "boosting0"]
