"""Runs scikit-learn's cross-validation so that a trial can be pruned after each fold.

One file of a family, because it alone imports `sklearn.model_selection` for integrations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn import model_selection
from sklearn.base import is_classifier
from sklearn.utils import indexable

from automl.integrations.reports import LibraryReports


def cross_val_score(
    trial: object,
    estimator: Any,
    X: Any,  # noqa: N803  as scikit-learn calls it
    y: Any = None,
    *,
    metric: str | None = None,
    groups: Any = None,
    cv: Any = None,
    **options: Any,
) -> np.ndarray[Any, Any]:
    """Call `sklearn.model_selection.cross_val_score` for one fold after another, with reports.

    Each report has the mean score of the folds so far, as `metric` (by default the study's own),
    with the fold's number as its step. `options` are passed to scikit-learn's function. Returns the
    scores of all folds, `(n_folds,)`, as that function does.

    Raises what `TrialContext.report` raises, and UnfitObjectiveError if the study minimises: larger
    scores of scikit-learn's are better, also the scores of errors (`neg_…`).
    """
    reports = LibraryReports(trial, () if metric is None else (metric,))
    (name,) = reports.names
    reports.check_direction(name, larger_is_better=True)
    X, y, groups = indexable(X, y, groups)  # noqa: N806
    splitter = model_selection.check_cv(cv, y, classifier=is_classifier(estimator))
    scores: list[float] = []
    for fold, split in enumerate(list(splitter.split(X, y, groups))):
        scores.extend(model_selection.cross_val_score(estimator, X, y, cv=[split], **options))
        reports.tell(fold, {name: np.mean(scores)})
    return np.array(scores)
