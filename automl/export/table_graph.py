"""Writes all that happens to a row as one ONNX graph, for models that are no networks.

The graph has the inputs of `network_graph.py` and treats them in the same way, in the precision of
`tree_view` and `one_hot`: float64, rounded to float32 where they round. Trees compare float32
numbers, which is exact. The module needs onnx, and no torch.

Trees become the operator `TreeEnsemble` of `ai.onnx.ml`. It takes a third of the bytes of
`TreeEnsembleRegressor`, whose nodes hold the name of a mode and whose leaves hold several values. A
leaf here has one number. For leaves with several values that number is a row of a table of values,
which holds equal values once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from automl.config import Task
from automl.data.cells import LARGEST_NUMBER as MISSING_BEYOND
from automl.data.columns import TableColumns
from automl.data.features import STANDARDISED_LIMIT
from automl.data.target_encoding import TargetEncoding
from automl.models.families.table_estimator import ClassScoreLayout
from automl.models.families.table_family import spread_categories
from automl.models.families.tree_arrays import (
    LARGEST_TREE_NUMBER,
    LEAF,
    TreeArrays,
    child_positions,
)

ONNX_ML_DOMAIN, TREE_OPERATOR = "ai.onnx.ml", "TreeEnsemble"
_NODE_BYTES, _VALUE_BYTES = 18, 4
"""Upper bounds of the bytes that a node and a value take in a file."""
_SUM = 1


def estimate_file_bytes(trees: TreeArrays) -> int:
    """Return an estimate of the bytes of the trees in a file, rather too large than too small."""
    return len(trees.column) * _NODE_BYTES + trees.value.size * _VALUE_BYTES


def tree_attributes(
    trees: TreeArrays,
    leaf_numbers: npt.NDArray[Any],
    targets: npt.NDArray[np.int64],
    n_targets: int,
) -> dict[str, Any]:
    """Return the attributes with which the operator gives (N, n_targets) float32 sums.

    A row's sum for a target is that of the `leaf_numbers` (leaves,) of the leaves that the row
    reaches in the trees of this target. `targets` (T,) has the target of each tree. Leaves of equal
    target and number are one leaf in the file.
    """
    sizes = trees.n_nodes.astype(np.int64)
    of_leaf = np.repeat(targets, sizes)[trees.column == LEAF]
    bits = np.ascontiguousarray(leaf_numbers, dtype=np.float32).view(np.uint32)
    first, shared = _shared_leaves(of_leaf.astype(np.int64) << 32 | bits)
    links = _Links.of(trees, shared)
    attributes = {
        "aggregate_function": _SUM,
        "n_targets": n_targets,
        "tree_roots": links.roots.tolist(),
        "nodes_featureids": links.column.tolist(),
        "nodes_splits": numpy_helper.from_array(links.threshold, "thresholds"),
        "nodes_modes": numpy_helper.from_array(np.zeros(len(links.column), np.uint8), "modes"),
        "nodes_truenodeids": links.left.tolist(),
        "nodes_trueleafs": links.left_ends.tolist(),
        "nodes_falsenodeids": links.right.tolist(),
        "nodes_falseleafs": links.right_ends.tolist(),
        "leaf_targetids": of_leaf[first].tolist(),
        "leaf_weights": numpy_helper.from_array(bits[first].view(np.float32), "leaves"),
    }
    if links.missing_left.any():
        attributes["nodes_missing_value_tracks_true"] = links.missing_left.tolist()
    return attributes


def _shared_leaves(
    leaves: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return a place of each distinct leaf, and the number of each leaf among the distinct ones.

    The most frequent leaves have the lowest numbers, which take the fewest bytes in a file.
    """
    _, first, shared, counts = np.unique(
        leaves, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(-counts, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[shared]


@dataclass(frozen=True, eq=False)
class _Links:
    """Inner nodes that name their children, each by its number among inner nodes or leaves."""

    roots: npt.NDArray[np.int64]
    column: npt.NDArray[np.int64]
    threshold: npt.NDArray[np.float32]
    missing_left: npt.NDArray[np.int64]
    left: npt.NDArray[np.int64]
    left_ends: npt.NDArray[np.int64]
    """1 where the left child is a leaf."""
    right: npt.NDArray[np.int64]
    right_ends: npt.NDArray[np.int64]

    @classmethod
    def of(cls, trees: TreeArrays, leaf_numbers: npt.NDArray[np.int64]) -> _Links:
        """Return the links of `trees`, whose leaves have the numbers `leaf_numbers` (leaves,).

        A tree of one leaf gets an inner node, both of whose children are this leaf.
        """
        child = child_positions(trees)[0]
        is_leaf = trees.column == LEAF
        number = np.cumsum(~is_leaf) - 1
        number[is_leaf] = leaf_numbers.ravel()
        sizes = trees.n_nodes.astype(np.int64)
        root = np.cumsum(sizes) - sizes
        alone, inner = root[is_leaf[root]], np.flatnonzero(~is_leaf)
        left = np.concatenate([child[inner], alone])
        right = np.concatenate([child[inner] + 1, alone])
        roots = number[root]
        roots[is_leaf[root]] = len(inner) + np.arange(len(alone))
        none = np.zeros(len(alone), dtype=np.int64)
        return cls(
            roots=roots,
            column=np.concatenate([trees.column[inner], none]),
            threshold=np.concatenate([trees.threshold, none.astype(np.float32)]),
            missing_left=np.concatenate([~trees.missing_right, none]).astype(np.int64),
            left=number[left],
            left_ends=is_leaf[left].astype(np.int64),
            right=number[right],
            right_ends=is_leaf[right].astype(np.int64),
        )


NUMBERS, CODES, ANSWER = "numbers", "codes", "answer"
OPSET, TREES_OPSET, IR = 18, 5, 10
"""ONNX Runtime reads trees of this version since 1.20 of November 2024."""
_VALUES_AT_ONCE = 512
"""About how many values of leaves are looked up together for a row."""


@runtime_checkable
class OnnxDrawable(Protocol):
    """A model that can be written into such a graph."""

    def draw(self, graph: TableGraph) -> str:
        """Add the model's outputs to the graph, and return their name."""


class TableGraph:
    """A `ModelGraph` in ONNX. Names stand for arrays (B, …), computed from B rows."""

    def __init__(self, columns: TableColumns) -> None:
        self._columns, self._numbers = columns, NUMBERS
        self._encoded: dict[TargetEncoding, TableGraph] = {}
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._functions: list[onnx.FunctionProto] = []
        self._opsets = {"": OPSET, ONNX_ML_DOMAIN: TREES_OPSET}
        self._ir = IR

    def add(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add an operator, and return the name of its result."""
        name = f"{operator}_{len(self._nodes)}"
        node = helper.make_node(operator, inputs, [name], name, domain=domain, **attributes)
        self._nodes.append(node)
        return name

    def constant(self, value: npt.ArrayLike, dtype: type[np.generic] = np.float64) -> str:
        name = f"constant_{len(self._constants)}"
        array = np.asarray(value, dtype=dtype)
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def clipped(self, numbers: str, low: float, high: float) -> str:
        return self.add("Clip", numbers, self.constant(low), self.constant(high))

    def encoded(self, encoding: TargetEncoding | None) -> TableGraph:
        """Return a graph that writes into this one, and has a model's means in place of levels."""
        if encoding is None or encoding in self._encoded:
            return self if encoding is None else self._encoded[encoding]
        found, order = [self._numbers], [*range(len(self._columns.numbers))]
        for (place, _), table in zip(self._columns.encoded, encoding.tables, strict=True):
            level = self.add("Cast", self._taken(self._numbers, [place]), to=TensorProto.INT64)
            order[place] = len(order) + len(found) - 1
            found.append(self.add("Gather", self.constant(table), level, axis=0))
        self._encoded[encoding] = graph = TableGraph(self._columns)
        graph._nodes, graph._constants = self._nodes, self._constants
        graph._numbers = self._taken(self.joined(found), order)
        return graph

    def joined(self, parts: Sequence[str]) -> str:
        """Add a join of the parts' columns, and return its name."""
        return self.add("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]

    @cached_property
    def one_hot(self) -> str:
        """Name of the one-hot features (B, D), float64."""
        parts = []
        if self._columns.numbers:
            fill = self._of_numbers("fill")
            filled = self.add("Where", self._present, self._numbers, fill)
            parts.append(
                self._as_float32(
                    self.clipped(self._scaled(filled), -STANDARDISED_LIMIT, STANDARDISED_LIMIT)
                )
            )
            marked = [i for i, c in enumerate(self._columns.numbers) if c.has_indicator]
            if marked:
                missing = self._taken(self.add("Not", self._present), marked)
                parts.append(self.add("Cast", missing, to=TensorProto.DOUBLE))
        if self._columns.categories:
            parts.append(self._kinds(range(len(self._columns.categories))))
        return self.joined(parts)

    def _kinds(self, places: Iterable[int]) -> str:
        """Add a column of zeros and ones for each value of these categories; return their name."""
        pairs = [(i, n) for i in places for n in range(self._columns.categories[i].n_codes)]
        each = self._taken(self._told, [i for i, _ in pairs])
        same = self.add("Equal", each, self.constant([n for _, n in pairs], np.int64))
        return self.add("Cast", same, to=TensorProto.DOUBLE)

    @cached_property
    def spread_view(self) -> str:
        """Name of what `spread_view` computes (B, F'), float64."""
        places = spread_categories(self._columns)
        if not places:
            return self.tree_view
        n_numbers, gone = len(self._columns.numbers), set(places)
        stay = [i for i in range(len(self._columns.all)) if i - n_numbers not in gone]
        parts = [self._taken(self.tree_view, stay)] if stay else []
        return self.joined([*parts, self._kinds(places)])

    @cached_property
    def tree_view(self) -> str:
        """Name of what `tree_view` computes (B, F), float64."""
        parts = []
        if self._columns.numbers:
            scaled = self.clipped(
                self._scaled(self._numbers), -LARGEST_TREE_NUMBER, LARGEST_TREE_NUMBER
            )
            found = self.add("Where", self._present, scaled, self.constant(np.nan))
            parts.append(found)
        if self._columns.categories:
            other = [len(c.categories) if c.has_other else np.nan for c in self._columns.categories]
            codes = self.add("Cast", CODES, to=TensorProto.DOUBLE)
            parts.append(self.add("Where", self._known, codes, self.constant(other)))
        return self.joined(parts)

    def tree_sums(self, trees: TreeArrays, view: str, n_groups: int = 1) -> str:
        """Add what `TreeArrays.sums` computes, (B, n_groups · V); return its name."""
        view = self.add("Cast", view, to=TensorProto.FLOAT)
        number = np.arange(len(trees.n_nodes))
        if trees.n_values == 1:
            numbers = trees.value[trees.leaf, 0]
            attributes = tree_attributes(trees, numbers, number % n_groups, n_groups)
            sums = self.add(TREE_OPERATOR, view, domain=ONNX_ML_DOMAIN, **attributes)
            return self.add("Cast", sums, to=TensorProto.DOUBLE)
        assert n_groups == 1, "no family has both"
        attributes = tree_attributes(trees, trees.leaf, number, len(number))
        found = self.add(TREE_OPERATOR, view, domain=ONNX_ML_DOMAIN, **attributes)
        places = self.add("Cast", found, to=TensorProto.INT64)
        return self._sums_of_values(places, len(number), trees.value)

    def _sums_of_values(self, places: str, n_trees: int, table: npt.NDArray[np.float32]) -> str:
        """Add the sums (B, V) of the rows of a table (U, V) at these places (B, T)."""
        values, axis = self.constant(table, np.float32), self.constant([1], np.int64)
        at_once = max(1, _VALUES_AT_ONCE // table.shape[1])
        sums = []
        for begin in range(0, n_trees, at_once):
            some = self._taken(places, range(begin, min(n_trees, begin + at_once)))
            found = self.add("Gather", values, some, axis=0)
            found = self.add("Cast", found, to=TensorProto.DOUBLE)
            sums.append(self.add("ReduceSum", found, axis, keepdims=0))
        return self.add("Sum", *sums) if len(sums) > 1 else sums[0]

    def every_row(self, values: npt.NDArray[np.float64]) -> str:
        """Add an array (B, K) that has the same K values in each row; return its name."""
        given = NUMBERS if self._columns.numbers else CODES
        n_rows = self.add("Shape", given, start=0, end=1)
        shape = self.add("Concat", n_rows, self.constant([len(values)], np.int64), axis=0)
        return self.add("Expand", self.constant(values[None]), shape)

    def class_outputs(self, classes: ClassScoreLayout, given: str) -> str:
        """Add what `ClassScoreLayout.outputs` computes, (B, n_outputs); return its name."""
        if classes.unit is not None:
            mean, scale = map(self.constant, classes.unit)
            return self.add("Div", self.add("Sub", self.add("Exp", given), mean), scale)
        present = classes.present.tolist()
        if not present:
            return given
        if len(present) == 2:
            given = self._padded(given, 0.0, before=True)
        if present == [*range(classes.n_outputs)]:
            return given
        place = {number: i for i, number in enumerate(present)}
        given = self._padded(given, classes.absent_score, before=False)
        return self._taken(given, [place.get(i, len(present)) for i in range(classes.n_outputs)])

    def answered(self, outputs: str, task: Task, unit: tuple[float, float]) -> str:
        """Add probabilities (B, classes), or values (B,) in the target's unit; return the name."""
        if task is Task.classification:
            return self.add("Softmax", outputs, axis=1)
        mean, scale = unit
        value = self.add("Gather", outputs, self.constant(0, np.int64), axis=1)
        return self.add("Add", self.add("Mul", value, self.constant(scale)), self.constant(mean))

    def take_in(self, model: onnx.ModelProto) -> str:
        """Add a whole graph that has the same inputs, and return the name of its one output."""
        own = onnx.compose.add_prefix(model, "network_", rename_inputs=False)
        self._nodes += own.graph.node
        self._constants += own.graph.initializer
        self._functions += own.functions
        self._ir = max(self._ir, own.ir_version)
        self._opsets |= {opset.domain: opset.version for opset in own.opset_import}
        return str(own.graph.output[0].name)

    def model(self, answer: str, task: Task, n_outputs: int) -> onnx.ModelProto:
        """Return the whole model, whose output is `answer`."""
        answer = self.add("Identity", answer)
        self._nodes[-1].output[0] = ANSWER
        sizes = {
            NUMBERS: (TensorProto.DOUBLE, len(self._columns.numbers)),
            CODES: (TensorProto.INT64, len(self._columns.categories)),
        }
        inputs = [
            helper.make_tensor_value_info(name, kind, ["rows", size])
            for name, (kind, size) in sizes.items()
            if size
        ]
        shape: list[str | int | None] = ["rows"]
        shape += [n_outputs] * (task is Task.classification)
        outputs = [helper.make_tensor_value_info(ANSWER, TensorProto.DOUBLE, shape)]
        graph = helper.make_graph(self._nodes, "automl", inputs, outputs, self._constants)
        return helper.make_model(
            graph,
            functions=self._functions,
            opset_imports=[helper.make_opsetid(*opset) for opset in self._opsets.items()],
            ir_version=self._ir,
        )

    @cached_property
    def _present(self) -> str:
        """Return a (B, numbers) mask of the numbers that are present; NaN is not."""
        size = self.add("Abs", self._numbers)
        return self.add("LessOrEqual", size, self.constant(MISSING_BEYOND))

    @cached_property
    def _known(self) -> str:
        """Return a (B, categories) mask of the codes that belong to a category."""
        above = self.add("GreaterOrEqual", CODES, self.constant(0, np.int64))
        return self.add("And", above, self.add("Less", CODES, self._n_known))

    @cached_property
    def _told(self) -> str:
        """Return (B, categories) codes; all unknown ones become the code after the last."""
        return self.add("Where", self._known, CODES, self._n_known)

    @cached_property
    def _n_known(self) -> str:
        n_known = [len(column.categories) for column in self._columns.categories]
        return self.constant(n_known, np.int64)

    def _scaled(self, numbers: str) -> str:
        centred = self.add("Sub", numbers, self._of_numbers("mean"))
        return self.add("Div", centred, self._of_numbers("scale"))

    def _of_numbers(self, name: str) -> str:
        return self.constant([getattr(column, name) for column in self._columns.numbers])

    def _as_float32(self, numbers: str) -> str:
        narrow = self.add("Cast", numbers, to=TensorProto.FLOAT)
        return self.add("Cast", narrow, to=TensorProto.DOUBLE)

    def _taken(self, array: str, places: Iterable[int]) -> str:
        return self.add("Gather", array, self.constant([*places], np.int64), axis=1)

    def _padded(self, array: str, value: float, *, before: bool) -> str:
        """Return the array with one more column of `value`, before or after the others."""
        widths = self.constant([0, before, 0, not before], np.int64)
        return self.add("Pad", array, widths, self.constant(value))
