"""Measures the ways of running a model one after the other: speed, and loss on validation rows.

The loss is compared with the model's own. An interruption keeps the measurements made so far. The
fastest way is chosen, and the speeds are drawn, by these measurements.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
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
from automl.measure.tuning.ways import (
    CallableWay,
    InferenceWay,
    InputArrays,
    ScoreFunction,
    WayArtifacts,
    WayUnavailableError,
    first_rows,
)
from automl.models.ensemble_figures import new_figure, png_bytes
from automl.models.mean_model import use_threads
from automl.models.model_file import short_error_text
from automl.models.predictor import Predictor

BATCH_SIZES = (1, 16, 256, 4096, 16384)
ONE_ROW_SECONDS, BATCH_SECONDS = 1.0, 0.25
"""The time for calls with one row, and for calls with each other batch size."""
SECONDS_PER_WAY = ONE_ROW_SECONDS + BATCH_SECONDS * (len(BATCH_SIZES) - 1)
MAX_CALLS, LEAST_CALLS, N_WARM = 5000, 3, 3


@dataclass(frozen=True)
class InferenceTiming:
    """The speed of a model in one way of running it."""

    p50_seconds: float
    """The median time of a call with one row."""
    p99_seconds: float
    """The 99th percentile of the time of a call with one row."""
    rows_per_second: Mapping[int, float]
    """The speed by the rows of a call, from the median time of the call."""


def time_calls(
    scores: ScoreFunction, rows: InputArrays, clock: Callable[[], float]
) -> InferenceTiming:
    """Time calls with `rows` in each batch size, after three calls that do not count."""
    rows_per_second: dict[int, float] = {}
    one_row: npt.NDArray[np.float64] = np.empty(0)
    for n_rows in BATCH_SIZES:
        batch = first_rows(rows, n_rows)
        limit_seconds = ONE_ROW_SECONDS if n_rows == 1 else BATCH_SECONDS
        seconds = _call_seconds(scores, batch, limit_seconds, clock)
        rows_per_second[n_rows] = n_rows / max(float(np.median(seconds)), 1e-9)
        one_row = seconds if n_rows == 1 else one_row
    p50, p99 = np.percentile(one_row, [50, 99]).tolist()
    return InferenceTiming(p50, p99, rows_per_second)


def _call_seconds(
    scores: ScoreFunction, batch: InputArrays, limit_seconds: float, clock: Callable[[], float]
) -> npt.NDArray[np.float64]:
    """Return the time of each call, for about `limit_seconds` in all."""
    for _ in range(N_WARM):
        scores(**batch)
    seconds: list[float] = []
    begin = now = clock()
    while len(seconds) < LEAST_CALLS or (now - begin < limit_seconds and len(seconds) < MAX_CALLS):
        scores(**batch)
        before, now = now, clock()
        seconds.append(now - before)
    return np.array(seconds)


@dataclass(frozen=True)
class WayMeasurement:
    """The speed and the loss of a way of running a model, or the reason why it was not measured."""

    name: str
    threads: int | None = None
    """The number of threads; None if the way has no such choice."""
    timing: InferenceTiming | None = None
    loss: float | None = None
    """The loss on validation rows."""
    is_accurate: bool = False
    """Whether the loss is no worse than the model's by more than the tolerance."""
    rounds: bool = False
    """Whether the way computes in fewer bits than the training."""
    is_file: bool = False
    """Whether the way runs a file that can be an export."""
    why_not: str = ""
    """The reason why the way was not measured; empty if it was."""

    @property
    def label(self) -> str:
        """The name with its threads, such as `onnx, 2 threads`."""
        if self.threads is None:
            return self.name
        return f"{self.name}, {self.threads} thread{'s' * (self.threads != 1)}"


def fastest_way(ways: Sequence[WayMeasurement], *, files: bool = False) -> WayMeasurement | None:
    """Return the way within the tolerance that has the smallest median time of one row.

    With `files` only ways that run a file of an export count.
    """
    fit = [way for way in ways if way.is_accurate and (way.is_file or not files)]
    return min(fit, key=lambda way: _timing(way).p50_seconds, default=None)


def fastest_way_for_many(ways: Sequence[WayMeasurement]) -> tuple[WayMeasurement, int] | None:
    """Return the way within the tolerance that has the most rows a second, and its batch size."""
    rates = [
        (rate, n_rows, way)
        for way in ways
        if way.is_accurate
        for n_rows, rate in _timing(way).rows_per_second.items()
    ]
    if not rates:
        return None
    _, n_rows, way = max(rates, key=lambda candidate: candidate[0])
    return way, n_rows


def _timing(way: WayMeasurement) -> InferenceTiming:
    assert way.timing is not None, "a way within the tolerance was measured"
    return way.timing


def draw_speeds(ways: Sequence[WayMeasurement], exported: str) -> bytes:
    """Return a PNG of the rows a second by the rows of a call, with a line for each way.

    Ways that are not within the tolerance are dotted; the way with the label `exported` is thick.
    """
    figure = new_figure(9, 6)
    axes = figure.add_subplot(
        title="Throughput by way of running the model",
        xlabel="rows in a call",
        ylabel="rows per second",
        xscale="log",
        yscale="log",
    )
    for way in ways:
        if way.timing is None:
            continue
        axes.plot(
            list(way.timing.rows_per_second),
            list(way.timing.rows_per_second.values()),
            label=way.label,
            marker="o",
            markersize=3,
            linestyle="-" if way.is_accurate else ":",
            linewidth=3 if way.label == exported else 1,
        )
    axes.set_xticks(BATCH_SIZES, [f"{n:,}" for n in BATCH_SIZES])
    axes.grid(visible=True, alpha=0.3)
    figure.legend(loc="outside right upper", fontsize="small")
    return png_bytes(figure)


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
        sample = DatasetPart(part.rows.take(places), part.y[places])
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
                f"model's {self.loss:.6g}: more than tolerance={self.tolerance:g} allows. "
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
    is_accurate = loss <= validation.max_loss
    measured = WayMeasurement(
        way.name, way.threads, timing, loss, is_accurate, way.rounds, ready.file is not None
    )
    if ready.file is not None:
        files[measured.label] = ready
    return measured
