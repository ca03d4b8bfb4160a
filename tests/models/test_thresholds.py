"""F1 as what a study goes by: labels by a threshold that is found on rows that were left out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score

from automl.config import ExportFormat, TrainingConfig
from automl.config.metrics import metric_direction
from automl.data.dataset import Dataset
from automl.data.folds import folds_at_random
from automl.data.scoring.label_thresholds import (
    LabelThresholds,
    best_threshold,
    held_out_thresholds,
    label_probabilities,
)
from automl.data.scoring.metrics import ClassPredictions, predict_labels
from automl.export.package import export_model, open_export_reader
from automl.models.families.boosting.family import BoostingFamily
from automl.models.families.linear.family import LinearFamily
from automl.models.families.mlp.family import MLPFamily
from automl.models.mean_model import judged_outputs
from automl.models.mean_model_file import write_ensemble, write_refit
from automl.models.model_file import EnsembleFileJob, RefitFacts, RefitFileJob
from automl.models.predictor import Predictor, load_table_model
from automl.objectives.plan_checks import threshold_notes
from automl.objectives.training_plan import SessionSetup
from automl.objectives.training_session import open_session
from automl.trial import FinishedOutcome
from tests.models.conftest import HOST, Listener, make_plan, make_spec
from tests.models.tables import TARGET, mixed, mixed_frame

FAMILIES = {
    "linear": LinearFamily(),
    "boosting": BoostingFamily(),
    "mlp": MLPFamily(),
}


def uneven(folder: Path) -> Dataset:
    """One row in ten or so is of the second class."""
    data = mixed(folder, 2)

    def few(part: Any) -> Any:
        rare = np.flatnonzero(part.y == 1)[::8]
        return part.take(np.sort(np.concatenate([np.flatnonzero(part.y == 0), rare])))

    return replace(data, train=few(data.train), validation=few(data.validation))


def with_folds(data: Dataset) -> Dataset:
    folds = tuple(folds_at_random(data.train.y.astype(np.int64), 3, seed=0))
    return replace(data, validation=data.validation.take(np.zeros(0, np.int64)), folds=folds)


def trained(
    folder: Path, family: Any, data: Dataset, metric: str = "val_f1"
) -> tuple[Predictor, float]:
    """The best model, and the trial's value."""
    plan = make_plan(family=family, training=TrainingConfig(epochs=3))
    direction = metric_direction(metric)
    plan = replace(plan, metric=metric, direction=direction, n_models=data.n_models)
    spec, listener = make_spec(folder, {}), Listener()
    open_session(SessionSetup(plan, data)).run(spec, HOST, listener)
    assert isinstance(listener.outcome, FinishedOutcome), listener.outcome
    return load_table_model(Path(spec.checkpoint_dir) / "best.pt"), listener.outcome.value


def macro_f1(y: Any, probabilities: Any, threshold: Any) -> float:
    return float(f1_score(y, probabilities > threshold, average="macro", zero_division=0))


def test_no_other_threshold_has_a_higher_f1() -> None:
    draw = np.random.default_rng(0)
    for n_rows in (3, 10, 300):
        y = (draw.random(n_rows) < 0.2).astype(np.int64)
        y[0] = 1
        p = np.round(0.3 * y + 0.4 * draw.random(n_rows), 2).astype(np.float64)
        found = macro_f1(y, p, best_threshold(p, y))
        tried = [macro_f1(y, p, cut) for cut in np.linspace(-0.005, 1.005, 102)]
        assert found == pytest.approx(max(tried))


def test_a_row_has_no_part_in_its_own_threshold() -> None:
    draw = np.random.default_rng(0)
    p, y = draw.random(50), draw.integers(0, 2, 50)
    found = held_out_thresholds(p, y)
    for row in (0, 7, 49):
        others = np.arange(50) % 5 != row % 5
        assert found[row] == best_threshold(p[others], y[others])
    assert held_out_thresholds(p[:1], y[:1]).tolist() == [0.5]
    assert predict_labels(np.array([[0.7, 0.3]]), 0.2).tolist() == [1]
    assert predict_labels(np.array([[0.7, 0.3]]), None).tolist() == [0]


@pytest.mark.parametrize("folds", [False, True], ids=["validation", "folds"])
@pytest.mark.parametrize("name", FAMILIES)
def test_labels_go_by_the_threshold_of_the_rows_left_out(
    name: str, folds: bool, tmp_path: Path
) -> None:
    data = with_folds(uneven(tmp_path)) if folds else uneven(tmp_path)
    predictor, value = trained(tmp_path, FAMILIES[name], data)
    outputs, y = judged_outputs(predictor.trained_model, data), data.judged.y.astype(np.int64)
    p = label_probabilities(outputs)
    assert predictor.threshold == pytest.approx(best_threshold(p, y), abs=1e-6)
    order = np.concatenate([fold.judged for fold in data.folds]) if folds else np.arange(len(y))
    assert value == pytest.approx(
        macro_f1(y[order], p[order], held_out_thresholds(p[order], y[order])), abs=1e-9
    )
    frame = mixed_frame(2, seed=1)
    labels, shares = predictor.predict(frame), predictor.predict_probabilities(frame)
    assert (
        labels == np.array(predictor.classes)[predict_labels(shares, predictor.threshold)]
    ).all()
    known = frame[frame[TARGET].notna()]
    truth = (known[TARGET] == predictor.classes[1]).to_numpy()
    share = predictor.predict_probabilities(known)[:, 1]
    assert predictor.score(known)["f1"] == pytest.approx(
        macro_f1(truth, share, predictor.threshold)
    )


def test_where_another_metric_counts_there_is_none(tmp_path: Path) -> None:
    predictor, _ = trained(tmp_path, LinearFamily(), uneven(tmp_path), "val_loss")
    assert predictor.threshold is None


def rare(n_rows: int = 3000) -> tuple[Any, Any]:
    """Probabilities that are true, and classes of three, of which two are rare."""
    draw = np.random.default_rng(0)
    scores = draw.normal(size=(n_rows, 3)) * 1.5 + [3.0, 0.0, 0.0]
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    y = (p.cumsum(1) < draw.random((n_rows, 1))).sum(1).clip(0, 2)
    return p, y


def mean_f1(y: Any, labels: Any) -> float:
    return float(f1_score(y, labels, average="macro", zero_division=0))


def test_of_more_classes_each_has_a_threshold() -> None:
    p, y = rare()
    half = slice(0, 1500), slice(1500, None)
    found = best_threshold(p[half[0]], y[half[0]])
    assert np.shape(found) == (3,)
    assert sum(found) == pytest.approx(1)  # type: ignore[arg-type]
    fresh, true = p[half[1]], y[half[1]]
    by_threshold = mean_f1(true, predict_labels(fresh, found))
    assert by_threshold > mean_f1(true, fresh.argmax(1)) + 0.03
    near = [np.array(found) * draw for draw in np.random.default_rng(1).uniform(0.7, 1.4, (20, 3))]
    least = mean_f1(y[half[0]], predict_labels(p[half[0]], found))
    assert all(mean_f1(y[half[0]], predict_labels(p[half[0]], one)) < least + 0.01 for one in near)


def test_where_thresholds_are_no_better_on_other_rows_the_likeliest_class_is_said() -> None:
    draw = np.random.default_rng(0)
    p, y = draw.dirichlet(np.ones(4), 60), draw.integers(0, 4, 60)
    plain = mean_f1(y, p.argmax(1))
    held_out = held_out_thresholds(p, y)
    assert mean_f1(y, predict_labels(p, held_out)) >= plain
    same = np.eye(3)[y % 3] * 0.8 + 0.1
    assert best_threshold(same, y % 3) == pytest.approx([1 / 3] * 3)


def test_a_model_of_three_classes_keeps_its_thresholds_in_its_export(tmp_path: Path) -> None:
    data = mixed(tmp_path, 3)
    few = np.flatnonzero((data.train.y != 2) | (np.arange(len(data.train)) % 8 == 0))
    data = replace(data, train=data.train.take(few))
    predictor, value = trained(tmp_path, LinearFamily(), with_folds(data))
    outputs, y = judged_outputs(predictor.trained_model, with_folds(data)), data.train.y
    found = best_threshold(label_probabilities(outputs), y.astype(np.int64))
    assert predictor.threshold == pytest.approx(found, abs=1e-6)
    assert 0 < value <= 1
    frame = mixed_frame(3, seed=1)
    shares, labels = predictor.predict_probabilities(frame), predictor.predict(frame)
    places = predict_labels(shares, predictor.threshold)
    assert (labels == np.array(predictor.classes)[places]).all()
    pytest.importorskip("onnxruntime", reason="needs pip install 'automl-sweep[export]'")
    rows: list[Any] = frame.drop(columns=TARGET).to_dict("records")
    export_model(predictor, rows[:50], tmp_path / "out", ExportFormat.onnx, {})
    reader = open_export_reader(tmp_path / "out")
    assert [reader(row) for row in rows] == labels.tolist()


def test_of_many_classes_it_is_said_that_there_is_none(tmp_path: Path) -> None:
    data = mixed(tmp_path, 3)
    many = replace(data, classes=tuple(range(21)))
    (said,) = threshold_notes("val_f1", many)
    assert "of 21 classes a row is said to be of the likeliest" in said
    assert threshold_notes("val_f1", data) == ()
    assert threshold_notes("val_loss", many) == ()


def test_it_goes_with_the_model_wherever_that_goes(tmp_path: Path) -> None:
    """An ensemble has its own, a refit has no rows to find one with, an export has the model's."""
    data = uneven(tmp_path)
    files, predictors = {}, []
    for number, name in enumerate(("linear", "boosting")):
        predictor, _ = trained(tmp_path / name, FAMILIES[name], data)
        files[number] = str(predictor.path)
        predictors.append(predictor)
    job = EnsembleFileJob(str(tmp_path / "ensemble.pt"), files, data, "a", metric="val_f1")
    made = write_ensemble(job)
    ensemble = load_table_model(tmp_path / "ensemble.pt")
    p = label_probabilities(ensemble.outputs(data.validation.rows))
    y = data.validation.y.astype(np.int64)
    assert ensemble.threshold == pytest.approx(best_threshold(p, y), abs=1e-9)
    own = ClassPredictions(
        ensemble.outputs(data.validation.rows), y, held_out_thresholds(p, y)
    ).scored()
    assert made.scores["f1"] == pytest.approx(own["f1"])

    again, _ = trained(tmp_path / "again", LinearFamily(), data, "val_loss")
    of = RefitFacts(0, "train", 1, "")
    asked = RefitFileJob(str(tmp_path / "refit.pt"), [str(again.path)], "a", of, files[0])
    write_refit(asked)
    refit = load_table_model(tmp_path / "refit.pt")
    assert refit.threshold == predictors[0].threshold is not None

    pytest.importorskip("onnxruntime", reason="needs pip install 'automl-sweep[export]'")
    frame = mixed_frame(2, seed=1).drop(columns=TARGET)
    rows: list[Any] = frame.to_dict("records")
    export_model(refit, rows[:50], tmp_path / "out", ExportFormat.onnx, {})
    said = json.loads((tmp_path / "out" / "schema.json").read_text())
    assert said["threshold"] == refit.threshold
    reader = open_export_reader(tmp_path / "out")
    labels = [reader(row) for row in rows]
    assert labels == refit.predict(pd.DataFrame(rows)).tolist()
    likelier = np.array(refit.classes)[refit.predict_probabilities(frame).argmax(1)]
    assert (np.array(labels) != likelier).any()


def test_by_balanced_accuracy_true_probabilities_go_by_the_share_of_a_class() -> None:
    draw = np.random.default_rng(0)
    p = draw.beta(0.5, 4.5, 4_000)
    y = (draw.random(4_000) < p).astype(np.int64)
    assert best_threshold(p, y, "balanced_accuracy") == pytest.approx(y.mean())
    shares, classes = rare()
    found = best_threshold(shares, classes, "balanced_accuracy")
    assert found == pytest.approx(np.bincount(classes) / len(classes))


def test_by_balanced_accuracy_false_probabilities_get_the_threshold_that_was_found() -> None:
    draw = np.random.default_rng(0)
    y = (draw.random(4_000) < 0.2).astype(np.int64)
    p = (0.6 + 0.2 * y + 0.1 * draw.standard_normal(4_000)).clip(0, 1)
    found = best_threshold(p, y, "balanced_accuracy")
    assert found == pytest.approx(0.7, abs=0.04)
    held_out = held_out_thresholds(p, y, "balanced_accuracy")
    assert np.unique(held_out).size > 1
    assert np.abs(held_out - 0.7).max() < 0.1


@pytest.mark.parametrize("metric", ["error", "accuracy"])
def test_by_error_a_threshold_is_taken_only_if_it_surely_pays(metric: str) -> None:
    draw = np.random.default_rng(0)
    y = (draw.random(1_000) < 0.5).astype(np.int64)
    true = np.clip(0.3 + 0.4 * y + 0.2 * draw.standard_normal(1_000), 0.01, 0.99)
    outputs = np.log(np.stack([1 - true, true], axis=1))
    assert LabelThresholds.find(outputs, y, metric) is None
    too_sure = np.log(np.stack([1 - true, 4 * true], axis=1))
    found = LabelThresholds.find(too_sure, y, metric)
    assert found is not None
    assert found.best == pytest.approx(0.8, abs=0.05)


def test_a_study_by_balanced_accuracy_keeps_its_probabilities(tmp_path: Path) -> None:
    data = with_folds(uneven(tmp_path))
    predictor, value = trained(tmp_path, LinearFamily(), data, "val_balanced_accuracy")
    plain, _ = trained(tmp_path / "plain", LinearFamily(), data, "val_loss")
    frame = mixed_frame(2, seed=1)
    shares = predictor.predict_probabilities(frame)
    assert shares == pytest.approx(plain.predict_probabilities(frame))
    assert predictor.threshold == pytest.approx(data.train.y.mean(), abs=0.05)
    assert predictor.score(frame)["balanced_accuracy"] > plain.score(frame)["balanced_accuracy"]
    assert 0.5 < value < 1
