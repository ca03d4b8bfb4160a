"""When a sweep asks for no more trials, since they are not worth their cost."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable

import pytest

from automl.running.loop.asking import MIN_TRIALS_FOR_GAIN, expected_gain
from automl.running.loop.messages import PeerSweepsObserved
from automl.trial import FinishedOutcome, PausedOutcome
from tests.running.loop.test_others import make_loop
from tests.running.loop.test_promotions import PromotingPorts, end

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
    expected, came = [], []
    for seed in range(300):
        chance = random.Random(seed)
        keys = [draw(chance) for _ in range(80)]
        gain = expected_gain(keys[:40])
        assert gain is not None
        expected.append(gain)
        came.append(min(keys[:40]) - min(keys))
    assert statistics.fmean(came) <= statistics.fmean(expected) <= 8 * statistics.fmean(came)


def test_the_loop_asks_for_no_more_and_what_runs_or_is_promoted_goes_on() -> None:
    ports = PromotingPorts(0, 1, 2)
    loop = make_loop(ports, 3, PeerSweepsObserved())
    end(loop, PausedOutcome(0, 1.0, 0))
    loop.asking.gain = lambda: "enough"
    ports.promotable = [0]
    end(loop, FinishedOutcome(1, 1.0, 0.5))
    assert loop.snapshot().asking_ended == "enough"
    assert ports.started == [0, 1, 0]
    end(loop, FinishedOutcome(0, 2.0, 0.4))
    assert loop.done
    assert ports.to_ask == [2]
