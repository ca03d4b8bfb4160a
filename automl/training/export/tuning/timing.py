"""How long a model takes: one row at a time, and growing batches. The clock is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Scores = Callable[..., Any]
"""Arrays `numbers` (N, …) and `codes` (N, …) in, scores (N, …) out."""
Arrays = Mapping[str, npt.NDArray[Any]]

BATCHES = (1, 16, 256, 4096, 16384)
ONE_ROW_SECONDS, BATCH_SECONDS = 1.0, 0.25
"""For how long calls are made."""
SECONDS_PER_WAY = ONE_ROW_SECONDS + BATCH_SECONDS * (len(BATCHES) - 1)
MAX_CALLS, LEAST_CALLS, N_WARM = 5000, 3, 3


@dataclass(frozen=True)
class Timing:
    """Of one way of running a model."""

    p50_seconds: float
    """Of a call with one row."""
    p99_seconds: float
    rows_per_second: Mapping[int, float]
    """By the rows of a call, from its median."""


def time_calls(scores: Scores, rows: Arrays, clock: Callable[[], float]) -> Timing:
    """Call it with rows of `rows`, again and again, after three calls that do not count."""
    rows_per_second: dict[int, float] = {}
    one_row: npt.NDArray[np.float64] = np.empty(0)
    for n_rows in BATCHES:
        batch = rows_of(rows, n_rows)
        seconds = _seconds(scores, batch, ONE_ROW_SECONDS if n_rows == 1 else BATCH_SECONDS, clock)
        rows_per_second[n_rows] = n_rows / max(float(np.median(seconds)), 1e-9)
        one_row = seconds if n_rows == 1 else one_row
    p50, p99 = np.percentile(one_row, [50, 99]).tolist()
    return Timing(p50, p99, rows_per_second)


def rows_of(rows: Arrays, n_rows: int) -> dict[str, npt.NDArray[Any]]:
    """The first of them, from the beginning again where they are too few."""
    places = np.arange(n_rows)
    return {name: array[places % len(array)] for name, array in rows.items()}


def _seconds(
    scores: Scores, batch: Arrays, at_most: float, clock: Callable[[], float]
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
