"""Grows gradient boosted trees with scikit-learn; `tree_arrays.py` stores them and predicts.

The model and its reports are those of `lightgbm_heavy.py` and `catboost_heavy.py`, too.

scikit-learn calls the function for early stopping (`scoring`) after each iteration, so that one fit
reports while it runs. Fits by `warm_start` took 3.5 times the CPU on Adult (20 reports). A fit
cannot start in the middle, so an interrupted trial trains again from its start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from automl.config import Task
from automl.data.columns import TableColumns
from automl.data.dataset import Dataset, Places, TableRows, spread_places
from automl.data.scoring.metrics import Floats
from automl.models.families.boosting.family import (
    ONE_HOT_ENCODING,
    PLAIN_ENCODING,
    TREE_ENCODINGS,
    BoostingFamily,
    BoostingParams,
    n_encoded_columns,
)
from automl.models.families.table_estimator import (
    ClassScoreLayout,
    CpuModel,
    FittedRound,
    ModelGraph,
    OnRound,
    TableHeavySide,
    TrialFit,
    single_class_scores,
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

VIEWS = {PLAIN_ENCODING: tree_view, ONE_HOT_ENCODING: spread_view}
MAX_TRAIN_ROWS = 4096
"""Largest number of rows that `train_loss` is computed from. With more rows it would take longer
than the training."""


@dataclass(frozen=True, eq=False)
class BoostingModel(CpuModel):
    """A `family.TrainedModel` that adds the corrections of trees to a constant."""

    base: Floats
    """Constants that the trees correct (K,)."""
    trees: TreeArrays | None
    """The trees: of each iteration K, or one whose leaves have K values. None: the model is
    constant."""
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
            sums += sums_of_trees(self.trees, VIEWS[self.encoding](columns, rows), self.base)
        return self.classes.outputs(sums)

    def draw(self, graph: ModelGraph) -> str:
        """Add the model's outputs to an ONNX graph, and return their name."""
        if self.trees is None:
            return graph.class_outputs(self.classes, graph.every_row(self.base))
        view = graph.spread_view if self.encoding == ONE_HOT_ENCODING else graph.tree_view
        sums = graph.tree_sums(self.trees, view, len(self.base) // self.trees.n_values)
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


class BoostingHeavySide(TableHeavySide):
    """The `family.HeavySide` of gradient boosted trees."""

    def fit(self, trial_fit: TrialFit, on_round: OnRound) -> None:
        data, present = trial_fit.data, np.empty(0, dtype=np.int64)
        check_tree_width(n_encoded_columns(trial_fit.params.encoding, data.columns))
        if data.task is Task.classification:
            present = np.unique(data.train.y.astype(np.int64))
            if len(present) < 2:
                _report_constant_model(trial_fit, on_round)
                return
        self.grow(trial_fit, on_round, present)

    def grow(self, trial_fit: TrialFit, on_round: OnRound, present: Places) -> None:
        """Grow the trees of a trial, and report each round; `present` as in `BoostingReporter`."""
        boosting = unfitted_boosting(trial_fit)
        boosting.set_params(scoring=_IterationListener(trial_fit, on_round, present))
        view = trial_fit.data.view(VIEWS[trial_fit.params.encoding])[0]
        boosting.fit(view, trial_fit.targets)

    def model_from_state(self, state: Mapping[str, Any]) -> BoostingModel:
        classes, width, base = (
            ClassScoreLayout.from_plain(state["classes_seen"]),
            *_parse_base(state),
        )
        shape = (classes.n_fit_outputs,)
        check_content(
            base.shape == shape, f"not {classes.n_fit_outputs} values to begin with", base.shape
        )
        encoding = state.get("encoding", PLAIN_ENCODING)
        check_content(encoding in TREE_ENCODINGS, "an unknown encoding", encoding)
        if state["trees"] is None:
            return BoostingModel(base, None, width, classes, encoding)
        trees = TreeArrays.from_plain(state["trees"], width)
        fits = trees.n_values in (1, len(base))
        check_content(fits, f"not 1 or {len(base)} values in a leaf", trees.n_values)
        return BoostingModel(base, trees, width, classes, encoding)


def _parse_base(state: Mapping[str, Any]) -> tuple[int, Floats]:
    width, base = state["n_columns"], state["base"]
    check_content(type(width) is int and width >= 0, "no columns", width)
    fits = isinstance(base, np.ndarray) and base.dtype == np.float64 and base.ndim == 1
    check_content(fits and bool(np.isfinite(base).all()), "nothing to begin with", type(base))
    return width, base


def _report_constant_model(trial_fit: TrialFit, on_round: OnRound) -> None:
    """Report a constant model each round, because no tree can be grown from rows of one class."""
    data = trial_fit.data
    classes, base = single_class_scores(data)
    encoding = trial_fit.params.encoding
    width = n_encoded_columns(encoding, data.columns)
    model = BoostingModel(base, None, width, classes, encoding)
    for number in range(trial_fit.n_done, trial_fit.n_rounds):
        on_round(
            FittedRound(
                round=number,
                train=(model.outputs(data.columns, data.train.rows), data.train.y),
                validation=model.outputs(data.columns, data.validation.rows),
                get_model=model.plain,
            )
        )


class BoostingReporter:
    """Reports rounds of boosting: it keeps their trees, and the sums of the trees for the rows.

    `base` are the constants (K,) that the trees correct, and `present` the classes that are trained
    on, in the order of the trees (empty for regression).
    """

    def __init__(
        self, trial_fit: TrialFit, on_round: OnRound, base: Floats, present: Places
    ) -> None:
        self._trial_fit, self._on_round, self._base = trial_fit, on_round, base
        self._classes = ClassScoreLayout.from_dataset(trial_fit.data, present)
        x, self._x_validation = trial_fit.data.view(VIEWS[trial_fit.params.encoding])
        self._sample = spread_places(len(x), MAX_TRAIN_ROWS)
        self._x = x[self._sample]
        self._parts: list[TreeArrays] = []
        self._train = np.tile(base, (len(self._x), 1))
        self._validation = np.tile(base, (len(self._x_validation), 1))

    def report(self, number: int, new_trees: Sequence[TreeArrays]) -> None:
        """Report the round that grew `new_trees`, of which there may be none."""
        if new_trees:
            new = join_trees(new_trees)
            self._parts.append(new)
            self._train = self._train + sums_of_trees(new, self._x, self._base)
            self._validation = self._validation + sums_of_trees(new, self._x_validation, self._base)
        targets = self._trial_fit.data.train.y[self._sample]
        self._on_round(
            FittedRound(
                round=number,
                train=(self._classes.outputs(self._train), targets),
                validation=self._classes.outputs(self._validation),
                get_model=self._model,
            )
        )

    def _model(self) -> dict[str, Any]:
        self._parts = [join_trees(self._parts)] if self._parts else []
        encoding = self._trial_fit.params.encoding
        width = n_encoded_columns(encoding, self._trial_fit.data.columns)
        trees = self._parts[0] if self._parts else None
        return BoostingModel(self._base, trees, width, self._classes, encoding).plain()


class _IterationListener:
    """The scorer that scikit-learn calls after each iteration; it reports rounds."""

    def __init__(self, trial_fit: TrialFit, on_round: OnRound, present: Places) -> None:
        self._trial_fit, self._on_round, self._present = trial_fit, on_round, present
        self._reporter: BoostingReporter | None = None

    def __call__(self, boosting: Any, x: object, y: object, sample_weight: object = None) -> float:
        """Report a round if one has ended. The returned score stops nothing."""
        n_per_round, n_done = self._trial_fit.family.iterations_per_epoch, len(boosting._predictors)
        if n_done and n_done % n_per_round == 0:
            if self._reporter is None:
                base = boosting._baseline_prediction.ravel().astype(np.float64)
                self._reporter = BoostingReporter(
                    self._trial_fit, self._on_round, base, self._present
                )
            iterations = boosting._predictors[-n_per_round:]
            trees = [_tree_from_predictor(tree) for trees in iterations for tree in trees]
            self._reporter.report(n_done // n_per_round - 1, trees)
        return 0.0


def sums_of_trees(trees: TreeArrays, view: npt.NDArray[np.float32], base: Floats) -> Floats:
    """Return the sums (N, K) of trees that correct `base` (K,): a leaf has one value, and the trees
    take turns, or it has K."""
    return trees.sums(view, len(base) // trees.n_values)


def _tree_from_predictor(predictor: Any) -> TreeArrays:
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


def _loss_arguments(data: Dataset) -> dict[str, Any]:
    """Return scikit-learn's arguments for the training loss."""
    if data.loss.name == "quantile":
        return {"loss": "quantile", "quantile": data.loss.quantile}
    return {"loss": data.loss.name}


def unfitted_boosting(trial_fit: TrialFit) -> Any:
    """Return scikit-learn's estimator for a trial, not yet fitted."""
    from sklearn import ensemble

    params, family = trial_fit.params, trial_fit.family
    assert isinstance(params, BoostingParams), "params of this family"
    assert isinstance(family, BoostingFamily), "the family of this module"
    is_classification = trial_fit.data.task is Task.classification
    kind = (
        ensemble.HistGradientBoostingClassifier
        if is_classification
        else ensemble.HistGradientBoostingRegressor
    )
    n_iterations = trial_fit.n_rounds * family.iterations_per_epoch
    own = (
        {"class_weight": trial_fit.class_weight}
        if is_classification
        else _loss_arguments(trial_fit.data)
    )
    return kind(
        **own,
        learning_rate=float(params.learning_rate),
        max_iter=n_iterations,
        max_leaf_nodes=params.max_leaf_nodes,
        min_samples_leaf=params.min_samples_leaf,
        l2_regularization=float(params.l2_regularization),
        max_features=float(params.max_features),
        early_stopping=True,  # so that it calls the scorer; n_iter_no_change keeps it from stopping
        n_iter_no_change=n_iterations + 1,
        validation_fraction=None,
        random_state=trial_fit.seed,
    )


SIDE = BoostingHeavySide()
