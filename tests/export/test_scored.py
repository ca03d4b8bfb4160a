"""An export scored on many rows as its model is; what comes from elsewhere is read, never run."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from automl.config import DataConfig, ExportFormat, Task
from automl.data.columns import TableColumns
from automl.data.dataset import Dataset
from automl.data.load import load_dataset
from automl.export.onnx_scores import NotComparableError, score_export
from automl.export.package import export_model
from automl.models.predictor import Predictor
from tests.export.conftest import ROWS, predictor_of, scores_of

pytest.importorskip("onnxruntime", reason="needs pip install 'automl-sweep[export]'")


def data_of(model: Predictor) -> Dataset:
    """A data set with the model's answers."""
    disc = load_dataset(DataConfig(n_train=10, n_validation=10))
    if model.classes:
        return replace(disc, classes=tuple(str(label) for label in model.classes))
    train = replace(disc.train, y=disc.train.y.astype(np.float64))
    return replace(
        disc, task=Task.regression, classes=(), train=train, target_mean=30.0, target_scale=2.0
    )


@pytest.fixture(scope="module")
def written(columns: TableColumns, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of the classifier for all tests of this module."""
    out = tmp_path_factory.mktemp("scored") / "out"
    export_model(predictor_of(columns), ROWS, out, ExportFormat.onnx, {})
    (out / "reader.py").write_text("raise SystemExit('it was run')")
    return out


@pytest.fixture
def package(written: Path, tmp_path: Path) -> Path:
    """That package, in a folder of the test's own."""
    return shutil.copytree(written, tmp_path / "out")


def changed(package: Path, **values: object) -> None:
    path = package / "schema.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_scores_are_the_models(package: Path, classifier: Predictor) -> None:
    found = score_export(package, ROWS, data_of(classifier)).outputs
    said = np.exp(found) / np.exp(found).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(said, scores_of(classifier, ROWS), atol=1e-6)


def test_values_come_in_the_scale_of_the_data(regressor: Predictor, tmp_path: Path) -> None:
    export_model(regressor, ROWS, tmp_path / "out", ExportFormat.onnx, {})
    found = score_export(tmp_path / "out", ROWS, data_of(regressor)).outputs
    assert found.shape == (len(ROWS), 1)
    np.testing.assert_allclose(found[:, 0] * 2 + 30, scores_of(regressor, ROWS), rtol=1e-6)


def test_classes_come_in_the_order_of_the_data(package: Path, classifier: Predictor) -> None:
    data = data_of(classifier)
    turned = replace(data, classes=data.classes[::-1])
    first, second = (score_export(package, ROWS, each).outputs for each in (data, turned))
    np.testing.assert_array_equal(first, second[:, ::-1])
    assert not np.allclose(first, second)


def test_the_threshold_of_labels_is_on_the_second_class_of_the_data(
    columns: TableColumns, tmp_path: Path
) -> None:
    model = predictor_of(columns, classes=("no", "yes"))
    package = tmp_path / "out"
    export_model(model, ROWS, package, ExportFormat.onnx, {})
    data = data_of(model)
    assert score_export(package, ROWS, data).threshold is None
    changed(package, threshold=0.25)
    turned = replace(data, classes=("yes", "no"))
    assert score_export(package, ROWS, data).threshold == 0.25
    assert score_export(package, ROWS, turned).threshold == 0.75


@pytest.mark.parametrize(
    "values",
    [
        {"format": "torch", "file": "model.pt2"},
        {"format": "torch"},
        {"file": "../elsewhere.onnx"},
        {"layout": "automl-export-0"},
    ],
)
def test_nothing_but_onnx_is_opened(
    package: Path, classifier: Predictor, values: dict[str, str]
) -> None:
    changed(package, **values)
    with pytest.raises(NotComparableError, match="it is of another kind"):
        score_export(package, ROWS, data_of(classifier))


def test_what_cannot_be_compared_says_why(package: Path, classifier: Predictor) -> None:
    data = data_of(classifier)
    with pytest.raises(NotComparableError, match="it does not know these rows"):
        score_export(package, [{"other": 1}], data)
    with pytest.raises(NotComparableError, match="it answers otherwise"):
        score_export(package, ROWS, replace(data, classes=("a", "b")))
    (package / "model.onnx").write_bytes(b"damaged")
    with pytest.raises(NotComparableError, match="it cannot be opened"):
        score_export(package, ROWS, data)
    (package / "schema.json").unlink()
    with pytest.raises(NotComparableError, match=r"schema\.json cannot be read"):
        score_export(package, ROWS, data)
