"""What every pruner keeps to; one that is added is looked at here without a line."""

from __future__ import annotations

import copy
import itertools
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automl.search.pruners import pruners
from automl.search.pruners.asha import PromotingHalving
from automl.search.pruners.halving import SuccessiveHalving
from automl.search.pruners.median import MedianPruner
from automl.search.pruners.pruner import Pruner
from automl.search.trial_standings import StudyStandings
from automl.trial import Direction, StudyMetrics

EAGER: dict[str, Pruner] = {
    "halving": SuccessiveHalving(min_steps=2, factor=3, min_trials=4),
    "asha": PromotingHalving(min_steps=2, factor=2),
    "median": MedianPruner(n_startup_trials=3, n_warmup_steps=2, interval_steps=2),
}
"""Options with arguments that let few trials and steps be judged."""
PRUNERS: dict[str, Pruner] = {
    **{name: option() for name, option in pruners().items()},
    **{f"{name}-eager": pruner for name, pruner in EAGER.items()},
    "halving-20-steps": SuccessiveHalving(min_trials=2).for_length(20),
}
STEP = 5
VALUES = st.sampled_from([-math.inf, 0.0, 1.0, 2.0, math.inf, math.nan]) | st.floats()
every_pruner = pytest.mark.parametrize("pruner", PRUNERS.values(), ids=PRUNERS)


def judge_together(pruner: Pruner, values: dict[int, float]) -> set[int]:
    """The trials pruned when all report one step together, in the order of `values`."""
    table = StudyStandings(StudyMetrics.single(Direction.minimize), pruner)
    for _ in values:
        table.start({})
    for number, value in values.items():
        table.record(number, STEP, value)
    return {number for number in values if table.judge(number)}


def test_all_have_a_name_and_one_is_none() -> None:
    assert {"none", "halving", "asha", "median"} <= set(pruners())
    assert all(issubclass(option, Pruner) for option in pruners().values())


def test_those_that_stop_trials_do_so_here() -> None:
    """Else the contract would be kept by doing nothing."""
    values = {number: float(number) for number in range(9)}
    stopping = {name for name, pruner in PRUNERS.items() if judge_together(pruner, values)}
    assert stopping >= {f"{name}-eager" for name in pruners() if name != "none"}


@every_pruner
@given(steps=st.lists(st.integers(0, 200), max_size=8).map(sorted))
def test_rungs_are_new_in_order_and_each_reached_once(pruner: Pruner, steps: list[int]) -> None:
    pairs = list(itertools.pairwise([-1, *steps]))
    by_report = [list(pruner.rungs(last, step)) for last, step in pairs]
    rungs = list(itertools.chain(*by_report))
    assert rungs == sorted(set(rungs))
    assert all(0 <= rung <= step for at, step in zip(by_report, steps, strict=True) for rung in at)


@every_pruner
def test_rungs_travel_to_the_process_that_trains(pruner: Pruner) -> None:
    sent = pickle.loads(pickle.dumps(pruner.rungs))
    assert [sent(step - 1, step) for step in range(99)] == [
        pruner.rungs(step - 1, step) for step in range(99)
    ]


@every_pruner
@given(values=st.lists(VALUES, min_size=1, max_size=9), data=st.data())
def test_judging_leaves_nothing_behind_and_who_reports_first_is_nothing(
    pruner: Pruner, values: list[float], data: st.DataObject
) -> None:
    before = copy.deepcopy(pruner)
    pruned = judge_together(pruner, dict(enumerate(values)))
    permuted = {n: values[n] for n in data.draw(st.permutations(range(len(values))))}
    assert judge_together(pruner, permuted) == pruned
    assert pruner.pauses or len(pruned) < len(values), "never all for good"
    assert pruner == before


@every_pruner
@given(keys=st.lists(st.floats(allow_nan=False), min_size=1, max_size=9).map(sorted))
def test_a_verdict_follows_from_what_is_asked(pruner: Pruner, keys: list[float]) -> None:
    def verdicts() -> list[bool]:
        return [pruner.prunes(key, key, keys) for key in keys]

    before = list(keys)
    assert verdicts() == verdicts()
    assert keys == before
    assert verdicts() == sorted(verdicts()), "who is worse than one that stops, stops"


@every_pruner
@pytest.mark.parametrize("value", [1.0, math.nan, math.inf, -math.inf])
def test_equals_never_stop_each_other(pruner: Pruner, value: float) -> None:
    assert judge_together(pruner, dict.fromkeys(range(9), value)) == set()


@every_pruner
@pytest.mark.parametrize("worst", range(9))
def test_a_value_that_is_not_a_number_is_the_worst(pruner: Pruner, worst: int) -> None:
    numbers = {number: float(number) for number in range(9)}
    pruned = judge_together(pruner, numbers | {worst: math.nan})
    assert worst in pruned or not pruned


@every_pruner
@pytest.mark.parametrize("n_steps", [1, 3, 20, 1000])
def test_whom_a_known_length_helps_judges_before_the_end(pruner: Pruner, n_steps: int) -> None:
    known = pruner.for_length(n_steps)
    assert type(known) is type(pruner)
    if known != pruner:
        assert all(rung < n_steps - 1 for rung in known.rungs(-1, 10 * n_steps))
        assert known.for_length(n_steps + 1) == known, "it is not told twice"
