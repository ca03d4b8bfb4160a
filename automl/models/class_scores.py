"""Maps what a scikit-learn fit gives for the classes that it saw to a score for each class.

Training parts may lack classes of the table, and scikit-learn knows only the classes of its rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from automl.data.dataset import Dataset
from automl.data.scoring.metrics import Floats
from automl.models.model_file import check_content


@dataclass(frozen=True, eq=False)
class ClassScoreLayout:
    """Maps the outputs of a fitted model to the classes of the table, or to scaled values.

    Classes missing from the training rows get the constant score `absent_score`.
    """

    n_outputs: int
    """Number of classes of the table; 1 for regression."""
    present: npt.NDArray[np.int32]
    """Numbers of the classes that the training rows have; empty for regression."""
    absent_score: float
    """Score of each class that the training rows lack."""
    unit: tuple[float, float] | None = None
    """Mean and scale of the target, if the model gives logarithms of rates; else None. Rates are
    scaled by them, because other values are scaled, too."""

    @classmethod
    def from_dataset(cls, data: Dataset, present: npt.NDArray[Any]) -> ClassScoreLayout:
        """Make the layout of a model that was fitted to `data`.

        `present` are the classes of the model, in its order; empty for regression.
        """
        absent_score = -float(np.log(len(data.train) + 1))
        gives_rates = data.loss.name == "poisson"
        unit = (data.target_mean, data.target_scale) if gives_rates else None
        return cls(data.n_outputs, np.asarray(present, dtype=np.int32), absent_score, unit)

    @property
    def n_fit_outputs(self) -> int:
        """Numbers that a fit gives for a row. With two classes, it is only the second's score."""
        return len(self.present) if len(self.present) > 2 else 1

    def outputs(self, fit_outputs: Floats) -> Floats:
        """Return outputs (N, n_outputs) for the outputs of a fit (N, n_fit_outputs)."""
        if self.unit is not None:
            rates: Floats = (np.exp(fit_outputs) - self.unit[0]) / self.unit[1]
            return rates
        if not len(self.present):
            return fit_outputs
        if len(self.present) == 2:
            fit_outputs = np.column_stack([np.zeros(len(fit_outputs)), fit_outputs])
        out = np.full((len(fit_outputs), self.n_outputs), self.absent_score)
        out[:, self.present] = fit_outputs
        return out

    def plain(self) -> dict[str, Any]:
        """Return the layout as plain values for a checkpoint."""
        own = {} if self.unit is None else {"unit": list(self.unit)}
        return {
            "n_outputs": self.n_outputs,
            "present": self.present,
            "absent": self.absent_score,
            **own,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> ClassScoreLayout:
        """Read what `plain` returned. Raises ValueError for values that contradict each other."""
        n_outputs, present, absent = plain["n_outputs"], plain["present"], plain["absent"]
        check_content(type(n_outputs) is int and n_outputs >= 1, "a number of classes", n_outputs)
        is_array = isinstance(present, np.ndarray) and present.dtype == np.int32
        check_content(is_array and present.ndim == 1, "no classes", type(present))
        in_range = bool(((present >= 0) & (present < n_outputs)).all())
        check_content(in_range and len(set(present.tolist())) == len(present), "classes", n_outputs)
        check_content(
            len(present) != 1 and (len(present) > 0 or n_outputs == 1), "classes", len(present)
        )
        check_content(len(present) <= n_outputs <= max(1, MAX_CLASSES), "classes", n_outputs)
        check_content(type(absent) is float and np.isfinite(absent), "no score", absent)
        return cls(n_outputs, present, absent, _unit(plain.get("unit"), n_outputs))


def _unit(plain: Any, n_outputs: int) -> tuple[float, float] | None:
    if plain is None:
        return None
    check_content(isinstance(plain, list | tuple) and len(plain) == 2, "no unit", plain)
    fits = all(type(x) is float and np.isfinite(x) for x in plain) and plain[1] > 0
    check_content(fits and n_outputs == 1, "no unit", plain)
    return plain[0], plain[1]


MAX_CLASSES = 2**20
"""Largest number of classes that a model file may have: each row gets a score for each class."""


def single_class_scores(data: Dataset) -> tuple[ClassScoreLayout, Floats]:
    """Return a layout and constant outputs (n_fit_outputs,) for training rows of only one class.

    No model can be fitted to them. The scores are logarithms of the classes' shares, smoothed so
    that no class is impossible.
    """
    classes = ClassScoreLayout.from_dataset(data, np.arange(data.n_outputs))
    counts = np.bincount(data.train.y, minlength=data.n_outputs) + 1.0
    logs: Floats = np.log(counts / counts.sum())
    return classes, logs[1:] - logs[:1] if classes.n_fit_outputs == 1 else logs
