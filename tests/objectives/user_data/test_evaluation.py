"""Rows of the user's own that models are scored on: which they are, and what is to be beaten."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from automl.commands.models.evaluation_scores import check_same_arrays
from automl.config import Config, StudyConfig
from automl.data.scoring.evaluation import score_predictions
from automl.errors import ConfigError
from automl.objectives.user_data.evaluation import open_array_evaluation
from automl.trial import RowsKind
from tests.objectives.user_data import sources
from tests.objectives.user_data.test_source import make_setup
from tests.objectives.user_data.test_training import PARAMS, load, open_it, run

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_test_part_is_scored_beside_the_majority(tmp_path: Path) -> None:
    run(open_it("images", "convolutions", epochs=15), tmp_path, {**PARAMS, "channels": 6})
    model, found = load(tmp_path, "convolutions"), open_array_evaluation(make_setup("images").plan)
    assert model.data_digest == found.facts.digest
    event = score_predictions(found.judged, {0: found.outputs(model)}, n_resamples=100, seed=0)
    x, y = sources.bars(40, 2)
    assert (event.kind, event.n_rows) == (RowsKind.KEPT, 40)
    error = event.scores["trial-00000"]["error"].value
    assert error == pytest.approx((model.predict(x) != y.numpy()).mean())
    train = sources.bars(200, 0)[1].numpy()
    config = Config(study=StudyConfig(name="s"), data=make_setup("images").plan.data)
    check_same_arrays(found.facts, {"trial 0": model}, config)
    with pytest.raises(ConfigError, match=r"sources:images gives other data than trial 0 learned"):
        check_same_arrays(replace(found.facts, digest="other"), {"trial 0": model}, config)
    share = (y.numpy() != np.bincount(train).argmax()).mean()
    assert event.scores["majority"]["error"].value == pytest.approx(share)


def test_without_a_test_part_it_is_the_one_that_chose(tmp_path: Path) -> None:
    """Of numbers, whose mean is to be beaten; and of a Dataset, whose rows are loaded."""
    run(open_it("frames", "linear", epochs=3), tmp_path, PARAMS)
    found = open_array_evaluation(make_setup("frames", "linear").plan)
    outputs = found.outputs(load(tmp_path, "linear"))
    event = score_predictions(found.judged, {0: outputs}, n_resamples=100, seed=0)
    assert (event.kind, event.n_rows) == (RowsKind.VALIDATION, 60)
    y = sources.frames()["validation"][1].to_numpy()
    assert event.scores["trial-00000"]["rmse"].value == pytest.approx(
        np.sqrt(((outputs[:, 0] - y) ** 2).mean()), rel=1e-5
    )
    mean = sources.frames()["train"][1].mean()
    assert event.scores["mean"]["mae"].value == pytest.approx(np.abs(y - mean).mean(), rel=1e-5)
    loaded = open_array_evaluation(make_setup("datasets").plan).judged
    assert (loaded.y == sources.bars(80, 1)[1].numpy()).all()
    assert not loaded.baselines, "the training part is not read through for it"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "pairs_of_numbers",
            "scores one class or one number for a row, and here a row has several",
        ),
        ("sequences", "a row has several"),
        ("ragged_test", r"test: rows of a batch have x of the shapes \(1, 5, 6\), \(1, 6, 6\)"),
        ("high_test", "test: a target is 7; with 2 classes"),
        ("raising_test", "data.source=.*: its Dataset failed with KeyError"),
    ],
)
def test_what_cannot_be_scored_is_said(source: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        open_array_evaluation(make_setup(source).plan)
