"""The ensemble while a sweep goes on: what is asked when, and what is shown."""

from __future__ import annotations

from automl.running.growing import PAUSE_SECONDS, SHARE, row_of, wait_seconds
from automl.running.view import FamilyRow
from automl.search.standings import RankedTrial
from automl.training.ensemble.words import Grown
from automl.trial import TrialState

RANKING = [
    RankedTrial(number, value, {"family": family}, TrialState.FINISHED)
    for number, value, family in (
        (4, 0.2, "boosting"),
        (0, 0.3, "mlp"),
        (2, 0.4, "boosting"),
        (1, 0.5, "linear"),
    )
]
GROWN = Grown({0: 0.5, 4: 0.3, 2: 0.2}, {"loss": 0.19, "error": 0.05}, 1.0)


def test_each_family_has_its_best_and_its_share_the_best_first() -> None:
    row = row_of(GROWN, RANKING, "val_error", "family")
    assert (row.metric, row.value, row.n_models) == ("error", 0.05, 3)
    assert row.families == (
        FamilyRow("boosting", 0.2, 0.5),
        FamilyRow("mlp", 0.3, 0.5),
        FamilyRow("linear", 0.5, 0.0),
    )


def test_one_that_is_not_among_the_best_any_more_has_no_family() -> None:
    row = row_of(GROWN, RANKING[:1], "train_loss", "family")
    assert row.metric == "loss"
    assert row.families == (FamilyRow("boosting", 0.2, 0.3),)


def test_what_takes_long_is_seldom_done() -> None:
    assert wait_seconds(0.0) == PAUSE_SECONDS
    assert wait_seconds(10.0) == 10.0 / SHARE
