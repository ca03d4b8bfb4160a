"""How a new version stands beside the champion: two exports on the same rows."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from automl.commands.models.champion import ChampionComparison
from automl.commands.models.new_version import compare_with_champion
from automl.config import Config, DataConfig, ExportFormat, StudyConfig
from automl.data.columns import TableColumns
from automl.data.dataset import DatasetPart
from automl.data.load import load_dataset
from automl.data.scoring.evaluation import EvaluationRows
from automl.export.package import export_model
from automl.trial import RowsKind
from tests.export.conftest import ROWS, columns, predictor_of, scores_of

pytest.importorskip("onnxruntime", reason="needs pip install 'automl-sweep[export]'")

__all__ = ["columns"]


@pytest.mark.parametrize(
    ("metric", "told", "is_above"), [("val_error", "error", True), ("val_loss", "loss", False)]
)
def test_versions_are_compared_by_the_metric_of_the_study(
    metric: str, told: str, columns: TableColumns, tmp_path: Path, *, is_above: bool
) -> None:
    """By the labels that they give, where it is one of labels: with the same scores the new one's
    are never the second class, as half of the rows are."""
    model = predictor_of(columns, classes=("no", "yes"))
    champion, new = tmp_path / "champion", tmp_path / "new"
    export_model(model, ROWS, champion, ExportFormat.onnx, {})
    shutil.copytree(champion, new)
    second = scores_of(model, ROWS)[:, 1]
    threshold = float(np.median(second))
    for package, above in ((champion, threshold), (new, 1.0)):
        schema = json.loads((package / "schema.json").read_text())
        (package / "schema.json").write_text(json.dumps(schema | {"threshold": above}))
    found = compare_with_champion(
        new,
        lambda folder: champion,
        evaluation(second > threshold),
        Config(study=StudyConfig(metric=metric)),
    )
    assert isinstance(found, ChampionComparison)
    assert found.metric == told
    assert (found.difference.value > 0) == is_above


def evaluation(y: np.ndarray) -> EvaluationRows:
    """The rows, with these as their classes."""
    disc = load_dataset(DataConfig(n_train=len(y), n_validation=10))
    data = replace(disc, classes=("no", "yes"))
    part = DatasetPart(disc.train.rows, y.astype(np.int64))
    return EvaluationRows(data, RowsKind.KEPT, part, "digest", "rows", lambda: pd.DataFrame(ROWS))
