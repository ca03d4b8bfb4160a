"""The heavy side of forests: scikit-learn grows the trees, `tree_arrays.py` keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from automl.config import Task
from automl.data.columns import TableColumns
from automl.data.dataset import TableRows
from automl.data.scoring.metrics import Floats
from automl.models.families.table_estimator import (
    CpuModel,
    FittedRound,
    OnRound,
    TableSide,
    TrialFit,
)
from automl.models.families.table_family import check_tree_width, n_tree_columns
from automl.models.families.tree_arrays import (
    Borders,
    TreeArrays,
    TreeNodes,
    join_trees,
    tree_from_nodes,
    tree_view,
)
from automl.models.families.trees.family import TreesFamily, TreesParams
from automl.models.model_file import check_content, parse_task

if TYPE_CHECKING:
    from automl.export.table_graph import TableGraph

LEAST_SHARE = 1e-7
"""Of a class that no tree believes in: else one wrong row in a million makes the loss infinite."""


@dataclass(frozen=True, eq=False)
class ForestModel(CpuModel):
    """See `family.Model`: the mean of what the trees say."""

    trees: TreeArrays
    n_columns: int
    n_outputs: int
    task: Task

    def check_columns(self, columns: TableColumns) -> None:
        check_content(
            n_tree_columns(columns) == self.n_columns, "not its columns", len(columns.all)
        )

    def outputs(self, columns: TableColumns, rows: TableRows) -> Floats:
        sums = self.trees.sums(tree_view(columns, rows))
        return outputs_of(sums / len(self.trees.n_nodes), self.task)

    def draw(self, graph: TableGraph) -> str:
        """See `table_graph.OnnxDrawable`; the arithmetic of `outputs_of`."""
        n_trees = graph.constant(len(self.trees.n_nodes))
        mean = graph.add("Div", graph.tree_sums(self.trees, graph.tree_view), n_trees)
        if self.task is Task.regression:
            return mean
        if self.trees.n_values == 1:
            mean = graph.joined([graph.add("Sub", graph.constant(1), mean), mean])
        return graph.add("Log", graph.clipped(mean, LEAST_SHARE, 1))

    def borders(self) -> Borders:
        return self.trees.borders()


def outputs_of(mean: Floats, task: Task) -> Floats:
    """Of the trees' mean: values (N, 1), or shares of the classes, of two that of the second."""
    if task is Task.regression:
        return mean
    shares = np.column_stack([1 - mean, mean]) if mean.shape[1] == 1 else mean
    scores: Floats = np.log(shares.clip(LEAST_SHARE, 1))
    return scores


class TreesSide(TableSide):
    """See `family.HeavySide`."""

    def fit(self, fitting: TrialFit, on_round: OnRound) -> None:
        """Each round a forest of its own, whose seed follows from the trial's and the round's."""
        check_tree_width(n_tree_columns(fitting.data.columns))
        growing = _GrowingForest(fitting)
        for number in range(fitting.n_done, fitting.n_rounds):
            on_round(growing.grown(number))

    def model_of(self, state: Mapping[str, Any]) -> ForestModel:
        width, n_outputs, task = state["n_columns"], state["n_outputs"], parse_task(state)
        check_content(type(width) is int and width >= 0, "no columns", width)
        check_content(type(n_outputs) is int and n_outputs >= 1, "no outputs", n_outputs)
        trees = TreeArrays.from_plain(state["trees"], width)
        check_content(len(trees.n_nodes) > 0, "no trees", len(trees.n_nodes))
        n_values = _n_values(task, n_outputs)
        check_content(
            trees.n_values == n_values, f"not {n_values} values in a leaf", trees.n_values
        )
        return ForestModel(trees, width, n_outputs, task)


def _n_values(task: Task, n_outputs: int) -> int:
    """Of a leaf."""
    return 1 if task is Task.regression or n_outputs == 2 else n_outputs


class _GrowingForest:
    """The forest of one trial."""

    def __init__(self, fitting: TrialFit) -> None:
        self._fitting, data = fitting, fitting.data
        self._x, self._x_validation = data.view(tree_view)
        self._y = fitting.targets
        self._n_values = _n_values(data.task, data.n_outputs)
        state = fitting.state
        if state is None:
            self._parts: list[TreeArrays] = []
            self._train = np.zeros((len(data.train), self._n_values))
            self._validation = np.zeros((len(data.validation), self._n_values))
        else:
            self._parts = [TreeArrays.from_plain(state["trees"], n_tree_columns(data.columns))]
            self._train, self._validation = state["train"].copy(), state["validation"].copy()

    def grown(self, number: int) -> FittedRound:
        """After this round."""
        fitting, data = self._fitting, self._fitting.data
        forest = unfitted_tree(fitting, number).fit(self._x, self._y)
        trees = self._trees_of(forest)
        self._parts.append(trees)
        self._train += self._said(forest)
        # By ours: scikit-learn refuses missing cells in a column that had none in training.
        self._validation += trees.sums(self._x_validation)
        n_trees = sum(len(part.n_nodes) for part in self._parts)
        return FittedRound(
            round=number,
            train=(outputs_of(self._train / n_trees, data.task), data.train.y),
            validation=outputs_of(self._validation / n_trees, data.task),
            get_model=self._model,
            # Nobody goes on from the last round: `last.pt` need not hold the forest once more.
            get_state=dict if number + 1 == fitting.n_rounds else self._state,
        )

    def _by_class(self, forest: Any) -> npt.NDArray[Any] | None:
        """Which of a leaf's values a forest's classes are; None: it gives values."""
        return forest.classes_ if self._fitting.data.task is Task.classification else None

    def _said(self, forest: Any) -> Floats:
        """(N, V) what the forest's trees say of the training rows, summed up."""
        classes = self._by_class(forest)
        given = (
            forest.predict(self._x)[:, None] if classes is None else forest.predict_proba(self._x)
        )
        return self._values(given, classes) * len(forest.estimators_)

    def _values(self, given: Floats, classes: npt.NDArray[Any] | None) -> Floats:
        """(N, V) of (N, classes of a forest), which may have seen fewer than there are."""
        if classes is None:
            return given
        of_all = np.zeros((len(given), self._fitting.data.n_outputs))
        of_all[:, classes] = given
        return of_all[:, 1:] if self._n_values == 1 else of_all

    def _trees_of(self, forest: Any) -> TreeArrays:
        classes = self._by_class(forest)
        return join_trees([self._tree_of(fitted.tree_, classes) for fitted in forest.estimators_])

    def _tree_of(self, tree: Any, classes: npt.NDArray[Any] | None) -> TreeArrays:
        return tree_from_nodes(
            TreeNodes(
                left=tree.children_left,
                right=tree.children_right,
                is_leaf=tree.children_left < 0,
                column=tree.feature,
                threshold=tree.threshold,
                missing_right=tree.missing_go_to_left == 0,
                value=self._values(tree.value[:, 0, :], classes),
            )
        )

    def _state(self) -> dict[str, Any]:
        return {
            "trees": self._all().plain(),
            "train": self._train,
            "validation": self._validation,
        }

    def _model(self) -> dict[str, Any]:
        data = self._fitting.data
        return {
            "trees": self._all().plain(),
            "n_columns": n_tree_columns(data.columns),
            "n_outputs": data.n_outputs,
        }

    def _all(self) -> TreeArrays:
        self._parts = [join_trees(self._parts)]
        return self._parts[0]


def unfitted_tree(fitting: TrialFit, number: int) -> Any:
    """The one of this round, not yet fitted."""
    from sklearn import ensemble

    params, family = fitting.params, fitting.family
    assert isinstance(params, TreesParams), "its own"
    assert isinstance(family, TreesFamily), "likewise"
    of_classes = fitting.data.task is Task.classification
    name = "ExtraTrees" if params.kind == "extra_trees" else "RandomForest"
    kind = getattr(ensemble, f"{name}{'Classifier' if of_classes else 'Regressor'}")
    weighs = {"class_weight": fitting.class_weight} if of_classes else {}
    return kind(
        **weighs,
        n_estimators=family.trees_per_epoch,
        max_features=float(params.max_features),
        min_samples_leaf=params.min_samples_leaf,
        max_leaf_nodes=family.max_leaves(params, fitting.data, fitting.n_rounds),
        n_jobs=fitting.n_threads,
        random_state=int(np.random.SeedSequence([fitting.seed, number]).generate_state(1)[0]),
    )


SIDE = TreesSide()
