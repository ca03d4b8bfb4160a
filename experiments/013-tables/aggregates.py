"""Would group aggregates help? The mean of a number within a category, and the number's distance
from it, for all pairs of a number and a category of each table, proposed and judged as combined
columns are (`automl/data/pair_selection.py`), which has no such kind.

Means are those of the rows that propose, or of those that decide; no target is looked at. The table
`control` is made so that a distance from a mean decides.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pandas as pd
import tables

from automl.data import pair_selection as chooser
from automl.data.columns import NumberColumn, TableColumns
from automl.data.dataset import DatasetPart, TableRows
from automl.data.preprocessing import Preprocessing

Aggregate = tuple[int, int, bool]
"""The places of a number and of a category, and whether it is the distance from the mean."""
Floats = npt.NDArray[np.float64]
CONTROL = "control"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of the public tables")
    parser.add_argument("--tables", nargs="+", help="names; default: all with both kinds of column")
    parser.add_argument("--samples", type=int, default=5, help="samples of the rows of each table")
    asked = parser.parse_args()
    sys.stdout.write("| table | aggregates | sample | proposed | gain, % | t | chosen |\n")
    sys.stdout.write("|---|---|---|---|---|---|---|\n")
    for name in asked.tables or (CONTROL, *tables.names(asked.data)):
        columns, part = control() if name == CONTROL else read(tables.table(name, asked.data))
        if not columns.numbers or not columns.categories or len(part) < chooser.MIN_ROWS:
            continue
        for seed in range(asked.samples):
            sample = part.take(chooser.draw_sample(len(part), seed)[: chooser.MAX_ROWS])
            sys.stdout.write(f"| {name} | {judged(columns, sample, seed)} |\n")
            sys.stdout.flush()


def read(table: tables.Table) -> tuple[TableColumns, DatasetPart]:
    frame = table.frame.drop(columns=tables.TARGET)
    preprocessing, y = Preprocessing.fit(frame), table.frame[tables.TARGET].to_numpy()
    if table.task == tables.CLASSES:
        classes = np.unique(y, return_inverse=True)[1].astype(np.int64)
        return preprocessing.columns, DatasetPart(preprocessing.read(frame), classes)
    return preprocessing.columns, DatasetPart(preprocessing.read(frame), y.astype(np.float64))


def control() -> tuple[TableColumns, DatasetPart]:
    random = np.random.default_rng(0)
    town = random.integers(30, size=4000)
    x = random.normal(size=(4000, 3))
    price = random.normal(scale=3, size=30)[town] + x[:, 0]
    target = np.where(np.abs(x[:, 0]) + random.normal(scale=0.2, size=4000) > 0.7, "odd", "usual")
    frame = pd.DataFrame({"price": price, "x1": x[:, 1], "x2": x[:, 2], tables.TARGET: target})
    frame["town"] = [f"town {number}" for number in town]
    return read(tables.Table(CONTROL, frame, tables.CLASSES))


def judged(columns: TableColumns, sample: DatasetPart, seed: int) -> str:
    half, targets = len(sample) // 2, chooser._targets(sample.y)
    first, second = sample.rows[:half], sample.rows[half:]
    every = [*product(range(len(columns.numbers)), range(len(columns.categories)), (False, True))]
    predicted = chooser._out_of_fold(columns, first, targets[:half], sample.y[:half])
    proposed = propose(columns, first, targets[:half] - predicted, every)
    if not proposed:
        return f"{len(every)} | {seed} | | | | no"
    names = [
        f"{columns.numbers[i].name} {'within' if far else 'by'} {columns.categories[j].name}"
        for i, j, far in proposed
    ]
    after = added(columns, second, proposed)
    judging = sample.y[half:], targets[half:]
    gain, t = chooser.out_of_fold_gain((columns, second), after, *judging)
    chosen = "yes" if chooser.is_enough(gain, t) else "no"
    return f"{len(every)} | {seed} | {', '.join(names)} | {100 * gain:.1f} | {t:.1f} | {chosen}"


def propose(
    columns: TableColumns, rows: TableRows, residuals: Floats, every: Sequence[Aggregate]
) -> list[Aggregate]:
    """The aggregates that explain most of the residuals, one after another, as pairs are."""
    bins = chooser._number_bins(added(columns, rows, every)[1].numbers[:, len(columns.numbers) :])
    least = NormalDist().inv_cdf(1 - min(0.5, chooser.N_BY_CHANCE / len(bins)))
    found: list[Aggregate] = []
    while len(found) < chooser.MAX_PAIRS:
        surprises = [chooser._surprise(column, residuals) for column in bins]
        best = int(np.argmax(surprises))
        if surprises[best] < least:
            break
        found.append(every[best])
        residuals = residuals - chooser._means(bins[best], residuals)[bins[best]]
    return found


def added(
    columns: TableColumns, rows: TableRows, aggregates: Sequence[Aggregate]
) -> tuple[TableColumns, TableRows]:
    """The columns and cells, and those of the aggregates."""
    cells = [aggregate_cells(rows, *aggregate) for aggregate in aggregates]
    made = []
    for number, values in enumerate(cells):
        mean, scale = float(values.mean()), float(values.std()) or 1.0
        made.append(NumberColumn(f"aggregate {number}", mean, scale, mean, has_indicator=False))
    numbers = np.column_stack([rows.numbers, *cells])
    return replace(columns, all=(*columns.all, *made)), TableRows(numbers, rows.codes)


def aggregate_cells(rows: TableRows, number: int, category: int, is_distance: bool) -> Floats:
    values, codes = rows.numbers[:, number], rows.codes[:, category]
    filled = np.where(np.isnan(values), np.nanmean(values), values)
    means: Floats = np.bincount(codes, filled) / np.maximum(1, np.bincount(codes))
    return filled - means[codes] if is_distance else means[codes]


if __name__ == "__main__":
    main()
