"""Judging as pure values: where each pruner has its rungs, and who stops at them."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from automl.search.pruners.asha import PromotingHalving
from automl.search.pruners.halving import SuccessiveHalving
from automl.search.pruners.median import MedianPruner
from automl.search.pruners.none import NoPruner
from automl.search.pruners.pruner import Pruner
from automl.search.trial_standings import StudyStandings
from automl.trial import Direction, StudyMetrics, TrialState

HALVING = SuccessiveHalving(min_steps=2, factor=3, min_trials=4)
MEDIAN = MedianPruner(n_startup_trials=3, n_warmup_steps=2, interval_steps=2)


def standings(
    pruner: Pruner, n_trials: int, direction: Direction = Direction.minimize
) -> StudyStandings:
    table = StudyStandings(StudyMetrics.single(direction), pruner)
    for _ in range(n_trials):
        table.start({})
    return table


def reached(pruner: Pruner, steps: list[int]) -> list[list[int]]:
    return [list(pruner.rungs(last, step)) for last, step in itertools.pairwise([-1, *steps])]


def test_halving_has_rungs_at_powers_of_the_factor_counted_in_reported_steps() -> None:
    rungs = reached(HALVING, list(range(18)))
    assert [step for step, at in enumerate(rungs) if at] == [1, 5, 17]
    assert list(itertools.chain(*rungs)) == [1, 5, 17]


@pytest.mark.parametrize(
    ("n_steps", "factor", "min_steps", "rungs"),
    [
        (20, 3, 2, [3, 7]),
        (20, 3, 4, [7]),
        (20, 3, 1, [1, 3, 7]),
        (27, 3, 2, [3, 9]),
        (28, 3, 2, [2, 4, 10]),
        (16, 2, 1, [1, 2, 4, 8]),
        (3, 3, 2, []),
        (1, 3, 1, []),
    ],
)
def test_halving_has_its_rungs_below_the_last_step_where_that_is_known(
    n_steps: int, factor: int, min_steps: int, rungs: list[int]
) -> None:
    pruner = SuccessiveHalving(min_steps=min_steps, factor=factor, max_steps=n_steps)
    by_step = reached(pruner, list(range(n_steps + 5)))
    assert [step + 1 for step, at in enumerate(by_step) if at] == rungs
    assert list(itertools.chain(*by_step)) == [n - 1 for n in rungs]
    assert reached(pruner, [n_steps]) == [[n - 1 for n in rungs]], "passed at once: each once"


def test_a_sparse_report_reaches_the_rungs_that_it_passes_once() -> None:
    assert reached(HALVING, [10, 11, 30]) == [[1, 5], [], [17]]
    assert reached(MEDIAN, [1, 2, 3, 9, 9]) == [[], [2], [], [8], []]


def test_halving_keeps_one_in_factor_and_at_least_the_best() -> None:
    pruner = HALVING
    keys = [float(i) for i in range(9)]
    assert [pruner.prunes(key, key, keys) for key in keys] == [False] * 3 + [True] * 6
    assert [pruner.prunes(key, key, keys[:4]) for key in keys[:4]] == [False] + [True] * 3
    assert not any(pruner.prunes(key, key, keys[:3]) for key in keys[:3]), "too few to judge"


def test_the_median_rule_stops_those_whose_best_is_worse_than_the_median() -> None:
    pruner = MEDIAN
    keys = [0.0, 1.0, 2.0, 3.0]
    assert [pruner.prunes(key, key, keys) for key in keys] == [False, False, True, True]
    assert not pruner.prunes(3.0, 1.0, keys), "it was better before"
    assert not pruner.prunes(2.0, 2.0, [0.0, 2.0]), "too few to judge"


def test_no_pruner_stops_nobody() -> None:
    pruner = NoPruner()
    assert reached(pruner, [0, 100]) == [[], []]
    assert not pruner.prunes(math.inf, math.inf, [0.0, math.inf])


def test_values_are_turned_round_when_they_are_maximised() -> None:
    table = standings(HALVING, 4, Direction.maximize)
    for number in range(4):
        table.record(number, 1, float(number))
    assert [table.judge(number) for number in range(4)] == [True, True, True, False]


def test_a_trial_is_judged_once_per_rung_and_against_trials_that_run_on() -> None:
    table = standings(HALVING, 5)
    for number in range(4):
        table.record(number, 1, 1.0 + number)
        assert table.judge(number) is (number == 3), "the first three had too few beside them"
    table.record(4, 1, 0.5)
    assert not table.judge(4)
    assert not table.judge(1), "its rung is behind it, better trials or not"


def test_a_verdict_is_repeated_until_the_trial_ends() -> None:
    table = standings(HALVING, 4)
    for number in range(4):
        table.record(number, 1, float(number))
    assert table.judge(3)
    assert table.judge(3)
    table.record(3, 2, -1.0)
    assert table.judge(3)


def test_a_trial_that_was_killed_at_a_rung_is_judged_there_again() -> None:
    table = standings(HALVING, 4)
    for number in range(3):
        table.replay(number, [(1, float(number))])
    table.replay(3, [(0, 9.0), (1, 9.0)])
    assert not table.record(3, 1, 0.0), "seen before: the first value stays"
    assert table.judge(3)


def test_a_trial_that_had_passed_a_rung_is_not_judged_there_again() -> None:
    table = standings(HALVING, 4)
    for number in range(3):
        table.replay(number, [(1, float(number))])
    table.replay(3, [(1, 9.0), (2, 9.0)])
    table.record(3, 3, 9.0)
    assert not table.judge(3)


def test_a_trial_that_goes_on_with_other_rungs_is_judged_at_those_ahead() -> None:
    """A study that was begun when rungs were counted from below: at 2, 6 and 18 steps."""
    table = standings(replace(HALVING, max_steps=20), 4)
    for number in range(3):
        table.replay(number, [(step, float(number)) for step in range(20)])
    table.replay(3, [(step, 9.0) for step in range(4)])
    for step in (4, 5):
        table.record(3, step, 9.0)
        assert not table.judge(3)
    table.record(3, 6, 9.0)
    assert table.judge(3)


ASHA = PromotingHalving(min_steps=1, factor=2, max_steps=8)
"""Rungs after 1, 2 and 4 steps."""


def pause_at(table: StudyStandings, number: int, step: int, value: float) -> bool:
    """Report a step; a trial that is told to stop is paused. Return whether it is."""
    table.record(number, step, value)
    if paused := table.judge(number):
        table.pause(number)
    return paused


def promote(table: StudyStandings, *, grows: bool = True) -> int | None:
    number = table.promotable(grows=grows)
    if number is not None:
        table.promote(number)
    return number


def test_asha_promotes_the_best_half_of_a_rung_once_each() -> None:
    table = standings(ASHA, 4)
    assert pause_at(table, 0, 0, 3.0), "one alone is in no best half"
    assert promote(table) is None
    assert pause_at(table, 1, 0, 4.0), "the second is worse"
    assert promote(table) == 0
    assert promote(table) is None
    assert not pause_at(table, 2, 0, 1.0), "better than all before: it goes on at once"
    assert pause_at(table, 3, 0, 2.0) is False, "of four, two go on"
    assert promote(table) is None, "trial 0 has gone on, and 1 is the worst"
    assert table.counts()[TrialState.PAUSED] == 1


def test_asha_promotes_from_the_highest_rung_first() -> None:
    table = standings(ASHA, 6)
    at_first = [pause_at(table, n, 0, value) for n, value in enumerate([5, 4, 6, 7, 4.5])]
    assert at_first == [True, False, True, True, False]
    assert pause_at(table, 1, 1, 4.0)
    assert pause_at(table, 4, 1, 4.5)
    assert pause_at(table, 5, 0, 8.0)
    assert [promote(table) for _ in range(3)] == [1, 0, None]
    assert table.paused() == {2: (0, 6.0), 3: (0, 7.0), 4: (1, 4.5), 5: (0, 8.0)}


def test_the_best_of_the_highest_rung_goes_on_when_no_more_can_come() -> None:
    table = standings(ASHA, 2)
    assert pause_at(table, 0, 0, 3.0)
    assert promote(table, grows=False) is None, "trial 1 runs, and may be better"
    table.end(1, TrialState.FAILED, None)
    assert promote(table) is None
    assert promote(table, grows=False) == 0


def test_a_trial_is_paused_again_at_its_next_rung() -> None:
    table = standings(ASHA, 3)
    assert pause_at(table, 0, 0, 1.0)
    assert pause_at(table, 1, 0, 2.0)
    assert promote(table) == 0
    assert pause_at(table, 0, 1, 1.0), "it is the first there"
    table.end(2, TrialState.FAILED, None)
    assert promote(table, grows=False) == 0
    table.end(0, TrialState.FINISHED, 1.0)
    assert promote(table, grows=False) is None, "the best of both rungs is through"
