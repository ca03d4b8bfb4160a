"""Cross-validation fold by fold. scikit-learn is always there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GroupKFold, KFold
from sklearn.model_selection import cross_val_score as cross_val_score_of_sklearn
from sklearn.tree import DecisionTreeClassifier

import automl
from automl.integrations.sklearn import cross_val_score
from automl.trial import Direction, FailedOutcome, FinishedOutcome, PrunedOutcome, Verdict
from tests.integrations.conftest import CarryOut

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
CLASSES = np.array(["no", "yes"])[(X.sum(1) + RNG.normal(size=60) > 0).astype(int)]


@pytest.mark.parametrize(
    ("estimator", "y", "options"),
    [
        (LogisticRegression(), CLASSES, {}),  # stratified, as scikit-learn does for classes
        (Ridge(), X.sum(1), {"cv": 4, "scoring": "neg_mean_squared_error"}),
        (DecisionTreeClassifier(random_state=0), CLASSES, {"cv": KFold(3, shuffle=True)}),
        (LogisticRegression(), CLASSES, {"groups": np.arange(60) % 7, "cv": GroupKFold(4)}),
    ],
)
def test_scores_are_those_of_scikit_learn_and_their_means_are_reported(
    carry_out: CarryOut, estimator: Any, y: Any, options: dict[str, Any]
) -> None:
    if isinstance(cv := options.get("cv"), KFold):
        cv.random_state = 1
    scores: list[float] = []

    def train(trial: automl.TrialContext) -> float:
        scores.extend(cross_val_score(trial, estimator, X, y, **options))
        return float(np.mean(scores))

    ended = carry_out(train, metric="accuracy", direction=Direction.maximize)
    assert isinstance(ended.outcome, FinishedOutcome), ended.outcome
    np.testing.assert_array_equal(scores, cross_val_score_of_sklearn(estimator, X, y, **options))
    means = [float(np.mean(scores[: n + 1])) for n in range(len(scores))]
    assert ended.reports == [(n, {"accuracy": mean}) for n, mean in enumerate(means)]


class Counting(LogisticRegression):
    """Knows how often it was fitted."""

    n_fits = 0

    def fit(self, X: Any, y: Any) -> Any:  # noqa: N803
        type(self).n_fits += 1
        return super().fit(X, y)


def counts(trial: Any) -> float:
    return float(cross_val_score(trial, Counting(), X, CLASSES, cv=5, metric="score").mean())


@pytest.mark.parametrize("optunas", [False, True])
def test_a_fold_can_prune(
    carry_out: CarryOut, optunas: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counting, "n_fits", 0)
    ended = carry_out(
        counts, {1: Verdict.PRUNE}, metric="score", direction=Direction.maximize, optunas=optunas
    )
    assert isinstance(ended.outcome, PrunedOutcome)
    assert Counting.n_fits == 2, "no fold after it"


def test_a_study_that_minimises_a_score_is_refused(carry_out: CarryOut) -> None:
    outcome = carry_out(counts, metric="score").outcome
    assert isinstance(outcome, FailedOutcome)
    assert "score is better when larger: set study.direction=maximize." in outcome.cause
