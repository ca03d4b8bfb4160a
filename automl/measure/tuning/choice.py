"""Times calls of a model, chooses the fastest way of running it, and draws the speeds.

Calls have one row, or growing batches; the caller passes the clock. The ways themselves are in
`ways.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from automl.models.ensemble_figures import new_figure, png_bytes

ScoreFunction = Callable[..., Any]
"""Takes the arrays `numbers` (N, …) and `codes` (N, …), and returns scores (N, …)."""
InputArrays = Mapping[str, npt.NDArray[Any]]

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


def first_rows(rows: InputArrays, n_rows: int) -> dict[str, npt.NDArray[Any]]:
    """Return the first `n_rows` rows; too few rows repeat from the beginning."""
    places = np.arange(n_rows)
    return {name: array[places % len(array)] for name, array in rows.items()}


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
    within: bool = False
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
    fit = [way for way in ways if way.within and (way.is_file or not files)]
    return min(fit, key=lambda way: _timing(way).p50_seconds, default=None)


def fastest_way_for_many(ways: Sequence[WayMeasurement]) -> tuple[WayMeasurement, int] | None:
    """Return the way within the tolerance that has the most rows a second, and its batch size."""
    rates = [
        (rate, n_rows, way)
        for way in ways
        if way.within
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
            linestyle="-" if way.within else ":",
            linewidth=3 if way.label == exported else 1,
        )
    axes.set_xticks(BATCH_SIZES, [f"{n:,}" for n in BATCH_SIZES])
    axes.grid(visible=True, alpha=0.3)
    figure.legend(loc="outside right upper", fontsize="small")
    return png_bytes(figure)
