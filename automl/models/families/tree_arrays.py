"""Stores decision trees as narrow arrays, makes the views of a table that they take, and predicts.

The nodes of a tree stand level by level, the children of a node beside each other, so that no node
names another. A node sends a row to its left child if its column is at most the threshold.

A view has scaled numbers, and codes of categories; a spread view has a column of 0 and 1 for each
kind of a category of few kinds. Views and thresholds are float32, in which scikit-learn's forests
compare. Numbers are scaled in float64 first, which keeps the digits of a time in seconds since
1970. Missing cells, and texts that training never saw, are NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from automl.data.columns import TableColumns
from automl.data.dataset import TableRows
from automl.models.families.table_family import n_tree_columns, spread_categories
from automl.models.model_file import check_content

Floats = npt.NDArray[np.float64]
Borders: TypeAlias = "tuple[npt.NDArray[np.int64], Floats]"
"""Type of a pair: columns of the view, and the numbers in them where a model's output may jump."""
NO_BORDERS: Borders = (np.empty(0, dtype=np.int64), np.empty(0))


@runtime_checkable
class BorderedModel(Protocol):
    """A model whose outputs may jump at borders, near which exports are compared, too."""

    def borders(self) -> Borders:
        """Return the borders of all trees of the model."""


_ROWS_AT_ONCE = 65536
"""Number of rows that go down the trees together. With 4,096 the steps took 1.7 times as long,
because each costs some µs however few rows are left (560 trees of Adult); with 200,000 they took
1.2 times as long, because the arrays no longer fit a core's cache."""
LEAF = -1
"""Stands in place of the column of a node that is a leaf."""


@dataclass(frozen=True, eq=False)
class TreeArrays:
    """Several trees, whose nodes stand one tree after another. The arrays are never written to."""

    n_nodes: npt.NDArray[np.int32]
    """Number of nodes of each tree (T,)."""
    column: npt.NDArray[np.int16]
    """Column of the view that each node compares (nodes,); -1: the node is a leaf."""
    threshold: npt.NDArray[np.float32]
    """Threshold of each inner node (inner nodes,)."""
    missing_right: npt.NDArray[np.bool_]
    """Whether a row with a missing cell goes right (inner nodes,)."""
    value: npt.NDArray[np.float32]
    """Values of the leaves (U, V). If leaves have several values, equal rows occur once."""
    leaf: npt.NDArray[np.int32]
    """Row of `value` that each leaf has (leaves,)."""

    @property
    def n_values(self) -> int:
        """Number V of values of a leaf."""
        return int(self.value.shape[1])

    def first(self, n_trees: int) -> TreeArrays:
        """Return the first `n_trees` trees."""
        column = self.column[: int(self.n_nodes[:n_trees].sum())]
        n_inner = int((column != LEAF).sum())
        used, leaf = np.unique(self.leaf[: len(column) - n_inner], return_inverse=True)
        return TreeArrays(
            n_nodes=self.n_nodes[:n_trees],
            column=column,
            threshold=self.threshold[:n_inner],
            missing_right=self.missing_right[:n_inner],
            value=self.value[used],
            leaf=leaf.ravel().astype(np.int32),
        )

    def plain(self) -> dict[str, Any]:
        """Return the trees as arrays for a checkpoint, in the narrowest types that hold them.

        Left out are a `leaf` of one value, and a `missing_right` that is the same of all nodes.
        """
        plain = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        plain["column"] = _narrowed(self.column)
        plain["leaf"] = _narrowed(self.leaf)
        if self.n_values == 1:
            del plain["leaf"]
        if self.missing_right.all():
            del plain["missing_right"]
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], n_columns: int) -> TreeArrays:
        """Read what `plain` returned, for a view of `n_columns`.

        Raises ValueError for arrays that are no trees: their file may be a stranger's.
        """
        arrays: dict[str, Any] = {name: plain.get(name) for name in (*_KINDS, "leaf")}
        if arrays["missing_right"] is None:
            arrays["missing_right"] = np.ones(len(plain["threshold"]), dtype=np.bool_)
        if arrays["leaf"] is None:
            arrays["leaf"] = np.arange(len(plain["value"]), dtype=np.int32)
        for name, (dtypes, n_dimensions) in (*_KINDS.items(), ("leaf", _LEAF_KIND)):
            array = arrays[name]
            fits = isinstance(array, np.ndarray) and array.dtype in dtypes
            check_content(fits and array.ndim == n_dimensions, f"{name} of no tree", type(array))
        wide = {
            "column": arrays["column"].astype(np.int16),
            "leaf": arrays["leaf"].astype(np.int32),
        }
        trees = cls(**{**arrays, **wide})
        _check_trees(trees, n_columns)
        return trees

    def borders(self) -> Borders:
        """Return the column and threshold of each inner node."""
        columns = self.column[self.column != LEAF]
        return columns.astype(np.int64), self.threshold.astype(np.float64)

    def sums(self, view: npt.NDArray[np.float32], n_groups: int = 1) -> Floats:
        """Return the sums (N, n_groups · V) of the trees' values, for the rows of a view (N, F).

        Each group of trees has its own sums; tree i belongs to group i modulo `n_groups`.
        """
        out = np.zeros((len(view), n_groups * self.n_values))
        walk = self._walk
        for begin in range(0, len(view), _ROWS_AT_ONCE):
            rows = np.ascontiguousarray(view[begin : begin + _ROWS_AT_ONCE])
            block_sums = out[begin : begin + _ROWS_AT_ONCE]
            for number, root in enumerate(walk.roots):
                first = number % n_groups * self.n_values
                leaves = walk.leaves(rows, root)
                block_sums[:, first : first + self.n_values] += self.value[walk.value_place[leaves]]
        return out

    @cached_property
    def _walk(self) -> _TreeWalk:
        return _TreeWalk(self)


_KINDS: Mapping[str, tuple[tuple[type[np.generic], ...], int]] = {
    "n_nodes": ((np.int32,), 1),
    "column": ((np.int8, np.int16), 1),
    "threshold": ((np.float32,), 1),
    "missing_right": ((np.bool_,), 1),
    "value": ((np.float32,), 2),
}
_LEAF_KIND = ((np.int8, np.int16, np.int32), 1)
"""Types and number of dimensions of `leaf`. In files without it, each leaf has its own row."""


def _narrowed(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array of whole numbers from -1 in the narrowest type that holds them."""
    largest = int(array.max(initial=0))
    kinds = [kind for kind in (np.int8, np.int16) if largest <= np.iinfo(kind).max]
    return array.astype(kinds[0] if kinds else np.int32)


def join_trees(parts: Sequence[TreeArrays]) -> TreeArrays:
    """Return the trees of all parts, one part after another; there is at least one part."""
    if len(parts) == 1:
        return parts[0]
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _KINDS}
    begins = np.cumsum([0, *(len(part.value) for part in parts)])
    leaf = [part.leaf + begin for part, begin in zip(parts, begins, strict=False)]
    arrays["value"], arrays["leaf"] = _merge_equal_values(arrays["value"], np.concatenate(leaf))
    for array in arrays.values():
        array.flags.writeable = False
    return TreeArrays(**arrays)


@dataclass(frozen=True, eq=False)
class TreeNodes:
    """One tree in the layout of libraries: nodes in any order, the root first, name their children.

    All arrays but `value` are (nodes,).
    """

    left: npt.NDArray[Any]
    right: npt.NDArray[Any]
    is_leaf: npt.NDArray[np.bool_]
    column: npt.NDArray[Any]
    threshold: npt.NDArray[np.float64]
    missing_right: npt.NDArray[np.bool_]
    value: Floats
    """Values of each node (nodes, V); only those of leaves are used."""


def tree_from_nodes(nodes: TreeNodes) -> TreeArrays:
    """Return the tree as `TreeArrays` of one tree."""
    order = _breadth_first_order(nodes)
    inner = order[~nodes.is_leaf[order]]
    leaves = order[nodes.is_leaf[order]]
    arrays: dict[str, npt.NDArray[Any]] = {
        "n_nodes": np.array([len(order)], dtype=np.int32),
        "column": np.where(nodes.is_leaf, LEAF, nodes.column)[order].astype(np.int16),
        "threshold": round_down_to_float32(nodes.threshold[inner]),
        "missing_right": nodes.missing_right[inner].astype(np.bool_),
    }
    values = nodes.value[leaves].astype(np.float32)
    arrays["value"], arrays["leaf"] = _merge_equal_values(values, np.arange(len(leaves)))
    for array in arrays.values():
        array.flags.writeable = False
    return TreeArrays(**arrays)


def _merge_equal_values(
    value: npt.NDArray[np.float32], leaf: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """Return `TreeArrays.value` and `TreeArrays.leaf`, with equal rows of several values merged."""
    if value.shape[1] > 1:
        value, places = np.unique(value, axis=0, return_inverse=True)
        leaf = places.ravel()[leaf]
    return value, leaf.astype(np.int32)


def round_down_to_float32(thresholds: Floats) -> npt.NDArray[np.float32]:
    """Return the largest float32 numbers not above `thresholds`, which separate float32 alike."""
    near = thresholds.astype(np.float32)
    below = np.nextafter(near, np.float32(-np.inf))
    return np.where(near.astype(np.float64) > thresholds, below, near)


def _breadth_first_order(nodes: TreeNodes) -> npt.NDArray[np.int64]:
    levels = [np.zeros(1, dtype=np.int64)]
    while True:
        inner = levels[-1][~nodes.is_leaf[levels[-1]]]
        if not len(inner):
            return np.concatenate(levels)
        levels.append(np.column_stack([nodes.left[inner], nodes.right[inner]]).ravel())


def _check_trees(trees: TreeArrays, n_columns: int) -> None:
    """Raise ValueError unless every path from a root ends at a leaf that has a value."""
    inner = trees.column != LEAF
    columns = trees.column[inner]
    sizes = trees.n_nodes.astype(np.int64)
    check_content(bool((sizes >= 1).all()), "a tree without nodes", sizes)
    check_content(int(sizes.sum()) == len(trees.column), "nodes of no tree", len(trees.column))
    in_view = bool(((columns >= 0) & (columns < n_columns)).all())
    check_content(in_view, f"a column beyond {n_columns}", len(columns))
    n_inner = len(columns)
    check_content(
        len(trees.threshold) == n_inner, "not a threshold for each node", len(trees.threshold)
    )
    check_content(len(trees.missing_right) == n_inner, "not a way for each node", n_inner)
    n_leaves = len(trees.column) - n_inner
    check_content(len(trees.leaf) == n_leaves, "not a value for each leaf", len(trees.leaf))
    known = bool(((trees.leaf >= 0) & (trees.leaf < len(trees.value))).all())
    check_content(known, "a leaf without a value", len(trees.value))
    check_content(not np.isnan(trees.threshold).any(), "a threshold that is no number", n_inner)
    check_content(bool(np.isfinite(trees.value).all()), "a value that is no number", n_leaves)
    child, own, last = child_positions(trees)
    # A child stands behind its parent and in the same tree, so every path ends at a node.
    check_content(bool((child[inner] > own[inner]).all()), "a node that leads back", n_inner)
    check_content(bool((child[inner] + 1 <= last[inner]).all()), "a node that leads out", n_inner)


def child_positions(trees: TreeArrays) -> tuple[npt.NDArray[np.int64], ...]:
    """Return the positions of each node's left child, of the node, and of its tree's last node."""
    sizes = trees.n_nodes.astype(np.int64)
    roots = np.cumsum(sizes) - sizes
    inner = (trees.column != LEAF).astype(np.int64)
    before = np.cumsum(inner) - inner  # number of inner nodes before each node, of all trees
    root = np.repeat(roots, sizes)
    child = root + 1 + 2 * (before - np.repeat(before[roots], sizes))
    return child, np.arange(len(inner)), np.repeat(roots + sizes - 1, sizes)


class _TreeWalk:
    """Walks rows down trees, with arrays that have a cell for each node."""

    def __init__(self, trees: TreeArrays) -> None:
        child, _, _ = child_positions(trees)
        inner = trees.column != LEAF
        sizes = trees.n_nodes.astype(np.int64)
        self.roots = (np.cumsum(sizes) - sizes).tolist()
        self.value_place = np.zeros(len(inner), dtype=np.intp)
        self.value_place[~inner] = trees.leaf
        self._inner = inner
        self._child = child.astype(np.int32 if len(child) < 2**31 else np.int64)
        self._column = np.where(inner, trees.column, 0).astype(np.intp)
        self._threshold = np.zeros(len(inner), dtype=np.float32)
        self._threshold[inner] = trees.threshold
        self._missing_right = np.zeros(len(inner), dtype=np.bool_)
        self._missing_right[inner] = trees.missing_right

    def leaves(self, rows: npt.NDArray[np.float32], root: int) -> npt.NDArray[np.intp]:
        """Return the leaf (N,) that each row (N, F) reaches from `root`."""
        found = np.full(len(rows), root, dtype=np.intp)
        if not self._inner[root] or not len(rows):
            return found
        cells, n_columns = rows.ravel(), rows.shape[1]
        has_missing = bool(np.isnan(cells).any())
        first_cell = np.arange(len(rows)) * n_columns
        going, node = np.arange(len(rows)), found.copy()
        while len(going):
            cell = cells.take(first_cell + self._column.take(node))
            right = cell > self._threshold.take(node)
            if has_missing:
                right |= np.isnan(cell) & self._missing_right.take(node)
            node = self._child.take(node) + right
            goes_on = self._inner.take(node)
            if not goes_on.all():
                ended = ~goes_on
                found[going[ended]] = node[ended]
                going, node, first_cell = going[goes_on], node[goes_on], first_cell[goes_on]
        return found


LARGEST_TREE_NUMBER = 1e30
"""Largest absolute value of a scaled number in a view: scikit-learn refuses infinite numbers."""
LARGEST_THRESHOLD = 2 * LARGEST_TREE_NUMBER
"""Threshold that divides rows as a larger one does: into those with a number and those without."""


def tree_view(columns: TableColumns, rows: TableRows) -> npt.NDArray[np.float32]:
    """Return the view (N, F): scaled numbers, then codes of categories."""
    n_numbers = len(columns.numbers)
    view = np.empty((len(rows), n_tree_columns(columns)), dtype=np.float32)
    mean, scale = (
        np.array([getattr(column, name) for column in columns.numbers])
        for name in ("mean", "scale")
    )
    view[:, :n_numbers] = ((rows.numbers - mean) / scale).clip(
        -LARGEST_TREE_NUMBER, LARGEST_TREE_NUMBER
    )
    known = np.array([column.n_codes for column in columns.categories])
    view[:, n_numbers:] = np.where(rows.codes < known, rows.codes, np.nan)
    return view


def spread_view(columns: TableColumns, rows: TableRows) -> npt.NDArray[np.float32]:
    """Return the spread view (N, F').

    It has numbers, codes of the categories that are not spread, then the kinds of each spread
    category, which are all 0 if its cell is missing.
    """
    places = spread_categories(columns)
    plain = np.delete(tree_view(columns, rows), [len(columns.numbers) + i for i in places], axis=1)
    kinds = [rows.codes[:, [i]] == np.arange(columns.categories[i].n_codes) for i in places]
    return np.concatenate([plain, *kinds], axis=1, dtype=np.float32)
