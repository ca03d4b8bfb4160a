"""The heavy side of gradient boosted trees: scikit-learn grows them, `tree_arrays.py` keeps them.

scikit-learn tells of its progress by the function that it stops early by (`scoring`), which it
calls after each iteration. So one fit reports as it goes; growing it by `warm_start`, from report
to report, took 3.5 times the CPU on Adult (20 reports), for it bins the rows each time anew. What
goes on after an interruption trains anew up to there: a fit cannot begin in its midst.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from automl.config import Task
from automl.data.columns import TableColumns
from automl.data.dataset import Dataset, TableRows
from automl.data.scoring.metrics import Floats
from automl.models.class_scores import ClassScoreLayout, single_class_scores
from automl.models.families.boosting.family import (
    ONE_HOT_ENCODING,
    PLAIN_ENCODING,
    TREE_ENCODINGS,
    BoostingFamily,
    BoostingParams,
    n_encoded_columns,
)
from automl.models.families.table_estimator import (
    CpuModel,
    FittedRound,
    OnRound,
    TableSide,
    TrialFit,
)
from automl.models.families.table_family import check_tree_width
from automl.models.families.tree_arrays import (
    NO_BORDERS,
    Borders,
    TreeArrays,
    TreeNodes,
    join_trees,
    spread_view,
    tree_from_nodes,
    tree_view,
)
from automl.models.model_file import check_content

if TYPE_CHECKING:
    from automl.export.table_graph import TableGraph

VIEWS = {PLAIN_ENCODING: tree_view, ONE_HOT_ENCODING: spread_view}
MAX_TRAIN_ROWS = 4096
"""What `train_loss` is told of: of more it would take longer than the training."""


@dataclass(frozen=True, eq=False)
class BoostingModel(CpuModel):
    """See `family.Model`: where the trees begin, and the sum of their corrections."""

    base: Floats
    """(K,)."""
    trees: TreeArrays | None
    """Each iteration K of them; None: none corrects anything."""
    n_columns: int
    classes: ClassScoreLayout
    encoding: str

    @property
    def n_outputs(self) -> int:
        return self.classes.n_outputs

    def check_columns(self, columns: TableColumns) -> None:
        width = n_encoded_columns(self.encoding, columns)
        check_content(width == self.n_columns, "not its columns", width)

    def outputs(self, columns: TableColumns, rows: TableRows) -> Floats:
        sums = np.tile(self.base, (len(rows), 1))
        if self.trees is not None:
            sums += self.trees.sums(VIEWS[self.encoding](columns, rows), len(self.base))
        return self.classes.outputs(sums)

    def draw(self, graph: TableGraph) -> str:
        """See `table_graph.OnnxDrawable`."""
        if self.trees is None:
            return graph.class_outputs(self.classes, graph.every_row(self.base))
        view = graph.spread_view if self.encoding == ONE_HOT_ENCODING else graph.tree_view
        sums = graph.tree_sums(self.trees, view, len(self.base))
        return graph.class_outputs(self.classes, graph.add("Add", sums, graph.constant(self.base)))

    def borders(self) -> Borders:
        return NO_BORDERS if self.trees is None else self.trees.borders()

    def plain(self) -> dict[str, Any]:
        return {
            "base": self.base,
            "trees": None if self.trees is None else self.trees.plain(),
            "n_columns": self.n_columns,
            "encoding": self.encoding,
            "classes_seen": self.classes.plain(),
        }


class BoostingSide(TableSide):
    """See `family.HeavySide`."""

    def fit(self, fitting: TrialFit, on_round: OnRound) -> None:
        data = fitting.data
        encoding = fitting.params.encoding
        check_tree_width(n_encoded_columns(encoding, data.columns))
        of_classes = data.task is Task.classification
        if of_classes and len(np.unique(data.train.y)) < 2:
            _tell_constant(fitting, on_round)
            return
        boosting = unfitted_boosting(fitting)
        boosting.set_params(scoring=_IterationListener(fitting, on_round))
        boosting.fit(data.view(VIEWS[encoding])[0], fitting.targets)

    def model_of(self, state: Mapping[str, Any]) -> BoostingModel:
        classes, width, base = ClassScoreLayout.from_plain(state["classes_seen"]), *_begin(state)
        shape = (classes.n_given,)
        check_content(
            base.shape == shape, f"not {classes.n_given} values to begin with", base.shape
        )
        encoding = state.get("encoding", PLAIN_ENCODING)
        check_content(encoding in TREE_ENCODINGS, "an unknown encoding", encoding)
        if state["trees"] is None:
            return BoostingModel(base, None, width, classes, encoding)
        trees = TreeArrays.from_plain(state["trees"], width)
        check_content(trees.n_values == 1, "several values in a leaf", trees.n_values)
        return BoostingModel(base, trees, width, classes, encoding)


def _begin(state: Mapping[str, Any]) -> tuple[int, Floats]:
    width, base = state["n_columns"], state["base"]
    check_content(type(width) is int and width >= 0, "no columns", width)
    fits = isinstance(base, np.ndarray) and base.dtype == np.float64 and base.ndim == 1
    check_content(fits and bool(np.isfinite(base).all()), "nothing to begin with", type(base))
    return width, base


def _tell_constant(fitting: TrialFit, on_round: OnRound) -> None:
    """The training rows are of one class, of which no tree can be made."""
    data = fitting.data
    classes, base = single_class_scores(data)
    encoding = fitting.params.encoding
    width = n_encoded_columns(encoding, data.columns)
    model = BoostingModel(base, None, width, classes, encoding)
    for number in range(fitting.n_done, fitting.n_rounds):
        on_round(
            FittedRound(
                round=number,
                train=(model.outputs(data.columns, data.train.rows), data.train.y),
                validation=model.outputs(data.columns, data.validation.rows),
                get_model=model.plain,
            )
        )


class _IterationListener:
    """What scikit-learn calls after each iteration, as a scorer."""

    def __init__(self, fitting: TrialFit, on_round: OnRound) -> None:
        self._fitting, self._on_round = fitting, on_round
        data = fitting.data
        x, self._x_validation = data.view(VIEWS[fitting.params.encoding])
        # Evenly over the rows: which they are follows from their number alone.
        self._some = np.unique(np.linspace(0, len(x) - 1, min(len(x), MAX_TRAIN_ROWS)).astype(int))
        self._x = x[self._some]
        self._parts: list[TreeArrays] = []
        self._sums: tuple[Floats, Floats] | None = None
        self._classes: ClassScoreLayout | None = None

    def __call__(self, boosting: Any, x: object, y: object, sample_weight: object = None) -> float:
        """The score is of no use: nothing is stopped by it."""
        every, n_done = self._fitting.family.iterations_per_epoch, len(boosting._predictors)
        if n_done and n_done % every == 0:
            self._on_round(self._grown(boosting, n_done // every - 1))
        return 0.0

    def _grown(self, boosting: Any, number: int) -> FittedRound:
        every = self._fitting.family.iterations_per_epoch
        base = boosting._baseline_prediction.ravel().astype(np.float64)
        iterations = boosting._predictors[-every:]
        new = join_trees([_tree_of(tree) for iteration in iterations for tree in iteration])
        self._parts.append(new)
        before = self._sums or (base, base)
        views = (self._x, self._x_validation)
        train, validation = (
            sums + new.sums(view, len(base)) for sums, view in zip(before, views, strict=True)
        )
        self._sums = (train, validation)
        classes = self._classes = self._classes or _classes_of(self._fitting.data, boosting)
        return FittedRound(
            round=number,
            train=(classes.outputs(train), self._fitting.data.train.y[self._some]),
            validation=classes.outputs(validation),
            get_model=lambda: self._model(base, classes),
        )

    def _model(self, base: Floats, classes: ClassScoreLayout) -> dict[str, Any]:
        self._parts = [join_trees(self._parts)]
        encoding = self._fitting.params.encoding
        width = n_encoded_columns(encoding, self._fitting.data.columns)
        return BoostingModel(base, self._parts[0], width, classes, encoding).plain()


def _classes_of(data: Dataset, boosting: Any) -> ClassScoreLayout:
    of_classes = data.task is Task.classification
    return ClassScoreLayout.of(data, boosting.classes_ if of_classes else np.empty(0))


def _tree_of(predictor: Any) -> TreeArrays:
    nodes: npt.NDArray[Any] = predictor.nodes
    return tree_from_nodes(
        TreeNodes(
            left=nodes["left"],
            right=nodes["right"],
            is_leaf=nodes["is_leaf"] != 0,
            column=nodes["feature_idx"],
            threshold=nodes["num_threshold"],
            missing_right=nodes["missing_go_to_left"] == 0,
            value=nodes["value"][:, None],
        )
    )


def _loss_of(data: Dataset) -> dict[str, Any]:
    """As scikit-learn calls it."""
    if data.loss.name == "quantile":
        return {"loss": "quantile", "quantile": data.loss.quantile}
    return {"loss": data.loss.name}


def unfitted_boosting(fitting: TrialFit) -> Any:
    """Not yet fitted."""
    from sklearn import ensemble

    params, family = fitting.params, fitting.family
    assert isinstance(params, BoostingParams), "its own"
    assert isinstance(family, BoostingFamily), "likewise"
    of_classes = fitting.data.task is Task.classification
    kind = (
        ensemble.HistGradientBoostingClassifier
        if of_classes
        else ensemble.HistGradientBoostingRegressor
    )
    n_iterations = fitting.n_rounds * family.iterations_per_epoch
    own = {"class_weight": fitting.class_weight} if of_classes else _loss_of(fitting.data)
    return kind(
        **own,
        learning_rate=float(params.learning_rate),
        max_iter=n_iterations,
        max_leaf_nodes=params.max_leaf_nodes,
        min_samples_leaf=params.min_samples_leaf,
        l2_regularization=float(params.l2_regularization),
        max_features=float(params.max_features),
        early_stopping=True,  # so that it asks for scores, of which it never gets enough to stop:
        n_iter_no_change=n_iterations + 1,
        validation_fraction=None,
        random_state=fitting.seed,
    )


SIDE = BoostingSide()
