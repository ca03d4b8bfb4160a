"""A metric of a table that is the user's own function, and the thresholds of labels that suit it.

The function is called as `my_cost(y_true, y_predicted)` with labels or amounts, and returns one
number. If its second argument has one of the names in `PROBABILITY_NAMES`, it gets probabilities:
of two classes (N,), those of the second, as scikit-learn's functions take them; of more (N, C).
Finding the function by its name is the work of `in_trial/user_code.py`.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from inspect import Parameter
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from automl.errors import ConfigError

Floats: TypeAlias = "npt.NDArray[np.float64]"
Function: TypeAlias = Callable[[Any, Any], Any]

PROBABILITY_NAMES = ("probabilities", "y_proba", "y_prob", "y_score")
"""Names of a second argument that takes probabilities; all but the first are scikit-learn's."""
MAX_TRIED_ROWS = 200
"""Number of rows on which a function is tried before the first trial."""
_FLIPPED_SHARE = 0.1
"""Share of a class's rows whose labels are made wrong to find what a wrong label costs."""


@dataclass(frozen=True, eq=False)
class UsersMetric:
    """A metric that the user has written as a function. Picklable: each process loads it anew."""

    name: str
    """Name of the metric, without `val_`."""
    source: str
    """The setting that names the function, for messages: `study.metric=costs.py:my_cost`."""
    larger_is_better: bool
    load: Callable[[], Function]
    """Returns the function. Raises ConfigError."""
    classes: tuple[Any, ...] = ()
    """The labels of the table, in the order of the class numbers; empty for amounts."""
    _thresholds: dict[bytes, Floats | None] = field(default_factory=dict, init=False, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        kept = ("name", "source", "larger_is_better", "load", "classes")
        return {name: getattr(self, name) for name in kept} | {"_thresholds": {}}

    def of_classes(self, classes: tuple[Any, ...]) -> UsersMetric:
        """Return the metric for a table with these labels."""
        return replace(self, classes=classes)

    @cached_property
    def function(self) -> Function:
        return self.load()

    @cached_property
    def takes_probabilities(self) -> bool:
        """Whether the function takes probabilities of classes, as its second argument's name says.

        Raises ConfigError for a function that does not take two arguments by position.
        """
        try:
            arguments = list(inspect.signature(self.function).parameters.values())
        except (TypeError, ValueError):  # a builtin without a signature
            return False
        placed = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        own = [a for a in arguments if a.kind in placed]
        needed = [a for a in arguments if a.default is a.empty and a.kind in placed]
        needed += [a for a in arguments if a.default is a.empty and a.kind is a.KEYWORD_ONLY]
        takes_any = any(a.kind is Parameter.VAR_POSITIONAL for a in arguments)
        if len(needed) > 2 or (len(own) < 2 and not takes_any):
            names = ", ".join(a.name for a in arguments)
            scorer = " (a scorer of scikit-learn has its function as make_scorer's first argument)"
            raise ConfigError(
                f"{self.source}: it takes ({names}), and a metric is called as "
                f"{self.name}(y_true, y_predicted): give a function of these two"
                f"{scorer * (names.startswith('estimator'))}."
            )
        return bool(self.classes) and len(own) > 1 and own[1].name in PROBABILITY_NAMES

    def score(self, y: npt.NDArray[Any], predicted: npt.NDArray[Any]) -> float:
        """Return the metric of predictions for targets `y` (N,): class numbers, or amounts.

        `predicted` is (N,), alike, or (N, C) probabilities if the function takes these. NaN: the
        rows do not determine it. Raises ConfigError for a function that raises, or returns no
        number.
        """
        if self.classes:
            labels = np.array(self.classes)
            y = labels[y]
            if not self.takes_probabilities:
                predicted = labels[predicted]
            elif predicted.shape[1] == 2:
                predicted = predicted[:, 1]
        try:
            found = self.function(y, predicted)
        except Exception as error:  # the user's function may raise anything
            raise ConfigError(
                f"{self.source}: it raised {type(error).__name__}: {error}, called with "
                f"{self._call_text(y, predicted)}. Mend it until it returns a number for these"
                f"{self._how_to_get_probabilities()}."
            ) from error
        if not isinstance(found, Real):
            what = "None" if found is None else f"{type(found).__name__} {found!r:.60}"
            what = " ".join(what.split())
            raise ConfigError(
                f"{self.source}: it returned {what}, called with {self._call_text(y, predicted)}. "
                "A metric is one number of all rows, such as their mean: return float(…)."
            )
        return float(found)

    def _call_text(self, y: npt.NDArray[Any], predicted: npt.NDArray[Any]) -> str:
        kind = "amounts"
        if self.classes:
            kind = "probabilities" if self.takes_probabilities else "labels"
        shape = ", ".join(map(str, predicted.shape)) + "," * (predicted.ndim == 1)
        return f"y_true ({len(y)},), such as {y[:1].tolist()[0]!r:.40}, and {kind} ({shape})"

    def _how_to_get_probabilities(self) -> str:
        if not self.classes or self.takes_probabilities:
            return ""
        return f", or call its second argument {PROBABILITY_NAMES[0]} to get these"

    def score_samples(
        self, y: npt.NDArray[Any], predicted: npt.NDArray[Any], weights: Floats
    ) -> Floats:
        """Return (B,) scores of bootstrap samples, which draw each row so often (B, N)."""
        every = np.arange(len(y))
        drawn = (np.repeat(every, counts.astype(np.int64)) for counts in weights)
        return np.array([self.score(y[rows], predicted[rows]) for rows in drawn])

    def cost(self, score: float) -> float:
        """Return a score as a number of which lower ones are better; NaN is the worst."""
        if np.isnan(score):
            return float("inf")
        return -score if self.larger_is_better else score

    def thresholds(self, y: npt.NDArray[Any]) -> Floats | None:
        """Return thresholds (C,) of the classes by what the function takes for a wrong label.

        A row belongs to the class whose probability is the largest multiple of its threshold
        (`metrics.predict_labels`). With true probabilities this costs least, where each wrong label
        costs the same whatever else is wrong (Elkan 2001, "The foundations of cost-sensitive
        learning"): of two classes, the second's threshold is the cost of a wrong row of the first,
        as a share of both costs. None: the likeliest class, since the function takes amounts or
        probabilities, or wrong labels of some class cost nothing.
        """
        key = hashlib.blake2b(np.ascontiguousarray(y).tobytes()).digest()
        if key not in self._thresholds:
            self._thresholds[key] = self._find_thresholds(y)
        return self._thresholds[key]

    def _find_thresholds(self, y: npt.NDArray[Any]) -> Floats | None:
        n_classes = len(self.classes)
        counts = np.bincount(y, minlength=n_classes) if n_classes else np.zeros(0)
        if n_classes < 2 or self.takes_probabilities or not counts.all():
            return None
        right = self.cost(self.score(y, y))
        costs = np.empty(n_classes)
        for label in range(n_classes):
            rows = np.flatnonzero(y == label)
            n_wrong = max(1, int(_FLIPPED_SHARE * len(rows)))
            flipped = rows[np.linspace(0, len(rows) - 1, n_wrong).astype(np.int64)]
            wrong = y.copy()  # the wrong labels are the other classes in turn
            wrong[flipped] = (label + 1 + np.arange(n_wrong) % (n_classes - 1)) % n_classes
            costs[label] = (self.cost(self.score(y, wrong)) - right) / n_wrong
        if not np.isfinite(costs).all() or (costs <= 0).any():
            return None
        shares: Floats = (1 / costs) / (1 / costs).sum()
        return shares

    def places_to_try(self, y: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the places of a few of the targets `y` (N,), one of each class among them."""
        first = [np.flatnonzero(y == label)[:1] for label in np.unique(y)] if self.classes else []
        spread = np.linspace(0, len(y) - 1, min(MAX_TRIED_ROWS, len(y))).astype(np.int64)
        return np.unique(np.concatenate([*first, spread]))

    def try_on(self, y: npt.NDArray[Any]) -> None:
        """Call the function on a few of the targets `y` (N,), with plausible predictions. Raises
        ConfigError unless it gives a finite number. Without targets, it is not called."""
        if not len(y):
            return
        y = y[self.places_to_try(y)]
        if not self.classes:
            predicted = np.full(len(y), y.mean())
        elif self.takes_probabilities:
            n_classes = len(self.classes)
            shares = np.bincount(y, minlength=n_classes) / len(y)
            predicted = np.eye(n_classes)[y] / 2 + shares / 2
        else:
            predicted = np.concatenate([y[:-1], y[:1]])  # mostly right
        found = self.score(y, predicted)
        if not np.isfinite(found):
            raise ConfigError(
                f"{self.source}: it returned {found} for {len(y)} rows of the table and plausible "
                "predictions. A metric is a finite number: mend it until it returns one where rows "
                "of all classes are there."
            )
