"""What `evaluate` says of a refit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from automl.commands.models.evaluation_scores import _outputs
from automl.commands.models.which_model import TableModel
from automl.config import DataConfig, DataKind
from automl.data.load import load_dataset
from automl.data.scoring.evaluation import open_evaluation
from automl.models.model_file import RefitFacts
from tests.models.tables import TARGET, mixed_frame
from tests.models.test_table_families import trained


@pytest.mark.parametrize("n_classes", [1, 2])
@pytest.mark.parametrize("test_fraction", [0.2, 0.0])
def test_a_refit_reads_rows_by_the_categories_and_the_unit_that_it_learned(
    tmp_path: Path, n_classes: int, test_fraction: float
) -> None:
    """Of more rows there are more of them, and each code is another's."""
    own, more = mixed_frame(n_classes), mixed_frame(n_classes, seed=1)
    more.loc[::7, "kind"] = "another"
    if n_classes == 1:
        more[TARGET] += 30.0
    paths = [tmp_path / name for name in ("own.csv", "more.csv")]
    for frame, path in zip((own, more), paths, strict=True):
        frame.to_csv(path, index=False)
    config, larger = (
        DataConfig(kind=DataKind.csv, path=str(p), target=TARGET, test=test_fraction, folds=1)
        for p in paths
    )
    predictor, _ = trained(tmp_path, "linear", load_dataset(larger))
    predictor.refitted = RefitFacts(0, "train", 1, "")
    refit = TableModel(predictor, predictor.path, 0, predictor.refitted)
    table = open_evaluation(config, None)
    paths[0].unlink()  # it is read once
    frame = table.frame()
    found = _outputs(refit, table)
    if n_classes == 2:
        np.testing.assert_array_equal(found, predictor.outputs(predictor.read(frame)))
        assert not np.array_equal(found, predictor.outputs(table.part.rows))
    else:
        mean, scale = table.dataset.target_mean, table.dataset.target_scale
        np.testing.assert_allclose(found[:, 0] * scale + mean, predictor.predict(frame), rtol=1e-9)
