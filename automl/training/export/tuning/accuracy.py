"""What a way of running a model loses: its loss on validation rows, beside the model's own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from automl.config import Task
from automl.data.dataset import Part
from automl.data.scores import predictions
from automl.training.export.graph import arrays_of
from automl.training.export.parity import ParityError
from automl.training.export.tuning.timing import Arrays, Scores
from automl.training.predictor import Predictor

N_ROWS = 2000
SAME = 1e-5
"""The share by which losses of the same arithmetic may differ."""


@dataclass(frozen=True, eq=False)
class Validation:
    """Rows with their targets, and what the model loses on them."""

    predictor: Predictor
    part: Part
    arrays: Arrays
    """The rows as the graph takes them."""
    loss: float
    """The model's own."""
    tolerance: float
    """The share of it that may be added."""

    @classmethod
    def of(cls, predictor: Predictor, part: Part, tolerance: float) -> Validation:
        """Of 2,000 rows of the part, evenly taken, or all. Raises AutoMLError where the model gives
        no numbers."""
        places = np.linspace(0, len(part) - 1, min(N_ROWS, len(part))).astype(np.int64)
        some = Part(part.rows.taking(places), part.y[places])
        loss = _loss(predictor, predictor.outputs(some.rows), some)
        return cls(predictor, some, arrays_of(predictor.columns, some.rows), loss, tolerance)

    @property
    def most(self) -> float:
        """The loss that is within the tolerance; the same sums in another order are."""
        return self.loss + max(self.tolerance, SAME) * abs(self.loss) + SAME**2

    def loss_of(self, scores: Scores, *, one_by_one: bool) -> float:
        """All rows at once; `one_by_one`: and each alone, the larger loss: int8 scales a row by all
        rows of its batch. Raises AutoMLError where there are no numbers."""
        seen = [np.asarray(scores(**self.arrays))]
        if one_by_one:
            n_rows = range(len(self.part.y))
            each = [{n: a[i : i + 1] for n, a in self.arrays.items()} for i in n_rows]
            seen.append(np.concatenate([np.asarray(scores(**row)) for row in each]))
        return max(_loss(self.predictor, self._outputs(said), self.part) for said in seen)

    def check(self, scores: Scores) -> None:
        """Raises ParityError where a way that rounds is not within the tolerance."""
        loss = self.loss_of(scores, one_by_one=True)
        if not loss <= self.most:
            raise ParityError(
                f"The export's loss on {len(self.part.y):,} validation rows is {loss:.6g}, the "
                f"model's {self.loss:.6g}: more than export.tolerance={self.tolerance:g} allows. "
                "Nothing was written. Allow more, or leave export.tune out."
            )

    def _outputs(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Probabilities or values, as `Model.outputs` gives them."""
        if self.predictor.task is Task.classification:
            return np.log(np.maximum(scores.astype(np.float64), np.finfo(np.float64).tiny))
        mean, scale = self.predictor.unit
        return ((scores.astype(np.float64) - mean) / scale)[:, None]


def _loss(predictor: Predictor, outputs: npt.NDArray[np.float64], part: Part) -> float:
    scored = predictions(
        predictor.task, outputs, part.y, *predictor.unit, predictor.value_loss
    ).scored()
    return float(scored["loss"])
