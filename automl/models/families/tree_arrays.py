"""Decision trees as plain arrays of narrow types, and what they say of rows. numpy alone.

The nodes of a tree stand level by level, the children of one node beside each other, so that where
they stand follows from which nodes have any: no node names another. A node sends a row to its left
child where its column is at most the threshold. Columns and thresholds are float32
(`tree_arrays.py`): a float64 threshold rounded down tells the same float32 numbers apart.

The views of a table that trees take: a column each, numbers scaled and categories as codes; or
categories of few kinds spread, a column of 0 and 1 for each kind.

Float32, as scikit-learn's forests compare in: what a threshold tells apart in training it tells
apart in every later row. Numbers are scaled in float64 first, which changes no tree and keeps of a
time in seconds since 1970 what float32 would round away. Missing cells, and texts that training
never saw, are NaN; trees learn where to send it.
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
"""Columns of the view, and at which of their numbers what a model says may jump."""
NO_BORDERS: Borders = (np.empty(0, dtype=np.int64), np.empty(0))


@runtime_checkable
class BorderedModel(Protocol):
    """A model that has such, or might."""

    def borders(self) -> Borders:
        """Of all its trees."""


_ROWS_AT_ONCE = 65536
"""Of 4,096 the steps down a tree took 1.7 times as long, as each costs some µs however few rows go
on (560 trees of Adult); of 200,000 1.2 times, as the arrays no longer stay in a core's cache."""
LEAF = -1
"""In place of a leaf's column."""


@dataclass(frozen=True, eq=False)
class TreeArrays:
    """Several trees, whose nodes stand one tree after another. Nobody writes to the arrays."""

    n_nodes: npt.NDArray[np.int32]
    """(T,) of each tree."""
    column: npt.NDArray[np.int16]
    """(nodes,) by which a node tells rows apart; -1: it is a leaf."""
    threshold: npt.NDArray[np.float32]
    """(inner nodes,)."""
    missing_right: npt.NDArray[np.bool_]
    """(inner nodes,) whether a row without the column goes right."""
    value: npt.NDArray[np.float32]
    """(U, V) what leaves say. Of several values equal rows stand there once."""
    leaf: npt.NDArray[np.int32]
    """(leaves,) which row of `value` a leaf says."""

    @property
    def n_values(self) -> int:
        """V."""
        return int(self.value.shape[1])

    def plain(self) -> dict[str, Any]:
        """For a checkpoint: places of leaves are narrow, and left out of leaves of one value."""
        plain = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        del plain["leaf"]
        if self.n_values > 1:
            is_narrow = len(self.value) <= np.iinfo(np.int16).max
            plain["leaf"] = self.leaf.astype(np.int16 if is_narrow else np.int32)
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], n_columns: int) -> TreeArrays:
        """What `plain` gave, of a view of so many columns. Raises ValueError for what are no trees:
        the file that they stand in may be a stranger's."""
        arrays = {name: plain[name] for name in _KINDS}
        arrays["leaf"] = plain.get("leaf")
        if arrays["leaf"] is None:
            arrays["leaf"] = np.arange(len(arrays["value"]), dtype=np.int32)
        for name, (dtypes, n_dimensions) in (*_KINDS.items(), ("leaf", _LEAF_KIND)):
            array = arrays[name]
            fits = isinstance(array, np.ndarray) and array.dtype in dtypes
            check_content(fits and array.ndim == n_dimensions, f"{name} of no tree", type(array))
        trees = cls(**{**arrays, "leaf": arrays["leaf"].astype(np.int32)})
        _check_trees(trees, n_columns)
        return trees

    def borders(self) -> Borders:
        """Every threshold."""
        columns = self.column[self.column != LEAF]
        return columns.astype(np.int64), self.threshold.astype(np.float64)

    def sums(self, view: npt.NDArray[np.float32], n_groups: int = 1) -> Floats:
        """(N, n_groups · V) for the rows of a view (N, F): the sum of what the trees say, of each
        group its own; a tree is of the group of its number modulo `n_groups`."""
        out = np.zeros((len(view), n_groups * self.n_values))
        walk = self._walk
        for begin in range(0, len(view), _ROWS_AT_ONCE):
            rows = np.ascontiguousarray(view[begin : begin + _ROWS_AT_ONCE])
            some = out[begin : begin + _ROWS_AT_ONCE]
            for number, root in enumerate(walk.roots):
                at = number % n_groups * self.n_values
                leaves = walk.leaves(rows, root)
                some[:, at : at + self.n_values] += self.value[walk.value_place[leaves]]
        return out

    @cached_property
    def _walk(self) -> _TreeWalk:
        return _TreeWalk(self)


_KINDS: Mapping[str, tuple[tuple[type[np.generic], ...], int]] = {
    "n_nodes": ((np.int32,), 1),
    "column": ((np.int16,), 1),
    "threshold": ((np.float32,), 1),
    "missing_right": ((np.bool_,), 1),
    "value": ((np.float32,), 2),
}
_LEAF_KIND = ((np.int16, np.int32), 1)
"""Files of before have none: each leaf has its own row."""


def join_trees(parts: Sequence[TreeArrays]) -> TreeArrays:
    """All trees of the parts, which are one at least, one part after another."""
    if len(parts) == 1:
        return parts[0]
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _KINDS}
    begins = np.cumsum([0, *(len(part.value) for part in parts)])
    leaf = [part.leaf + begin for part, begin in zip(parts, begins, strict=False)]
    arrays["value"], arrays["leaf"] = _shared(arrays["value"], np.concatenate(leaf))
    for array in arrays.values():
        array.flags.writeable = False
    return TreeArrays(**arrays)


@dataclass(frozen=True, eq=False)
class TreeNodes:
    """One tree as libraries keep it: nodes in any order, the root first, that name their children.
    All arrays are (nodes,)."""

    left: npt.NDArray[Any]
    right: npt.NDArray[Any]
    is_leaf: npt.NDArray[np.bool_]
    column: npt.NDArray[Any]
    threshold: npt.NDArray[np.float64]
    missing_right: npt.NDArray[np.bool_]
    value: Floats
    """(nodes, V)."""


def tree_from_nodes(nodes: TreeNodes) -> TreeArrays:
    """The one tree."""
    order = _level_by_level(nodes)
    inner = order[~nodes.is_leaf[order]]
    leaves = order[nodes.is_leaf[order]]
    arrays: dict[str, npt.NDArray[Any]] = {
        "n_nodes": np.array([len(order)], dtype=np.int32),
        "column": np.where(nodes.is_leaf, LEAF, nodes.column)[order].astype(np.int16),
        "threshold": round_down_to_float32(nodes.threshold[inner]),
        "missing_right": nodes.missing_right[inner].astype(np.bool_),
    }
    values = nodes.value[leaves].astype(np.float32)
    arrays["value"], arrays["leaf"] = _shared(values, np.arange(len(leaves)))
    for array in arrays.values():
        array.flags.writeable = False
    return TreeArrays(**arrays)


def _shared(
    value: npt.NDArray[np.float32], leaf: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """`TreeArrays.value` and `TreeArrays.leaf` of leaves that may say equal rows of `value`."""
    if value.shape[1] > 1:
        value, places = np.unique(value, axis=0, return_inverse=True)
        leaf = places.ravel()[leaf]
    return value, leaf.astype(np.int32)


def round_down_to_float32(thresholds: Floats) -> npt.NDArray[np.float32]:
    """The largest float32 numbers that are not above: x ≤ t says the same of each float32 x."""
    near = thresholds.astype(np.float32)
    below = np.nextafter(near, np.float32(-np.inf))
    return np.where(near.astype(np.float64) > thresholds, below, near)


def _level_by_level(nodes: TreeNodes) -> npt.NDArray[np.int64]:
    levels = [np.zeros(1, dtype=np.int64)]
    while True:
        inner = levels[-1][~nodes.is_leaf[levels[-1]]]
        if not len(inner):
            return np.concatenate(levels)
        levels.append(np.column_stack([nodes.left[inner], nodes.right[inner]]).ravel())


def _check_trees(trees: TreeArrays, n_columns: int) -> None:
    """Raises ValueError unless every way from a root ends at a leaf that has a value."""
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
    # Behind it and in its tree: so a way ends, and at a node that is there.
    check_content(bool((child[inner] > own[inner]).all()), "a node that leads back", n_inner)
    check_content(bool((child[inner] + 1 <= last[inner]).all()), "a node that leads out", n_inner)


def child_positions(trees: TreeArrays) -> tuple[npt.NDArray[np.int64], ...]:
    """Of each node where its left child stands, where it stands itself, and its tree's last."""
    sizes = trees.n_nodes.astype(np.int64)
    roots = np.cumsum(sizes) - sizes
    inner = (trees.column != LEAF).astype(np.int64)
    before = np.cumsum(inner) - inner  # inner nodes before each, of all trees
    root = np.repeat(roots, sizes)
    child = root + 1 + 2 * (before - np.repeat(before[roots], sizes))
    return child, np.arange(len(inner)), np.repeat(roots + sizes - 1, sizes)


class _TreeWalk:
    """The trees made ready to be walked down."""

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
        """(N,) the leaf that each row (N, F) comes to from this root."""
        found = np.full(len(rows), root, dtype=np.intp)
        if not self._inner[root] or not len(rows):
            return found
        cells, n_columns = rows.ravel(), rows.shape[1]
        has_missing = bool(np.isnan(cells).any())
        at = np.arange(len(rows)) * n_columns  # where a row's cells begin
        going, node = np.arange(len(rows)), found.copy()
        while len(going):
            cell = cells.take(at + self._column.take(node))
            right = cell > self._threshold.take(node)
            if has_missing:
                right |= np.isnan(cell) & self._missing_right.take(node)
            node = self._child.take(node) + right
            goes_on = self._inner.take(node)
            if not goes_on.all():
                ended = ~goes_on
                found[going[ended]] = node[ended]
                going, node, at = going[goes_on], node[goes_on], at[goes_on]
        return found


LARGEST_TREE_NUMBER = 1e30
"""Scaled numbers end here: scikit-learn refuses infinite ones."""


def tree_view(columns: TableColumns, rows: TableRows) -> npt.NDArray[np.float32]:
    """(N, F): numbers, then codes of categories."""
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
    """(N, F'): numbers, codes of the categories that stay, then the kinds of each other one, all of
    them 0 where its cell is missing."""
    places = spread_categories(columns)
    plain = np.delete(tree_view(columns, rows), [len(columns.numbers) + i for i in places], axis=1)
    kinds = [rows.codes[:, [i]] == np.arange(columns.categories[i].n_codes) for i in places]
    return np.concatenate([plain, *kinds], axis=1, dtype=np.float32)
