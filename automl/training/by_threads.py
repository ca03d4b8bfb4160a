"""What a model gives, by all cores."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from automl.data.columns import Columns
from automl.data.dataset import Rows
from automl.training.cores import usable_threads
from automl.training.family import Model
from automl.training.mean_model import MeanModel

ROWS_PER_THREAD = 16384
"""Of fewer a second thread made trees slower: they wait for each other between small steps."""


def outputs_by_threads(model: Model, columns: Columns, rows: Rows) -> npt.NDArray[np.float64]:
    """(N, C) what it gives. torch takes the cores for a network; of any other model each thread has
    a part of the rows, for numpy lets others compute meanwhile."""
    if isinstance(model, MeanModel):
        return model.mean([outputs_by_threads(one, columns, rows) for one in model.members])
    n_threads = min(usable_threads(), len(rows) // ROWS_PER_THREAD)
    if model.module is not None or n_threads < 2:
        return model.outputs(columns, rows)
    ends = [len(rows) * number // n_threads for number in range(n_threads + 1)]
    parts = [rows[begin:end] for begin, end in pairwise(ends)]
    with ThreadPoolExecutor(n_threads) as pool:
        return np.concatenate([*pool.map(lambda part: model.outputs(columns, part), parts)])
