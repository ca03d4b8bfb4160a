"""From what a fit says of the classes that it saw to a score for each class of the table."""

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
    """Where what a fit gives belongs; a class that no training row has gets a score, too."""

    n_outputs: int
    """Classes of the table, or 1 for a value."""
    present: npt.NDArray[np.int32]
    """Places of the classes that were seen; none for a value."""
    absent: float
    """The score of the others."""
    unit: tuple[float, float] | None = None
    """Where a fit gives the logarithm of a rate: mean and scale of the target, to which rates are
    scaled as other values are."""

    @classmethod
    def of(cls, data: Dataset, present: npt.NDArray[Any]) -> ClassScoreLayout:
        """`present` are the classes of a fit, in its order; empty for a value."""
        absent = -float(np.log(len(data.train) + 1))
        of_rates = data.loss.name == "poisson"
        unit = (data.target_mean, data.target_scale) if of_rates else None
        return cls(data.n_outputs, np.asarray(present, dtype=np.int32), absent, unit)

    @property
    def n_given(self) -> int:
        """Numbers that a fit gives for a row: of two classes the second one's score alone."""
        return len(self.present) if len(self.present) > 2 else 1

    def outputs(self, given: Floats) -> Floats:
        """(N, n_outputs) from (N, n_given)."""
        if self.unit is not None:
            rates: Floats = (np.exp(given) - self.unit[0]) / self.unit[1]
            return rates
        if not len(self.present):
            return given
        if len(self.present) == 2:
            given = np.column_stack([np.zeros(len(given)), given])
        out = np.full((len(given), self.n_outputs), self.absent)
        out[:, self.present] = given
        return out

    def plain(self) -> dict[str, Any]:
        """For a checkpoint."""
        own = {} if self.unit is None else {"unit": list(self.unit)}
        return {
            "n_outputs": self.n_outputs,
            "present": self.present,
            "absent": self.absent,
            **own,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> ClassScoreLayout:
        """Raises ValueError for what contradicts itself."""
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
"""In a file that is read: each row gets a score for each."""


def single_class_scores(data: Dataset) -> tuple[ClassScoreLayout, Floats]:
    """The scores, and what a fit would have given for any row, (n_given,), where all training rows
    are of one class: logarithms of shares, none being impossible, are all that can be said."""
    classes = ClassScoreLayout.of(data, np.arange(data.n_outputs))
    counts = np.bincount(data.train.y, minlength=data.n_outputs) + 1.0
    logs: Floats = np.log(counts / counts.sum())
    return classes, logs[1:] - logs[:1] if classes.n_given == 1 else logs
