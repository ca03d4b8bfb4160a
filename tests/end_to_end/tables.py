"""A small table like that of wines, and a study of it in which every family is tried."""

from __future__ import annotations

import numpy as np
import pandas as pd

TARGET = "quality"
MEMBERS = (
    "{family: linear, linear_l2: 1.0}",
    "{family: boosting, boosting_learning_rate: 0.1, boosting_max_leaf_nodes: 8,"
    " boosting_min_samples_leaf: 10, boosting_max_features: 0.5}",
    "{family: trees, trees_kind: extra_trees, trees_min_samples_leaf: 5, trees_max_features: 0.7}",
    "{family: mlp, mlp_depth: 1, mlp_width: 64, mlp_batch_size: 32, mlp_lr: 0.005}",
)
"""One of each family."""
AUTO = (
    *("model=auto", "space=auto", "data=csv", "data.path=wine.csv", f"data.target={TARGET}"),
    *("data.folds=1", "data.test=0.2", "study.n_trials=4", "study.portfolio=none"),
    *(
        "training.epochs=12",
        "devices.only=cpu",
        "pruner=none",
        f"study.enqueue=[{','.join(MEMBERS)}]",
    ),
    "study.finish=[ensemble,plots]",
)


def wine_like(n_rows: int = 300) -> pd.DataFrame:
    """Numbers of eleven measurements, and a grade that is partly their sum, partly bent, and
    partly taste."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n_rows, 11))
    bends = 0.6 * np.abs(x[:, 1]) + (x[:, 2] > 0) + 0.5 * x[:, 3] * (x[:, 4] > 0)
    grade = 6 + 0.5 * x[:, 0] + bends + 0.5 * rng.normal(size=n_rows)
    frame = pd.DataFrame(x, columns=[f"measured {i}" for i in range(11)])
    frame.loc[::17, "measured 3"] = np.nan
    return frame.assign(**{TARGET: grade.round(1)})
