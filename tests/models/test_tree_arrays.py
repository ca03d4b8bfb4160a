"""Trees as arrays: walked as they were made, and refused where a way would not end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from automl.models.families.tree_arrays import (
    TreeArrays,
    TreeNodes,
    join_trees,
    round_down_to_float32,
    tree_from_nodes,
)

FLOATS = st.floats(-1e30, 1e30, allow_nan=False)


@given(FLOATS, st.floats(-(2.0**100), 2.0**100, width=32))
def test_a_threshold_rounded_down_tells_the_same_numbers_apart(threshold: float, x: float) -> None:
    (rounded,) = round_down_to_float32(np.array([threshold]))
    for number in (x, np.float32(threshold), np.nextafter(np.float32(threshold), np.float32(1e38))):
        assert (np.float32(number) <= rounded) == (float(np.float32(number)) <= threshold)


def stump(threshold: float = 0.5, *, missing_right: bool = False) -> TreeArrays:
    """Left 1, right 2, by column 1; the leaves stand in the other order."""
    return tree_from_nodes(
        TreeNodes(
            left=np.array([2, -1, -1]),
            right=np.array([1, -1, -1]),
            is_leaf=np.array([False, True, True]),
            column=np.array([1, -2, -2]),
            threshold=np.array([threshold, 0, 0]),
            missing_right=np.array([missing_right, False, False]),
            value=np.array([[0.0], [2.0], [1.0]]),
        )
    )


@pytest.mark.parametrize(("missing_right", "of_missing"), [(False, 1.0), (True, 2.0)])
def test_a_row_goes_left_where_its_cell_is_at_most_the_threshold(
    missing_right: bool, of_missing: float
) -> None:
    above = np.nextafter(np.float32(0.5), np.float32(1))
    view = np.array([[9, 0.5], [9, above], [np.nan, -1], [9, np.nan]], dtype=np.float32)
    tree = stump(missing_right=missing_right)
    assert tree.sums(view).ravel().tolist() == [1.0, 2.0, 1.0, of_missing]
    assert tree.sums(view[:0]).shape == (0, 1)


def test_a_threshold_beyond_all_numbers_parts_missing_cells_from_the_others() -> None:
    tree = stump(np.inf, missing_right=True)
    view = np.array([[0, 1e30], [0, np.nan]], dtype=np.float32)
    assert tree.sums(view).ravel().tolist() == [1.0, 2.0]


@pytest.mark.parametrize("n_values", [1, 3])
def test_the_first_trees_say_what_they_said_among_all(n_values: int) -> None:
    rng = np.random.default_rng(n_values)
    trees = []
    for n_inner in (5, 30, 0, 12):
        nodes = random_tree(rng, n_inner)
        value = rng.integers(0, 4, (len(nodes.value), n_values)).astype(np.float64)
        trees.append(tree_from_nodes(replace(nodes, value=value)))
    view = rng.normal(size=(50, 4)).astype(np.float32)
    for n in range(1, 5):
        first = join_trees(trees).first(n)
        np.testing.assert_array_equal(first.sums(view), join_trees(trees[:n]).sums(view))
        read = TreeArrays.from_plain(first.plain(), 4)
        np.testing.assert_array_equal(read.sums(view), first.sums(view))


def test_trees_of_several_groups_are_summed_apart() -> None:
    trees = join_trees([stump(), stump(), stump(), stump()])
    view = np.array([[0, 0], [0, 1]], dtype=np.float32)
    assert trees.sums(view, 2).tolist() == [[2.0, 2.0], [4.0, 4.0]]
    assert trees.sums(view).tolist() == [[4.0], [8.0]]


def random_tree(rng: np.random.Generator, n_inner: int) -> TreeNodes:
    """Leaves are split one after another, in any order."""
    left, right = np.full((2, 2 * n_inner + 1), -1)
    leaves, n_nodes = [0], 1
    for _ in range(n_inner):
        node = leaves.pop(rng.integers(len(leaves)))
        left[node], right[node] = n_nodes, n_nodes + 1
        leaves += [n_nodes, n_nodes + 1]
        n_nodes += 2
    size = len(left)
    return TreeNodes(
        left=left,
        right=right,
        is_leaf=left < 0,
        column=rng.integers(0, 4, size),
        threshold=rng.normal(size=size),
        missing_right=rng.random(size) < 0.5,
        value=rng.normal(size=(size, 2)),
    )


def walked(nodes: TreeNodes, row: npt.NDArray[np.float32]) -> list[float]:
    """Return the values of the leaf that a row reaches, node by node."""
    node = 0
    while not nodes.is_leaf[node]:
        cell = float(row[nodes.column[node]])
        right = nodes.missing_right[node] if cell != cell else cell > nodes.threshold[node]
        node = int((nodes.right if right else nodes.left)[node])
    return [float(value) for value in nodes.value[node].astype(np.float32)]


@pytest.mark.parametrize("seed", range(5))
def test_trees_say_what_a_walk_from_node_to_node_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    forest = [random_tree(rng, int(n)) for n in rng.integers(0, 40, 6)]
    trees = join_trees([tree_from_nodes(nodes) for nodes in forest])
    view = rng.normal(size=(60, 4)).astype(np.float32)
    view[rng.random(view.shape) < 0.1] = np.nan
    expected = np.array([[walked(nodes, row) for nodes in forest] for row in view]).sum(axis=1)
    np.testing.assert_allclose(trees.sums(view), expected, rtol=0, atol=1e-12)
    read = TreeArrays.from_plain(trees.plain(), 4)
    np.testing.assert_array_equal(read.sums(view), trees.sums(view))


@pytest.mark.parametrize("n_shares", [3, 1_000_000])
def test_leaves_that_say_the_same_share_their_values(n_shares: int) -> None:
    """Also of several trees; a file of before, in which each leaf has its own, is read as well."""
    rng = np.random.default_rng(0)
    shares = rng.random((n_shares, 5))
    forest = [random_tree(rng, 25_000) for _ in range(2)]
    forest = [replace(one, value=shares[rng.integers(0, n_shares, 50_001)]) for one in forest]
    trees = join_trees([tree_from_nodes(nodes) for nodes in forest])
    assert len(trees.value) <= n_shares
    view = rng.normal(size=(20, 4)).astype(np.float32)
    plain = trees.plain()
    assert plain["leaf"].dtype == (np.int8 if n_shares == 3 else np.int32)
    assert plain["column"].dtype == np.int8
    before = {name: array for name, array in plain.items() if name != "leaf"}
    before["value"] = trees.value[trees.leaf]
    for read in (TreeArrays.from_plain(plain, 4), TreeArrays.from_plain(before, 4)):
        np.testing.assert_array_equal(read.sums(view), trees.sums(view))
    alone = sum(tree_from_nodes(nodes).sums(view) for nodes in forest)
    np.testing.assert_allclose(trees.sums(view), alone, atol=1e-12)


def test_what_no_missing_cell_decided_takes_no_room() -> None:
    plain = join_trees([stump(missing_right=True)] * 2).plain()
    assert "missing_right" not in plain
    assert "missing_right" in join_trees([stump(missing_right=True), stump()]).plain()
    view = np.array([[9, np.nan]], dtype=np.float32)
    assert TreeArrays.from_plain(plain, 2).sums(view).tolist() == [[4.0]]


def changed(**arrays: Any) -> dict[str, Any]:
    return {**join_trees([stump(), stump()]).plain(), **arrays}


I2, F4 = np.int16, np.float32
BAD: dict[str, dict[str, Any]] = {
    "wrong type": changed(threshold=np.array([0.5, 0.5])),
    "no array": changed(value=[1.0]),
    "more nodes than there are": changed(n_nodes=np.array([3, 4], np.int32)),
    "a tree without nodes": changed(n_nodes=np.array([6, 0], np.int32)),
    "a negative size": changed(n_nodes=np.array([9, -3], np.int32)),
    "sizes that overflow": changed(n_nodes=np.array([2**31 - 1, 2**31 - 1], np.int32)),
    "a column beyond": changed(column=np.array([2, -1, -1, 1, -1, -1], I2)),
    "a column before": changed(column=np.array([-2, -1, -1, 1, -1, -1], I2)),
    "a way that leads back": changed(column=np.array([-1, 1, -1, 1, -1, -1], I2)),
    "a way into another tree": changed(column=np.array([1, -1, 1, -1, -1, -1], I2)),
    "a way out": changed(column=np.array([1, -1, -1, 1, -1, 1], I2)),
    "too few values": changed(value=np.ones((3, 1), F4)),
    "a leaf beyond": changed(leaf=np.array([0, 1, 2, 4], I2)),
    "a leaf before": changed(leaf=np.array([0, 1, 2, -1], I2)),
    "too few leaves": changed(leaf=np.array([0, 1, 2], I2)),
    "leaves that are no places": changed(leaf=np.array([0, 1, 2, 3], F4)),
    "too few thresholds": changed(threshold=np.ones(1, F4)),
    "a threshold that is none": changed(threshold=np.array([np.nan, 0], F4)),
    "an infinite value": changed(value=np.full((4, 1), np.inf, F4)),
}


@pytest.mark.parametrize("name", list(BAD))
def test_what_are_no_trees_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=": "):
        TreeArrays.from_plain(BAD[name], 2)


def test_what_are_trees_is_not() -> None:
    make: Callable[..., TreeArrays] = TreeArrays.from_plain
    assert make(changed(), 2).n_values == 1
    none = {name: array[:0] for name, array in changed().items()}
    assert make(none, 2).sums(np.zeros((3, 2), F4)).tolist() == [[0.0]] * 3
