"""How much a model goes by each column: its loss with the column's cells shuffled among the rows.

The cells are shuffled as they were before any encoding, a category's features together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from automl.data.columns import Column, Columns, source_of
from automl.data.dataset import Rows
from automl.data.frame import Frame, frame_of


def importances(
    columns: Columns, rows: Rows, loss: Callable[[Rows], float], *, n_repeats: int, seed: int
) -> Frame:
    """By `column`: `importance`, the mean rise of the loss, and its `std`; the largest first."""
    rng, before = np.random.default_rng(seed), loss(rows)
    found: list[tuple[float, float, str]] = []
    kinds: dict[str, Sequence[Column]] = {"numbers": columns.numbers, "codes": columns.categories}
    places: dict[str, list[tuple[str, int]]] = {}
    for kind, group in kinds.items():
        for place, column in enumerate(group):
            places.setdefault(source_of(column), []).append((kind, place))
    for name, own in places.items():
        orders = (rng.permutation(len(rows)) for _ in range(n_repeats))
        rises = [loss(_shuffled(rows, own, order)) - before for order in orders]
        found.append((float(np.mean(rises)), float(np.std(rises)), name))
    found.sort(reverse=True)
    table = [{"column": name, "importance": mean, "std": std} for mean, std, name in found]
    return frame_of(table, ("column", "importance", "std"), index="column")


def _shuffled(rows: Rows, places: Sequence[tuple[str, int]], order: npt.NDArray[np.int64]) -> Rows:
    """With all that is made of one column of the table shuffled alike."""
    cells = {kind: getattr(rows, kind).copy() for kind, _ in places}
    for kind, place in places:
        cells[kind][:, place] = cells[kind][order, place]
    return replace(rows, **cells)
