"""Grows forests with scikit-learn; `tree_arrays.py` stores the trees and predicts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from automl.config import Task
from automl.data.columns import TableColumns
from automl.data.dataset import TableRows
from automl.data.scoring.metrics import Floats
from automl.models.families.table_estimator import (
    CpuModel,
    FittedRound,
    ModelGraph,
    OnRound,
    TableHeavySide,
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
from automl.models.model_file import check_content, parse_task, tensors_to_arrays

logger = logging.getLogger(__name__)

LEAST_SHARE = 1e-7
"""Least share of a class: else one wrong row in a million makes the loss infinite."""


@dataclass(frozen=True, eq=False)
class ForestModel(CpuModel):
    """A `family.TrainedModel` that gives the mean of its trees' values."""

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
        return forest_outputs(sums / len(self.trees.n_nodes), self.task)

    def draw(self, graph: ModelGraph) -> str:
        """Add the arithmetic of `outputs` to an ONNX graph, and return the outputs' name."""
        n_trees = graph.constant(len(self.trees.n_nodes))
        mean = graph.add("Div", graph.tree_sums(self.trees, graph.tree_view), n_trees)
        if self.task is Task.regression:
            return mean
        if self.trees.n_values == 1:
            mean = graph.joined([graph.add("Sub", graph.constant(1), mean), mean])
        return graph.add("Log", graph.clipped(mean, LEAST_SHARE, 1))

    def borders(self) -> Borders:
        return self.trees.borders()


def forest_outputs(mean: Floats, task: Task) -> Floats:
    """Return the outputs of a model whose trees have this mean.

    The mean has values (N, 1), or shares of the classes (N, C); with two classes, only the share of
    the second (N, 1).
    """
    if task is Task.regression:
        return mean
    shares = np.column_stack([1 - mean, mean]) if mean.shape[1] == 1 else mean
    scores: Floats = np.log(shares.clip(LEAST_SHARE, 1))
    return scores


class TreesHeavySide(TableHeavySide):
    """The `family.HeavySide` of forests."""

    def fit(self, trial_fit: TrialFit, on_round: OnRound) -> None:
        """Grow a new small forest each round, seeded by the trial's seed and the round."""
        check_tree_width(n_tree_columns(trial_fit.data.columns))
        forest = _GrowingForest(trial_fit)
        for number in range(trial_fit.n_done, trial_fit.n_rounds):
            on_round(forest.grow(number))

    def model_from_state(self, state: Mapping[str, Any]) -> ForestModel:
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

    def n_leaves(self, state: Mapping[str, Any]) -> int:
        """Return the number of leaves of all trees of a model's state."""
        return len(self._trees(state).leaf)

    def first_trees(self, state: Mapping[str, Any], share: float) -> Mapping[str, Any]:
        """Return the state of a forest with this share of the trees, at least one."""
        trees = self._trees(state)
        n_trees = max(1, int(share * len(trees.n_nodes)))
        return {**state, "trees": trees.first(n_trees).plain()}

    def _trees(self, state: Mapping[str, Any]) -> TreeArrays:
        plain = tensors_to_arrays(state)
        return TreeArrays.from_plain(plain["trees"], plain["n_columns"])


def _n_values(task: Task, n_outputs: int) -> int:
    """Return the number of values of a leaf."""
    return 1 if task is Task.regression or n_outputs == 2 else n_outputs


class _GrowingForest:
    """The forest of one trial, with the sums of its trees' values for both parts of the data."""

    def __init__(self, trial_fit: TrialFit) -> None:
        self._trial_fit, data = trial_fit, trial_fit.data
        self._x, self._x_validation = data.view(tree_view)
        self._y = trial_fit.targets
        self._n_values = _n_values(data.task, data.n_outputs)
        state = trial_fit.state
        self._min_samples_leaf: int = trial_fit.params.min_samples_leaf
        if state is None:
            self._parts: list[TreeArrays] = []
            self._train = np.zeros((len(data.train), self._n_values))
            self._validation = np.zeros((len(data.validation), self._n_values))
        else:
            self._parts = [TreeArrays.from_plain(state["trees"], n_tree_columns(data.columns))]
            self._train, self._validation = state["train"].copy(), state["validation"].copy()
            self._min_samples_leaf = state.get("min_samples_leaf", self._min_samples_leaf)

    def grow(self, number: int) -> FittedRound:
        """Grow the trees of a round, and return the model after it."""
        data = self._trial_fit.data
        forest = self._fitted_forest(number)
        trees = self._trees_from_forest(forest)
        self._parts.append(trees)
        self._train += self._training_sums(forest)
        # scikit-learn refuses missing cells in a column that had none in training.
        self._validation += trees.sums(self._x_validation)
        n_trees = sum(len(part.n_nodes) for part in self._parts)
        return FittedRound(
            round=number,
            train=(forest_outputs(self._train / n_trees, data.task), data.train.y),
            validation=forest_outputs(self._validation / n_trees, data.task),
            get_model=self._model,
            # No trial continues from the last round, so `last.pt` need not hold the forest.
            get_state=dict if number + 1 == self._trial_fit.n_rounds else self._state,
        )

    def _fitted_forest(self, number: int) -> Any:
        """Return the forest of a round; leaves get more rows if there are too many for the file."""
        trial_fit = self._trial_fit
        most = trial_fit.family.max_round_leaves(trial_fit.data, trial_fit.n_rounds)
        while True:
            forest = unfitted_forest(trial_fit, number)
            forest.set_params(min_samples_leaf=self._min_samples_leaf).fit(self._x, self._y)
            n_leaves = sum(int(fitted.tree_.n_leaves) for fitted in forest.estimators_)
            if n_leaves <= most:
                return forest
            # Leaves of at least k rows have about 1.5 k rows.
            enough = int(self._min_samples_leaf * n_leaves / most / 1.5)
            self._min_samples_leaf = max(self._min_samples_leaf + 1, enough)
            whole = trial_fit.data.whole
            if whole is None or whole.fold(0) is trial_fit.data:
                logger.warning(
                    "%d trees have %d leaves, more than the %d that keep the trial's file below "
                    "50 MB: min_samples_leaf is %d in place of %d. Fewer trees "
                    "(model.trees_per_epoch, training.epochs) may have smaller leaves.",
                    len(forest.estimators_),
                    n_leaves,
                    most,
                    self._min_samples_leaf,
                    trial_fit.params.min_samples_leaf,
                )

    def _seen_classes(self, forest: Any) -> npt.NDArray[Any] | None:
        """Return the classes that a forest has seen, in the order of its values, or None."""
        return forest.classes_ if self._trial_fit.data.task is Task.classification else None

    def _training_sums(self, forest: Any) -> Floats:
        """Return the sums (N, V) of the forest's trees for the training rows."""
        classes = self._seen_classes(forest)
        # With several threads scikit-learn adds trees in the order in which these end, and the last
        # bit of a sum differs from run to run (9 results in 300 calls with two threads).
        forest.set_params(n_jobs=1)
        means = (
            forest.predict(self._x)[:, None] if classes is None else forest.predict_proba(self._x)
        )
        return self._leaf_values(means, classes) * len(forest.estimators_)

    def _leaf_values(self, values: Floats, classes: npt.NDArray[Any] | None) -> Floats:
        """Return values (N, V) for those of a forest that may have seen only some classes."""
        if classes is None:
            return values
        by_class = np.zeros((len(values), self._trial_fit.data.n_outputs))
        by_class[:, classes] = values
        return by_class[:, 1:] if self._n_values == 1 else by_class

    def _trees_from_forest(self, forest: Any) -> TreeArrays:
        classes = self._seen_classes(forest)
        return join_trees(
            [self._tree_from_fitted(fitted.tree_, classes) for fitted in forest.estimators_]
        )

    def _tree_from_fitted(self, tree: Any, classes: npt.NDArray[Any] | None) -> TreeArrays:
        return tree_from_nodes(
            TreeNodes(
                left=tree.children_left,
                right=tree.children_right,
                is_leaf=tree.children_left < 0,
                column=tree.feature,
                threshold=tree.threshold,
                missing_right=tree.missing_go_to_left == 0,
                value=self._leaf_values(tree.value[:, 0, :], classes),
            )
        )

    def _state(self) -> dict[str, Any]:
        return {
            "trees": self._joined_trees().plain(),
            "min_samples_leaf": self._min_samples_leaf,
            "train": self._train,
            "validation": self._validation,
        }

    def _model(self) -> dict[str, Any]:
        data = self._trial_fit.data
        return {
            "trees": self._joined_trees().plain(),
            "n_columns": n_tree_columns(data.columns),
            "n_outputs": data.n_outputs,
        }

    def _joined_trees(self) -> TreeArrays:
        self._parts = [join_trees(self._parts)]
        return self._parts[0]


def unfitted_forest(trial_fit: TrialFit, number: int) -> Any:
    """Return scikit-learn's estimator for a round, not yet fitted."""
    from sklearn import ensemble

    params, family = trial_fit.params, trial_fit.family
    assert isinstance(params, TreesParams), "params of this family"
    assert isinstance(family, TreesFamily), "the family of this module"
    is_classification = trial_fit.data.task is Task.classification
    name = "ExtraTrees" if params.kind == "extra_trees" else "RandomForest"
    kind = getattr(ensemble, f"{name}{'Classifier' if is_classification else 'Regressor'}")
    own = {"class_weight": trial_fit.class_weight} if is_classification else {}
    return kind(
        **own,
        n_estimators=family.trees_per_epoch,
        max_features=float(params.max_features),
        min_samples_leaf=params.min_samples_leaf,
        max_leaf_nodes=params.max_leaf_nodes,
        n_jobs=trial_fit.n_threads,
        random_state=int(np.random.SeedSequence([trial_fit.seed, number]).generate_state(1)[0]),
    )


SIDE = TreesHeavySide()
