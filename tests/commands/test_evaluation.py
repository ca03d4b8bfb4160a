"""What is said of an evaluation, and of which trials there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from automl.commands.evaluate import (
    PartLosses,
    compare_parts,
    evaluation_table,
    part_ranking_table,
    parts_sentence,
    repeated_table,
)
from automl.config.command_arguments import EvaluateArguments
from automl.config.which_models import WINNER, which_trials
from automl.errors import ConfigError
from automl.record.study_record import record_from_events
from automl.trial import (
    Event,
    FailedOutcome,
    FinishedOutcome,
    MetricsReported,
    ModelsEvaluated,
    PrunedOutcome,
    RowsKind,
    ScoreDifference,
    ScoreInterval,
    SweepStarted,
    TrialStarted,
)

EVENT = ModelsEvaluated(
    0.0,
    RowsKind.KEPT,
    9,
    "a",
    trials=(7, 3),
    scores={
        "trial-00007": {
            "rmse": ScoreInterval(1234.567, 1200, 1300),
            "r2": ScoreInterval(0.0123, -0.1, 0.2),
        },
        "trial-00003": {
            "rmse": ScoreInterval(1300, 1250, 1350),
            "r2": ScoreInterval(0.01, -0.2, 0.1),
        },
    },
    differences={
        "trial-00003": {
            "rmse": ScoreDifference(65.433, 10, 90, "worse"),
            "r2": ScoreDifference(-0.0023, -0.01, 0.001, "may be chance"),
        }
    },
)


def test_trainings_with_fresh_seeds_are_told_by_mean_and_standard_error() -> None:
    scores = {"rmse": (1200.0, 1300.0), "r2": (0.01, 0.01)}
    event = replace(EVENT, repeated_trial=7, repeated_scores=scores)
    assert repeated_table(event) == [
        ("rmse", "1250.0 ± 50", "1200.0 to 1300.0", "1234.6"),
        ("r2", "0.01000 ± 0", "0.01000 to 0.01000", "0.01230"),
    ]


def test_one_fresh_training_has_no_spread() -> None:
    with pytest.raises(ConfigError, match=r"seeds=1: must be 0 or at least 2: a spread"):
        EvaluateArguments(seeds=1)


def test_figures_of_a_metric_have_the_decimals_of_its_score() -> None:
    assert evaluation_table(EVENT) == [
        ("rmse", "trial 7", "1234.6", "1200.0 to 1300.0", "", ""),
        ("", "trial 3", "1300.0", "1250.0 to 1350.0", "65.4 (10.0 to 90.0)", "worse"),
        ("r2", "trial 7", "0.01230", "-0.10000 to 0.20000", "", ""),
        (
            *("", "trial 3", "0.01000", "-0.20000 to 0.10000"),
            *("-0.00230 (-0.01000 to 0.00100)", "may be chance"),
        ),
    ]


@pytest.mark.parametrize(
    ("losses", "sentence"),
    [
        ([(1, 2, 3), (1, 2, 3), (1, 2, 3)], "their order is the same from 10 rows on"),
        ([(3, 2, 1), (1, 2, 3), (1, 2, 3)], "their order is the same from 20 rows on"),
        ([(1, 2, 3), (1, 3, 2), (1, 2, 3)], "trial 5 is the best on a half and on all"),
        ([(1, 2, 3), (2, 1, 3), (1, 2, 3)], "on 20 rows another trial is the best than on 40"),
    ],
)
def test_what_parts_say_of_the_whole(losses: list[tuple[float, ...]], sentence: str) -> None:
    found = PartLosses((5, 6, 7), (10, 20, 40), tuple(losses))
    assert parts_sentence(found).startswith(sentence)
    assert part_ranking_table(found)[1][2] == ["40 rows", *(f"{loss:.4f}" for loss in losses[2])]


def events() -> list[Event]:
    """0 and 1 finished, 2 was pruned with the best value, 3 failed, 4 runs."""
    found: list[Event] = [SweepStarted(0.0, "s", "u", {"study.metric": "val_loss"})]
    for number, loss in enumerate((0.5, 0.3, 0.2, 0.6, 0.1)):
        found.append(TrialStarted(number, 1.0, {}, "cpu"))
        found.append(MetricsReported(number, 2.0, 0, {"val_loss": loss}))
    ends = (
        FinishedOutcome(0, 3.0, 0.5),
        FinishedOutcome(1, 3.0, 0.3),
        PrunedOutcome(2, 3.0, 0, 0.2),
        FailedOutcome(3, 3.0, "x"),
    )
    return [*found, *ends]


def test_pruned_trials_are_not_compared_by_the_rows_they_had() -> None:
    record = record_from_events(events())
    assert [trial.number for trial in compare_parts(WINNER, record)] == [1, 0]
    assert [trial.number for trial in compare_parts(which_trials(2, 0), record)] == [0]
