"""Measures the ways of running a model one after the other: speed, and loss on validation rows.

The loss is compared with the model's own. An interruption keeps the measurements made so far.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from automl.config import Task
from automl.data.dataset import DatasetPart
from automl.data.scoring.metrics import make_predictions
from automl.errors import AutoMLError
from automl.export.network_graph import graph_inputs
from automl.export.parity import ParityError
from automl.measure.tuning.choice import (
    SECONDS_PER_WAY,
    InputArrays,
    ScoreFunction,
    WayMeasurement,
    time_calls,
)
from automl.measure.tuning.workshop import (
    CallableWay,
    InferenceWay,
    WayArtifacts,
    WayUnavailableError,
)
from automl.models.mean_model import use_threads
from automl.models.model_file import short_error_text
from automl.models.predictor import Predictor

N_ROWS = 2000
SAME = 1e-5
"""The relative difference of losses that counts as the same arithmetic."""


@dataclass(frozen=True, eq=False)
class AccuracyCheck:
    """Validation rows with their targets, and the model's loss on them, to check each way."""

    predictor: Predictor
    part: DatasetPart
    arrays: InputArrays
    """The rows as inputs of the graph."""
    loss: float
    """The model's own loss."""
    tolerance: float
    """The allowed increase, as a fraction of the model's loss."""

    @classmethod
    def of(cls, predictor: Predictor, part: DatasetPart, tolerance: float) -> AccuracyCheck:
        """Return a check with 2,000 rows of the part, evenly taken, or all.

        Raises AutoMLError if the model returns no finite numbers.
        """
        places = np.linspace(0, len(part) - 1, min(N_ROWS, len(part))).astype(np.int64)
        sample = DatasetPart(part.rows.taking(places), part.y[places])
        loss = _loss(predictor, predictor.outputs(sample.rows), sample)
        arrays = graph_inputs(predictor.columns, sample.rows)
        return cls(predictor, sample, arrays, loss, tolerance)

    @property
    def max_loss(self) -> float:
        """The largest loss within the tolerance; it allows the same sums in another order."""
        return self.loss + max(self.tolerance, SAME) * abs(self.loss) + SAME**2

    def loss_of(self, scores: ScoreFunction, *, one_by_one: bool) -> float:
        """Return the loss of a way on all rows at once.

        With `one_by_one` each row is also computed alone, and the larger loss counts: int8 scales a
        row by all rows of its batch. Raises AutoMLError if there are no finite numbers.
        """
        answers = [np.asarray(scores(**self.arrays))]
        if one_by_one:
            n_rows = range(len(self.part.y))
            single_rows = [{n: a[i : i + 1] for n, a in self.arrays.items()} for i in n_rows]
            answers.append(np.concatenate([np.asarray(scores(**row)) for row in single_rows]))
        return max(_loss(self.predictor, self._outputs(answer), self.part) for answer in answers)

    def check(self, scores: ScoreFunction) -> None:
        """Raise ParityError if a way that rounds is not within the tolerance."""
        loss = self.loss_of(scores, one_by_one=True)
        if not loss <= self.max_loss:
            raise ParityError(
                f"The export's loss on {len(self.part.y):,} validation rows is {loss:.6g}, the "
                f"model's {self.loss:.6g}: more than export.tolerance={self.tolerance:g} allows. "
                "Nothing was written. Allow more, or leave export.tune out."
            )

    def _outputs(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return probabilities or values in the form of `TrainedModel.outputs`."""
        if self.predictor.task is Task.classification:
            return np.log(np.maximum(scores.astype(np.float64), np.finfo(np.float64).tiny))
        mean, scale = self.predictor.unit
        return ((scores.astype(np.float64) - mean) / scale)[:, None]


def _loss(predictor: Predictor, outputs: npt.NDArray[np.float64], part: DatasetPart) -> float:
    scored = make_predictions(
        predictor.task, outputs, part.y, *predictor.unit, predictor.value_loss
    ).scored()
    return float(scored["loss"])


@dataclass
class TuningMeasurements:
    """The measurements of all ways, in their order."""

    ways: list[WayMeasurement] = field(default_factory=list)
    files: dict[str, CallableWay] = field(default_factory=dict)
    """The ways that run a file of an export, by label."""
    interrupted: bool = False


def seconds_needed(ways: Sequence[InferenceWay]) -> float:
    """Return about the time to measure all ways that can be measured, on a free machine."""
    return sum(way.making_seconds + SECONDS_PER_WAY for way in ways if not way.why_not)


def measure_ways(
    predictor: Predictor,
    validation: AccuracyCheck,
    ways: Sequence[InferenceWay],
    folder: Path,
    show: Callable[[int, WayMeasurement], None],
) -> TuningMeasurements:
    """Measure each way with the rows of `validation`, and call `show` after each.

    Files are made in `folder`. Ctrl-C ends the measurement: the remaining ways get "interrupted" as
    their reason. Raises AutoMLError for a model that cannot be exported, and KeyboardInterrupt
    before the first timing.
    """
    artifacts, found = WayArtifacts(predictor, validation.arrays, folder), TuningMeasurements()
    try:
        for number, way in enumerate(ways):
            found.ways.append(_measure_way(way, artifacts, validation, found.files))
            if not way.why_not:
                show(number, found.ways[-1])
    except KeyboardInterrupt:
        if not any(measured.timing for measured in found.ways):
            raise
        found.interrupted = True
        rest = ways[len(found.ways) :]
        found.ways += [WayMeasurement(way.name, way.threads, why_not="interrupted") for way in rest]
    return found


def _measure_way(
    way: InferenceWay,
    artifacts: WayArtifacts,
    validation: AccuracyCheck,
    files: dict[str, CallableWay],
) -> WayMeasurement:
    """Return the measurement of a way, and add it to `files` if it runs a file of an export."""
    if way.why_not:
        return WayMeasurement(way.name, way.threads, why_not=way.why_not)
    with use_threads(way.threads or torch.get_num_threads()):
        try:
            ready = way.make(artifacts)
            timing = time_calls(ready.scores, validation.arrays, time.perf_counter)
            loss = validation.loss_of(ready.scores, one_by_one=way.rounds)
        except (WayUnavailableError, AutoMLError) as error:  # AutoMLError: no finite scores
            return WayMeasurement(way.name, way.threads, why_not=str(error))
        except Exception as error:  # noqa: BLE001  # compilers and runtimes raise many kinds
            return WayMeasurement(
                way.name, way.threads, why_not=f"{type(error).__name__}: {short_error_text(error)}"
            )
    within = loss <= validation.max_loss
    measured = WayMeasurement(
        way.name, way.threads, timing, loss, within, way.rounds, ready.file is not None
    )
    if ready.file is not None:
        files[measured.label] = ready
    return measured
