"""Measures the ways one after the other, and keeps what was seen when it is interrupted.

What a way of running a model loses: its loss on validation rows, beside the model's own.
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
"""The share by which losses of the same arithmetic may differ."""


@dataclass(frozen=True, eq=False)
class AccuracyCheck:
    """Rows with their targets, and what the model loses on them."""

    predictor: Predictor
    part: DatasetPart
    arrays: InputArrays
    """The rows as the graph takes them."""
    loss: float
    """The model's own."""
    tolerance: float
    """The share of it that may be added."""

    @classmethod
    def of(cls, predictor: Predictor, part: DatasetPart, tolerance: float) -> AccuracyCheck:
        """Of 2,000 rows of the part, evenly taken, or all. Raises AutoMLError where the model gives
        no numbers."""
        places = np.linspace(0, len(part) - 1, min(N_ROWS, len(part))).astype(np.int64)
        some = DatasetPart(part.rows.taking(places), part.y[places])
        loss = _loss(predictor, predictor.outputs(some.rows), some)
        return cls(predictor, some, graph_inputs(predictor.columns, some.rows), loss, tolerance)

    @property
    def most(self) -> float:
        """The loss that is within the tolerance; the same sums in another order are."""
        return self.loss + max(self.tolerance, SAME) * abs(self.loss) + SAME**2

    def loss_of(self, scores: ScoreFunction, *, one_by_one: bool) -> float:
        """All rows at once; `one_by_one`: and each alone, the larger loss: int8 scales a row by all
        rows of its batch. Raises AutoMLError where there are no numbers."""
        seen = [np.asarray(scores(**self.arrays))]
        if one_by_one:
            n_rows = range(len(self.part.y))
            each = [{n: a[i : i + 1] for n, a in self.arrays.items()} for i in n_rows]
            seen.append(np.concatenate([np.asarray(scores(**row)) for row in each]))
        return max(_loss(self.predictor, self._outputs(said), self.part) for said in seen)

    def check(self, scores: ScoreFunction) -> None:
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


def _loss(predictor: Predictor, outputs: npt.NDArray[np.float64], part: DatasetPart) -> float:
    scored = make_predictions(
        predictor.task, outputs, part.y, *predictor.unit, predictor.value_loss
    ).scored()
    return float(scored["loss"])


@dataclass
class TuningMeasurements:
    """What was measured, in its order."""

    ways: list[WayMeasurement] = field(default_factory=list)
    files: dict[str, CallableWay] = field(default_factory=dict)
    """By label, those that an export can be."""
    interrupted: bool = False


def seconds_needed(ways: Sequence[InferenceWay]) -> float:
    """About, where all of them can be measured and the machine is free."""
    return sum(way.making_seconds + SECONDS_PER_WAY for way in ways if not way.why_not)


def measure_ways(
    predictor: Predictor,
    validation: AccuracyCheck,
    ways: Sequence[InferenceWay],
    folder: Path,
    show: Callable[[int, WayMeasurement], None],
) -> TuningMeasurements:
    """Each of them, with rows of `validation`, `show` being told; files are made in `folder`.

    Ctrl-C ends it: what was not measured says so. Raises AutoMLError for a model that is not
    exported, and KeyboardInterrupt before anything was measured.
    """
    shop, seen = WayArtifacts(predictor, validation.arrays, folder), TuningMeasurements()
    try:
        for number, way in enumerate(ways):
            seen.ways.append(_measured(way, shop, validation, seen.files))
            if not way.why_not:
                show(number, seen.ways[-1])
    except KeyboardInterrupt:
        if not any(one.timing for one in seen.ways):
            raise
        seen.interrupted = True
        rest = ways[len(seen.ways) :]
        seen.ways += [WayMeasurement(way.name, way.threads, why_not="interrupted") for way in rest]
    return seen


def _measured(
    way: InferenceWay, shop: WayArtifacts, validation: AccuracyCheck, files: dict[str, CallableWay]
) -> WayMeasurement:
    if way.why_not:
        return WayMeasurement(way.name, way.threads, why_not=way.why_not)
    with use_threads(way.threads or torch.get_num_threads()):
        try:
            made = way.make(shop)
            timing = time_calls(made.scores, validation.arrays, time.perf_counter)
            loss = validation.loss_of(made.scores, one_by_one=way.rounds)
        except (WayUnavailableError, AutoMLError) as error:  # the latter: no finite scores
            return WayMeasurement(way.name, way.threads, why_not=str(error))
        except Exception as error:  # noqa: BLE001  # whatever a compiler or a runtime raises
            return WayMeasurement(
                way.name, way.threads, why_not=f"{type(error).__name__}: {short_error_text(error)}"
            )
    within = loss <= validation.most
    measured = WayMeasurement(
        way.name, way.threads, timing, loss, within, way.rounds, made.file is not None
    )
    if made.file is not None:
        files[measured.label] = made
    return measured
