"""Which trials of a large table are trained again on more rows, and when."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from automl.running.trials.row_promotion import (
    RowPromotion,
    TrialTime,
    choose_promotion,
    is_time_for_more_rows,
    promotion_request,
)
from automl.search.trial_standings import RankedTrial
from automl.trial import Params, TrialState

PART: Params = {"family": "boosting", "rows": 50_000}


def ranked(*values: float, params: Params = PART) -> list[RankedTrial]:
    """Return trials with these values, the best first."""
    trials = [
        RankedTrial(number, value, params, TrialState.FINISHED)
        for number, value in enumerate(values)
    ]
    return sorted(trials, key=lambda trial: trial.value)


@pytest.mark.parametrize(
    ("end", "now", "n_asked", "expected"),
    [
        (110.0, 30.0, 8, False),
        (110.0, 60.0, 8, True),
        (None, 1e6, 17, False),
        (None, 0.0, 18, True),
    ],
)
def test_the_last_part_of_the_time_or_of_the_trials_is_for_more_rows(
    end: float | None, now: float, n_asked: int, expected: bool
) -> None:
    time = TrialTime(began_seconds=10.0, now_seconds=now, end_seconds=end)
    assert is_time_for_more_rows(time, n_asked, n_trials=20) is expected


def chosen(
    trials: list[RankedTrial],
    leader: int,
    left_seconds: float | None = None,
    promoted: Collection[str] = (),
) -> RowPromotion | None:
    """Return the choice among trials that took five seconds each, of a table of 900,000 rows."""
    seconds = {trial.number: 5.0 for trial in trials}
    return choose_promotion(
        trials,
        seconds,
        leader=leader,
        promoted=promoted,
        n_all=900_000,
        left_seconds=left_seconds,
    )


def test_the_best_that_was_not_trained_again_gets_the_rows_that_the_time_allows() -> None:
    trials = ranked(0.3, 0.1, 0.2)
    first = chosen(trials, 1, left_seconds=50.0)
    assert first == RowPromotion(1, 500_000)
    second = chosen(trials, 1, left_seconds=500.0, promoted={promotion_request(first.trial)})
    assert second == RowPromotion(2, 900_000)
    assert chosen(trials, 1) == RowPromotion(1, 900_000), "without a limit there is time for all"


def test_a_quick_trial_that_is_nearly_the_best_gets_more_rows_in_the_same_time() -> None:
    seconds = {0: 20.0, 1: 5.0, 2: 10.0, 3: 1.0}
    trials = ranked(0.1, 0.2, 0.3, 0.4)
    found = choose_promotion(
        trials, seconds, leader=0, promoted=(), n_all=900_000, left_seconds=40.0
    )
    assert found == RowPromotion(1, 400_000), "trial 3 is not among the best"


def test_no_trial_is_trained_again_on_few_more_rows() -> None:
    assert chosen(ranked(0.3), 0, left_seconds=7.0) is None
    assert chosen(ranked(0.3, params={**PART, "rows": 900_000}), 0) is None
    assert chosen(ranked(0.3, params={"family": "mlp"}), 0) is None


def test_the_first_trials_wait_for_a_leader_that_runs() -> None:
    assert chosen(ranked(0.3, 0.2), 7) is None
    assert chosen(ranked(0.3, 0.2, 0.4), 7) == RowPromotion(1, 900_000)
