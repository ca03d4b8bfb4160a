"""Trees as an operator of `ai.onnx.ml`.

The newer `TreeEnsemble` has one value in a leaf, so that a forest of C classes would be walked down
C times; this one has as many as there are, and whatever reads ONNX has it for longer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import numpy_helper

from automl.training.tree_arrays import LEAF, Trees, children

DOMAIN, OPERATOR = "ai.onnx.ml", "TreeEnsembleRegressor"
_NODE_BYTES, _VALUE_BYTES = 45, 20
"""At most, in a file."""


def file_bytes(trees: Trees) -> int:
    """About, and rather too many."""
    return len(trees.column) * _NODE_BYTES + trees.value.size * _VALUE_BYTES


def tree_attributes(trees: Trees, n_groups: int) -> dict[str, Any]:
    """So that the operator gives (N, n_groups · V): see `Trees.sums`."""
    child, own, _ = children(trees)
    sizes = trees.n_nodes.astype(np.int64)
    number = np.repeat(np.arange(len(sizes)), sizes)
    root = np.repeat(np.cumsum(sizes) - sizes, sizes)
    inner, place = trees.column != LEAF, own - root
    left = np.where(inner, child - root, 0)
    threshold, missing_left = np.zeros(len(inner)), np.zeros(len(inner), dtype=np.int64)
    threshold[inner], missing_left[inner] = trees.threshold, ~trees.missing_right
    # Zeros add nothing; but a leaf has one value at least.
    said = trees.value != 0
    said[:, 0] |= ~said.any(axis=1)
    leaf, of_leaf = np.nonzero(said)
    node = np.flatnonzero(~inner)[leaf]
    return {
        "n_targets": n_groups * trees.n_values,
        "nodes_treeids": number.tolist(),
        "nodes_nodeids": place.tolist(),
        "nodes_featureids": np.where(inner, trees.column, 0).tolist(),
        "nodes_modes": np.where(inner, "BRANCH_LEQ", "LEAF").tolist(),
        "nodes_values_as_tensor": numpy_helper.from_array(threshold, "thresholds"),
        "nodes_truenodeids": left.tolist(),
        "nodes_falsenodeids": np.where(inner, left + 1, 0).tolist(),
        "nodes_missing_value_tracks_true": missing_left.tolist(),
        "target_treeids": number[node].tolist(),
        "target_nodeids": place[node].tolist(),
        "target_ids": (number[node] % n_groups * trees.n_values + of_leaf).tolist(),
        "target_weights_as_tensor": numpy_helper.from_array(
            trees.value[leaf, of_leaf].astype(np.float64), "values"
        ),
    }
