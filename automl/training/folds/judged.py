"""What a trained model says of the rows by which its trial was judged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from automl.data.dataset import Dataset
from automl.training.family import Model
from automl.training.mean_model import MeanModel, mean_outputs


def judged_outputs(model: Model, dataset: Dataset) -> npt.NDArray[np.float64]:
    """(N, C) for the rows of `dataset.judged`, as `Model.outputs`; of a trial with folds each row
    by the models that never saw it: one of each division of the rows, whose mean counts. Of an
    ensemble of such trials the weighted mean of what each of them says.

    Raises ValueError for a model that was not trained on these folds.
    """
    if not dataset.folds:
        return model.outputs(dataset.columns, dataset.validation.rows)
    members, n_folds = (model.members if isinstance(model, MeanModel) else ()), len(dataset.folds)
    if not members or len(members) % n_folds:
        raise ValueError(f"{max(1, len(members))} models for {n_folds} folds")
    begins = range(0, len(members), n_folds)
    each = [_of_trial(members[begin : begin + n_folds], dataset) for begin in begins]
    if len(each) == 1:
        return each[0]
    assert isinstance(model, MeanModel), "it has members"
    weights = [sum(model.weights[begin : begin + n_folds]) for begin in begins]
    return mean_outputs(np.stack(each), dataset.task, weights)


def _of_trial(members: Sequence[Model], dataset: Dataset) -> npt.NDArray[np.float64]:
    """Likewise of the models of one trial."""
    n_repeats = max(fold.repeat for fold in dataset.folds) + 1
    said = np.empty((n_repeats, len(dataset.train), dataset.n_outputs))
    for fold, member in zip(dataset.folds, members, strict=True):
        rows = dataset.train.rows.taking(fold.judged)
        said[fold.repeat, fold.judged] = member.outputs(dataset.columns, rows)
    judged = said[:, dataset.judged_places]  # the same in each division
    return mean_outputs(judged, dataset.task)
