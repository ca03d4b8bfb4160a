"""Metrics of the judged rows: the same from every family, and only what is asked for each epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from automl.config import Precision, Task
from automl.config.metrics import METRICS_OF_TASK, metric_direction, reported_metric
from automl.data.dataset import Dataset, Targets
from automl.data.scoring.metrics import ClassPredictions, ValuePredictions
from automl.data.users_metric import UsersMetric
from automl.in_trial.goal import StudyGoal
from automl.models.judged_rows import JudgedTargets, class_weights
from automl.models.networks.trainer import TrainingProblem
from automl.trial import Direction
from tests.models.packs.test_trainer import alone, data, lanes, pack, problem

pytestmark = pytest.mark.usefixtures("one_thread")


def judging(task: str, metric: str, precision: Precision = Precision.float64) -> TrainingProblem:
    """The problem of the packs' tests, whose rows are judged by `metric`."""
    of = problem(precision, task)
    found = data(of).validation.y.numpy()
    y: Targets = found.astype(np.int64)
    if of.task is Task.regression:
        y = (found * of.target_scale + 1.5).astype(np.float64)
    judged = JudgedTargets(of.task, y, 1.5, of.target_scale, metric)
    weights = {"classes": (0.4, 0.8, 1.9), "binary": (0.5, 1.5), "regression": ()}[task]
    goal = StudyGoal(metric, metric_direction(metric))
    return replace(of, judged=judged, goal=goal, class_weights=weights)


@pytest.mark.parametrize(
    ("task", "metric"),
    [
        ("classes", "val_auc"),
        ("binary", "val_f1"),
        ("binary", "val_brier"),
        ("regression", "val_mae"),
    ],
)
def test_the_studys_metric_is_in_each_report_alone_and_in_a_pack(task: str, metric: str) -> None:
    of = judging(task, metric)
    together = pack(of)
    params = lanes("adam", 3)
    for number, each in enumerate(params):
        together.add(number, each, number, None)
    for epoch in range(2):
        ended = together.run_epoch()
        for number, each in enumerate(params):
            found = ended[number]
            assert isinstance(found, dict)
            assert set(found) == {*reported_each_epoch(of), metric}
            if epoch == 0:
                by_itself = alone(of, each, number)
                assert found == pytest.approx(by_itself.run_epoch(0), rel=1e-5)
                scores, own = together.scores(number), by_itself.scores
                assert scores is not None
                assert own is not None
                assert scores() == pytest.approx(own(), rel=1e-5)
                assert scores()[metric] == pytest.approx(found[metric], rel=1e-5)
                assert scores()["val_loss"] == pytest.approx(found["val_loss"], rel=1e-5)


def reported_each_epoch(of: TrainingProblem) -> tuple[str, ...]:
    miss = "val_rmse" if of.task is Task.regression else "val_error"
    return ("train_loss", "val_loss", miss)


def test_a_cheap_metric_costs_no_look_at_the_outputs() -> None:
    of = judging("binary", "val_error")
    assert of.judged is not None
    assert not of.judged.wants_metric
    assert set(alone(of, lanes("sgd", 1)[0], 0).run_epoch(0)) == set(reported_each_epoch(of))


def test_scores_are_those_of_the_epoch_that_they_were_asked_at() -> None:
    of = judging("classes", "val_auc")
    trainer = alone(of, lanes("adam", 1)[0], 0)
    first = trainer.run_epoch(0)
    scores = trainer.scores
    second = trainer.run_epoch(1)
    assert scores is not None
    assert second["val_auc"] != first["val_auc"]
    assert scores()["val_auc"] == first["val_auc"]


def test_a_lane_that_stays_keeps_its_scores_while_others_go() -> None:
    of = judging("classes", "val_auc")
    together = pack(of)
    for number, params in enumerate(lanes("adam", 3)):
        together.add(number, params, number, None)
    ended: Mapping[int, Any] = together.run_epoch()
    scores = together.scores(2)
    together.remove(0)
    together.run_epoch()
    assert scores is not None
    assert scores()["val_auc"] == ended[2]["val_auc"]


def test_every_metric_and_those_of_an_epoch() -> None:
    y = np.array([0, 1, 1, 0])
    outputs = np.array([[1.0, 0], [0, 2], [1, 0.5], [3, 0]])
    judged = JudgedTargets(Task.classification, y, 0.0, 1.0, "val_auc")
    expected = ClassPredictions(outputs, y).scored()
    assert judged.all_metrics(outputs) == {f"val_{name}": value for name, value in expected.items()}
    assert set(judged.each_epoch(outputs)) == {"val_loss", "val_error", "val_auc"}
    one_class = JudgedTargets(Task.classification, np.zeros(4, np.int64), 0.0, 1.0, "val_auc")
    assert "val_auc" not in one_class.all_metrics(outputs)
    assert np.isnan(one_class.study_metric(outputs)["val_auc"])
    values = JudgedTargets(Task.regression, y.astype(np.float64), 2.0, 3.0, "val_loss")
    scaled = ValuePredictions(outputs[:, 0] * 3 + 2, y.astype(np.float64), 3.0).scored()
    found = values.all_metrics(outputs[:, :1])
    assert found == {f"val_{name}": value for name, value in scaled.items()}


def test_directions_follow_from_the_names() -> None:
    large = {
        name for name in reported_metric(Task.auto) if metric_direction(name) is Direction.maximize
    }
    assert large == {
        "val_accuracy",
        "val_balanced_accuracy",
        "val_f1",
        "val_auc",
        "val_average_precision",
        "val_r2",
    }
    assert metric_direction("train_auc") is Direction.minimize  # none of ours
    for task, names in METRICS_OF_TASK.items():
        assert {f"val_{name}" for name in names} <= set(reported_metric(task))


# --- class weights --------------------------------------------------------------------------------


def test_weighed_classes_train_alike_alone_and_in_a_pack() -> None:
    of = judging("classes", "val_loss")
    plain = lanes("adam", 3)
    params = [replace(each, class_weight="balanced") for each in plain]
    together = type(pack(of))(of, 50, 32, data(of), device="cpu", weighs_classes=True)
    for number, each in enumerate(params):
        together.add(number, each, number, None)
    trainers = [alone(of, each, number) for number, each in enumerate(params)]
    for epoch in range(3):
        ended = together.run_epoch()
        for number, trainer in enumerate(trainers):
            assert ended[number] == pytest.approx(trainer.run_epoch(epoch), rel=1e-9)
    unweighed = alone(of, plain[0], 0)
    assert (
        unweighed.run_epoch(0)["train_loss"] != alone(of, params[0], 0).run_epoch(0)["train_loss"]
    )


def test_weights_let_all_classes_count_the_same(disc: Dataset, plane: Dataset) -> None:
    weights, counts = class_weights(disc), np.bincount(disc.train.y)
    np.testing.assert_allclose(np.array(weights) * counts, len(disc.train) / len(counts))
    assert class_weights(plane) == ()


def test_a_rare_class_is_found_more_often_where_classes_are_weighed() -> None:
    of = replace(judging("binary", "val_loss"), class_weights=(0.5, 50.0))
    params = replace(lanes("adam", 1)[0], dropout=0.0, lr=0.01)
    said = []
    for weight in ("none", "balanced"):
        trainer = alone(of, replace(params, class_weight=weight), 0)
        for epoch in range(5):
            trainer.run_epoch(epoch)
        with torch.no_grad():
            said.append(int(trainer.model(data(of).validation.x).argmax(1).sum()))
    assert said[1] > said[0]


def test_a_function_of_the_users_is_reported_by_labels_that_suit_it() -> None:
    def cost(y: np.ndarray, labels: np.ndarray) -> float:
        return float(np.where(y == "ill", 9 * (labels != "ill"), labels == "ill").mean())

    y = np.array([0, 0, 1, 1, 1, 1])
    shares = np.array([0.2, 0.05, 0.3, 0.08, 0.02, 0.01])  # of ill
    outputs = np.log(np.stack([shares, 1 - shares], axis=1))
    own = UsersMetric("cost", "study.metric", larger_is_better=False, load=lambda: cost)
    own = own.of_classes(("ill", "well"))
    judged = JudgedTargets(Task.classification, y, 0.0, 1.0, "val_cost", users_metric=own)
    expected = {"val_cost": 10 / 6, "val_error": 2 / 6}  # the first and the third are said ill
    assert judged.study_metric(outputs) == pytest.approx(expected)
    assert judged.each_epoch(outputs).items() >= judged.study_metric(outputs).items()
    assert judged.all_metrics(outputs).keys() >= {"val_cost", "val_auc"}
    assert judged.threshold_entry(outputs) == {"threshold": pytest.approx(0.9)}
    by_loss = JudgedTargets(Task.classification, y, 0.0, 1.0, "val_loss", users_metric=own)
    assert by_loss.threshold_entry(outputs) == {}, "the study goes by another metric"
