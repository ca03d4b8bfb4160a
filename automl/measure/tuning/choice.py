"""Which way of running a model is the fastest: values in, values out.

What was measured as a picture: rows a second by the rows of a call, a line for each way.

How long a model takes: one row at a time, and growing batches. The clock is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from automl.models.ensemble.ensemble_figures import new_figure, png_bytes

ScoreFunction = Callable[..., Any]
"""Arrays `numbers` (N, …) and `codes` (N, …) in, scores (N, …) out."""
InputArrays = Mapping[str, npt.NDArray[Any]]

BATCH_SIZES = (1, 16, 256, 4096, 16384)
ONE_ROW_SECONDS, BATCH_SECONDS = 1.0, 0.25
"""For how long calls are made."""
SECONDS_PER_WAY = ONE_ROW_SECONDS + BATCH_SECONDS * (len(BATCH_SIZES) - 1)
MAX_CALLS, LEAST_CALLS, N_WARM = 5000, 3, 3


@dataclass(frozen=True)
class InferenceTiming:
    """Of one way of running a model."""

    p50_seconds: float
    """Of a call with one row."""
    p99_seconds: float
    rows_per_second: Mapping[int, float]
    """By the rows of a call, from its median."""


def time_calls(
    scores: ScoreFunction, rows: InputArrays, clock: Callable[[], float]
) -> InferenceTiming:
    """Call it with rows of `rows`, again and again, after three calls that do not count."""
    rows_per_second: dict[int, float] = {}
    one_row: npt.NDArray[np.float64] = np.empty(0)
    for n_rows in BATCH_SIZES:
        batch = first_rows(rows, n_rows)
        seconds = _seconds(scores, batch, ONE_ROW_SECONDS if n_rows == 1 else BATCH_SECONDS, clock)
        rows_per_second[n_rows] = n_rows / max(float(np.median(seconds)), 1e-9)
        one_row = seconds if n_rows == 1 else one_row
    p50, p99 = np.percentile(one_row, [50, 99]).tolist()
    return InferenceTiming(p50, p99, rows_per_second)


def first_rows(rows: InputArrays, n_rows: int) -> dict[str, npt.NDArray[Any]]:
    """The first of them, from the beginning again where they are too few."""
    places = np.arange(n_rows)
    return {name: array[places % len(array)] for name, array in rows.items()}


def _seconds(
    scores: ScoreFunction, batch: InputArrays, at_most: float, clock: Callable[[], float]
) -> npt.NDArray[np.float64]:
    for _ in range(N_WARM):
        scores(**batch)
    seconds: list[float] = []
    begin = now = clock()
    while len(seconds) < LEAST_CALLS or (now - begin < at_most and len(seconds) < MAX_CALLS):
        scores(**batch)
        before, now = now, clock()
        seconds.append(now - before)
    return np.array(seconds)


@dataclass(frozen=True)
class WayMeasurement:
    """What was seen of a way, or why nothing was."""

    name: str
    threads: int | None = None
    """None: nobody chooses them."""
    timing: InferenceTiming | None = None
    loss: float | None = None
    """On validation rows."""
    within: bool = False
    """No worse than the model by more than the tolerance."""
    rounds: bool = False
    """It computes in fewer bits than the model was trained in."""
    is_file: bool = False
    """It runs a file that an export can be."""
    why_not: str = ""
    """It was not measured."""

    @property
    def label(self) -> str:
        """`onnx, 2 threads`."""
        if self.threads is None:
            return self.name
        return f"{self.name}, {self.threads} thread{'s' * (self.threads != 1)}"


def fastest_way(seen: Sequence[WayMeasurement], *, files: bool = False) -> WayMeasurement | None:
    """The one with the smallest median of one row among those within the tolerance; `files`: among
    those that an export can be."""
    fit = [one for one in seen if one.within and (one.is_file or not files)]
    return min(fit, key=lambda one: _timing(one).p50_seconds, default=None)


def fastest_way_for_many(seen: Sequence[WayMeasurement]) -> tuple[WayMeasurement, int] | None:
    """The one with the most rows a second within the tolerance, and in which batches."""
    rates = [
        (rate, n_rows, one)
        for one in seen
        if one.within
        for n_rows, rate in _timing(one).rows_per_second.items()
    ]
    if not rates:
        return None
    _, n_rows, one = max(rates, key=lambda three: three[0])
    return one, n_rows


def _timing(one: WayMeasurement) -> InferenceTiming:
    assert one.timing is not None, "what is within the tolerance was measured"
    return one.timing


def draw_speeds(seen: Sequence[WayMeasurement], written: str) -> bytes:
    """A PNG; ways that are not within the tolerance are dotted, `written` is the thick one."""
    figure = new_figure(9, 6)
    axes = figure.add_subplot(
        title="Throughput by way of running the model",
        xlabel="rows in a call",
        ylabel="rows per second",
        xscale="log",
        yscale="log",
    )
    for one in seen:
        if one.timing is None:
            continue
        axes.plot(
            list(one.timing.rows_per_second),
            list(one.timing.rows_per_second.values()),
            label=one.label,
            marker="o",
            markersize=3,
            linestyle="-" if one.within else ":",
            linewidth=3 if one.label == written else 1,
        )
    axes.set_xticks(BATCH_SIZES, [f"{n:,}" for n in BATCH_SIZES])
    axes.grid(visible=True, alpha=0.3)
    figure.legend(loc="outside right upper", fontsize="small")
    return png_bytes(figure)
