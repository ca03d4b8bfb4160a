"""What a trained model says of the rows by which its trial was judged."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from automl.data.dataset import Dataset
from automl.training.family import Model
from automl.training.mean_model import MeanModel, mean_outputs


def judged_outputs(model: Model, dataset: Dataset) -> npt.NDArray[np.float64]:
    """(N, C) for the rows of `dataset.judged`, as `Model.outputs`; of a trial with folds each row
    by the models that never saw it: one of each division of the rows, whose mean counts.

    Raises ValueError for a model that was not trained on these folds.
    """
    if not dataset.folds:
        return model.outputs(dataset.columns, dataset.validation.rows)
    members = model.members if isinstance(model, MeanModel) else ()
    if len(members) != len(dataset.folds):
        raise ValueError(f"{max(1, len(members))} models for {len(dataset.folds)} folds")
    n_repeats = max(fold.repeat for fold in dataset.folds) + 1
    said = np.empty((n_repeats, len(dataset.train), dataset.n_outputs))
    for fold, member in zip(dataset.folds, members, strict=True):
        rows = dataset.train.rows.taking(fold.judged)
        said[fold.repeat, fold.judged] = member.outputs(dataset.columns, rows)
    judged = said[:, dataset.judged_places]  # the same in each division
    return mean_outputs(judged, dataset.task)
