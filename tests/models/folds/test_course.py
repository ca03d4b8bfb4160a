"""Computes a trial's metrics from its folds, each at the length that the others choose."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from automl.config import Task
from automl.data.scoring.metrics import Floats
from automl.in_trial.goal import Patience, StudyGoal
from automl.models.judged_rows import JudgedTargets
from automl.models.networks.folds.fold_course import (
    FoldedTrial,
    FoldMetrics,
    FoldsProgress,
    pool_metrics,
)
from automl.trial import Direction

LEAST = StudyGoal("val_loss", Direction.minimize, value_at_end=True)


def trial(progress: FoldsProgress, kept: Sequence[object]) -> FoldedTrial:
    return FoldedTrial(progress, Patience(progress.goal, None), kept)


def course(
    *n_rows: int, repeats: tuple[int, ...] | None = None, goal: StudyGoal = LEAST
) -> FoldsProgress:
    return FoldsProgress(goal, n_rows, repeats or (0,) * len(n_rows), (None,) * len(n_rows))


def run(start: FoldsProgress, *epochs: tuple[float, ...]) -> FoldsProgress:
    for step, losses in enumerate(epochs):
        start = start.after(step, [{"val_loss": loss} for loss in losses])[0]
    return start


def steps(found: FoldsProgress) -> list[int | None]:
    return [None if choice is None else choice.step for choice in found.choices]


def test_metrics_are_those_of_all_rows() -> None:
    some: list[FoldMetrics] = [
        {"val_loss": 1.0, "val_rmse": 3.0},
        {"val_loss": 4.0, "val_rmse": 4.0},
    ]
    assert pool_metrics(some, [1, 3]) == pytest.approx(
        {"val_loss": 3.25, "val_rmse": math.sqrt(14.25)}
    )


def test_each_fold_is_taken_where_the_others_are_best() -> None:
    found = run(course(1, 1, 1), (5, 5, 9), (1, 4, 4), (4, 1, 4), (4, 4, 1))
    # Others of the first: 14, 8, 5, 5; of the second: 14, 5, 8, 5; of the third: 10, 5, 5, 8.
    assert steps(found) == [2, 1, 1]
    assert found.out_of_fold == {"val_loss": (4 + 4 + 4) / 3}


def test_by_its_own_rows_a_fold_would_look_better() -> None:
    epochs = [(1.0, 9.0), (9.0, 1.0)]
    found = run(course(1, 1), *epochs).out_of_fold
    assert found == {"val_loss": 9.0}


def test_others_count_by_their_rows() -> None:
    found = run(course(1, 1, 9), (0, 2, 2), (0, 9, 1))
    assert steps(found)[0] == 1, "one row that is worse does not outweigh nine"


def test_only_the_same_division_of_the_rows_chooses() -> None:
    found = run(course(1, 1, 1, 1, repeats=(0, 0, 1, 1)), (5, 5, 5, 5), (5, 5, 1, 1), (1, 1, 9, 9))
    assert steps(found) == [2, 2, 1, 1]


def test_of_a_metric_to_maximize_the_most_is_taken() -> None:
    found = run(course(1, 1, goal=StudyGoal("val_loss", Direction.maximize)), (1, 5), (5, 1))
    assert steps(found) == [0, 1]


def test_what_is_not_finite_is_not_taken() -> None:
    found = run(course(1, 1), (math.nan, 1.0))
    assert steps(found) == [None, None]
    assert found.out_of_fold is None
    assert trial(found, [None, None]).final_report(lambda members: {}) is None
    assert steps(run(found, (2.0, 2.0))) == [0, 0]


def test_it_goes_on_from_its_state() -> None:
    epochs = [(5, 5, 9), (1, 4, 4), (4, 1, 4)]
    found = run(course(1, 1, 1), *epochs)
    assert course(1, 1, 1).restored(found.state()) == found


def test_what_is_told_is_of_the_models_taken() -> None:
    ended = trial(run(course(1, 1), (1, 1), (2, 0)), ["a", "b"])
    found = ended.final_report(lambda members: {"is": members})
    assert found is not None
    assert (found.step, found.metrics, found.state) == (1, {"val_loss": 1.5}, {"is": ["a", "b"]})


AUC = StudyGoal("val_auc", Direction.maximize, value_at_end=True)
Y = np.array([0, 0, 1, 1])


def ranked(repeats: tuple[int, ...]) -> FoldsProgress:
    judged = JudgedTargets(Task.classification, Y, 0.0, 1.0, "val_auc")
    n = len(repeats)
    return FoldsProgress(AUC, (4,) * n, repeats, (None,) * n, (judged,) * n)


def said(*second: float) -> Floats:
    """Outputs of which the second class's score is this."""
    return np.column_stack([np.zeros(len(second)), second])


def test_a_metric_of_ranks_is_of_the_rows_of_all_folds() -> None:
    """Each fold puts its own rows in order; together they are not in order."""
    low, high = said(0, 1, 2, 3), said(10, 11, 12, 13)
    losses = [{"val_loss": 1.0}] * 2
    assert ranked((0, 0)).pooled(losses, [low, high]) == {"val_loss": 1.0, "val_auc": 0.75}
    assert ranked((0, 1)).pooled(losses, [low, high])["val_auc"] == 1, "divisions are apart"


def test_a_length_is_chosen_by_what_the_others_say() -> None:
    good, bad = said(0, 1, 2, 3), said(3, 2, 1, 0)
    losses = [{"val_loss": 1.0}] * 2
    found = ranked((0, 0)).after(0, losses, [good, bad])[0].after(1, losses, [bad, good])[0]
    assert steps(found) == [1, 0], "each where the other is good"
    found = found.with_outputs(0, bad).with_outputs(1, bad)
    told = found.out_of_fold
    assert told is not None
    assert (told["val_auc"], told["val_loss"], told["val_accuracy"]) == (0, 1, 0.25)
    again = ranked((0, 0)).restored(found.state()).out_of_fold
    assert again == told


def test_a_fold_of_one_class_is_judged_with_the_others() -> None:
    own = [{"val_loss": 1.0, "val_auc": math.nan}] * 2
    found, now = ranked((0, 0)).after(0, own, [said(0, 1, 2, 3)] * 2)
    assert now == [0, 1]
    assert steps(found) == [0, 0]
