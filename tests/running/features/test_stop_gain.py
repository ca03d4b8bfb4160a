"""When a sweep asks for no more trials, since they are not worth their cost."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable

import pytest

from automl.search.gain_forecast import (
    MIN_TRIALS_FOR_GAIN,
    expected_gain,
    likely_gain_limit,
)

Draw = Callable[[random.Random], float]


def test_nothing_is_expected_of_few_trials() -> None:
    assert expected_gain([1.0] * (MIN_TRIALS_FOR_GAIN - 1)) is None
    assert expected_gain([1.0] * MIN_TRIALS_FOR_GAIN) == 0.0


def test_what_the_second_half_brought_counts_even_if_the_best_are_alike() -> None:
    keys = [5.0] * 10 + [1.0] * 10
    assert expected_gain(keys) == 4.0
    assert expected_gain(keys + [1.0] * 30) == 0.0


@pytest.mark.parametrize(
    "draw",
    [
        lambda chance: chance.gauss(0, 1),
        lambda chance: chance.random(),  # the values have a least one
        lambda chance: -chance.expovariate(1),
        lambda chance: chance.random() ** 2 + chance.random() ** 2,
    ],
    ids=["normal", "uniform", "exponential", "bowl"],
)
def test_of_random_trials_it_is_no_less_than_what_as_many_more_bring(draw: Draw) -> None:
    expected, came, n_below = [], [], 0
    for seed in range(300):
        chance = random.Random(seed)
        keys = [draw(chance) for _ in range(80)]
        gain = expected_gain(keys[:40])
        assert gain is not None
        expected.append(gain)
        came.append(min(keys[:40]) - min(keys))
        n_below += came[-1] <= likely_gain_limit(gain)
    assert n_below >= 0.87 * 300, "nine of ten, as the report says"
    assert statistics.fmean(came) <= statistics.fmean(expected) <= 8 * statistics.fmean(came)
