"""`automl.sklearn`: the best model as an estimator of scikit-learn, by its own checks and ours."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import automl

# One cheap trial a fit; that the space is named spares Hydra to compose twice.
FEW = ("devices.only=cpu", "execution=inline", "data.folds=1", "pruner=none", "space=auto")
LINEAR: dict[str, Any] = {"n_trials": 1, "families": ["linear"], "overrides": FEW}
ESTIMATORS = [automl.sklearn.Classifier(**LINEAR), automl.sklearn.Regressor(**LINEAR)]


@pytest.mark.slow  # half a minute of a core
@parametrize_with_checks(ESTIMATORS)  # type: ignore[untyped-decorator]
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    """All that apply; none is expected to fail."""
    check(estimator)


def fruits(n: int = 120) -> tuple[pd.DataFrame, pd.Series]:
    draw = np.random.default_rng(0)
    kinds = pd.Series(draw.choice(["pear", "fig", "apple"], n))
    colours = kinds.map({"pear": "green", "fig": "blue", "apple": "red"})
    frame = pd.DataFrame({"target": colours, "weight": draw.standard_normal(n)})
    frame.loc[::7, "weight"] = np.nan
    return frame, kinds


def test_a_frame_keeps_its_columns_and_labels_are_as_they_were(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame, kinds = fruits()
    model = automl.sklearn.Classifier(**LINEAR).fit(frame, kinds)
    assert model.classes_.tolist() == ["apple", "fig", "pear"]
    assert (model.predict(frame) == kinds).all()
    shares = model.predict_proba(frame)
    np.testing.assert_array_equal(model.classes_[shares.argmax(axis=1)], kinds)
    assert model.explain(frame, kinds).index[0] == "target"
    assert list(model.leaderboard_.family.dropna()) == ["linear"]
    saved = automl.load(model.save(tmp_path / "model.pt"))
    np.testing.assert_allclose(saved.predict_probabilities(frame), shares)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(frame), shares)
    assert capsys.readouterr().out == ""
    assert list(tmp_path.iterdir()) == [tmp_path / "model.pt"]


def test_the_study_is_kept_where_a_folder_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame, kinds = fruits()
    model = automl.sklearn.Classifier(**LINEAR, folder=str(tmp_path), verbose=True)
    model.fit(frame, kinds)
    (study,) = tmp_path.iterdir()
    assert automl.open_study(study.name, dir=str(tmp_path)).best.number == 0
    assert "1 finished" in capsys.readouterr().out


def test_scikit_learn_searches_with_it() -> None:
    draw = np.random.default_rng(0)
    x = draw.standard_normal((90, 2))
    y = 100 + 10 * x[:, 0] + draw.standard_normal(90)
    assert cross_val_score(automl.sklearn.Regressor(**LINEAR), x, y, cv=2).min() > 0.9


def test_one_class_is_no_choice() -> None:
    with pytest.raises(ValueError, match="y has one class alone, a:"):
        automl.sklearn.Classifier(**LINEAR).fit([[1.0], [2.0]], ["a", "a"])


def test_it_is_imported_by_its_short_name_and_only_when_it_is_named() -> None:
    code = """
import sys, automl
assert "sklearn" not in sys.modules
from automl.sklearn import Classifier
assert Classifier is automl.sklearn.Classifier and Classifier.__module__ == "automl.sklearn"
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
