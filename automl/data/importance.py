"""How much a model goes by each column: its loss with the column's cells shuffled among the rows.

The cells are shuffled as they were before any encoding, a category's features together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from automl.data.columns import Column, Columns
from automl.data.dataset import Rows
from automl.data.frame import Frame, frame_of


def importances(
    columns: Columns, rows: Rows, loss: Callable[[Rows], float], *, n_repeats: int, seed: int
) -> Frame:
    """By `column`: `importance`, the mean rise of the loss, and its `std`; the largest first."""
    rng, before = np.random.default_rng(seed), loss(rows)
    found: list[tuple[float, float, str]] = []
    kinds: dict[str, Sequence[Column]] = {"numbers": columns.numbers, "codes": columns.categories}
    for kind, group in kinds.items():
        for place, column in enumerate(group):
            orders = (rng.permutation(len(rows)) for _ in range(n_repeats))
            rises = [loss(_shuffled(rows, kind, place, order)) - before for order in orders]
            found.append((float(np.mean(rises)), float(np.std(rises)), column.name))
    found.sort(reverse=True)
    table = [{"column": name, "importance": mean, "std": std} for mean, std, name in found]
    return frame_of(table, ("column", "importance", "std"), index="column")


def _shuffled(rows: Rows, kind: str, place: int, order: npt.NDArray[np.int64]) -> Rows:
    cells = getattr(rows, kind).copy()
    cells[:, place] = cells[order, place]
    return replace(rows, **{kind: cells})
