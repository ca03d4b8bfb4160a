"""Chooses the pairs of columns that a table gets a combined column of, by out-of-fold gain.

Half of a sample of the rows proposes pairs: those that explain what boosted trees of the table's
own columns leave unexplained. The other half decides: trees with the proposed columns must predict
rows that they never saw better than trees without them, by more than chance. A random target
therefore gains nothing from any number of pairs, except by the rare chance of that one comparison.
The result depends on the rows and the seed alone, and not on how fast the machine is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from automl.data.columns import CROSSING, CombinedColumn, FrequencyReading, TableColumns
from automl.data.combined_columns import (
    add_pairs,
    candidate_cells,
    candidate_pairs,
    candidate_products,
)
from automl.data.dataset import DatasetPart, Places, TableRows, Targets
from automl.data.features import scaled_numbers
from automl.data.target_encoding import fit_encoding

if TYPE_CHECKING:
    from automl.data.preprocessing import Preprocessing
    from automl.data.tables.frames import Frame

Floats: TypeAlias = "npt.NDArray[np.float64]"
LearnedRows: TypeAlias = tuple[TableColumns, TableRows]
"""Columns, and rows of their cells."""
MIN_ROWS, MAX_ROWS = 500, 4_000
"""No pair is tried below MIN_ROWS rows: so few rows cannot tell a gain from chance. Above MAX_ROWS
a random sample of the rows decides."""
MAX_ENCODED_ROWS, FORMER_ENCODED_ROWS = 40_000, 10_000
"""Rows that decide on target encoding, by the rules of today and of earlier studies; of fewer,
columns of hundreds of categories have too few of each."""
MAX_COLUMNS = 24
"""Number columns, and category columns, that are paired; of more those that tell most by
themselves."""
MAX_MULTIPLIED = 16
"""Number columns of which each three are multiplied: 560 products, which take a quarter of a second
of CPU."""
MAX_PAIRS = 8
PROPOSED = ("*", "/", CROSSING)
"""Sums and differences helped on no table beyond chance, and harmed kernels on spirals
(`experiments/013-tables/combined.md`); they may be named."""
N_BY_CHANCE, N_PRODUCTS_BY_CHANCE = 0.5, 0.02
"""Pairs, and products of three, that are proposed, on average, where all residuals are random.
Deciding on a proposal takes as long as all else; products that help stand out."""
MIN_T, MIN_GAIN = 2.5, 0.01
"""The least gain in the error, in standard errors and as a share."""
CLEAR_DEVIATIONS = 3
"""A gain among some of the rows is clear if it is so many deviations away from the least gain."""
MAX_TARGETS = 4
"""Classes that are predicted each against all others; of more the most frequent ones."""
N_FOLDS, N_BINS = 5, 8


def draw_sample(n_rows: int, seed: int, n_most: int = MAX_ENCODED_ROWS) -> Places:
    """Return the places of the rows that decide, at most `n_most`, in random order."""
    return np.random.default_rng(seed).permutation(n_rows)[:n_most]


def select_pairs(
    preprocessing: Preprocessing,
    frame: Frame,
    y: Targets,
    *,
    of_three: bool = False,
    until_clear: bool = False,
) -> tuple[CombinedColumn, ...]:
    """Return the pairs whose combined columns improve predictions; mostly none.

    `frame` and `y` are a sample of rows in random order, MAX_ROWS of which are used. With
    `of_three`, products of three columns are tried where no pair improves predictions: trees do not
    find what three columns decide together, and no two of them. With `until_clear`, a judgement
    ends as soon as it is clear.
    """
    if len(y) < MIN_ROWS:
        return ()
    from threadpoolctl import threadpool_limits

    columns = preprocessing.columns
    sample = DatasetPart(preprocessing.read_cells(frame[:MAX_ROWS])[0], y[:MAX_ROWS])
    targets = _targets(sample.y)
    half = len(sample) // 2
    first, second = sample.rows[:half], sample.rows[half:]
    with threadpool_limits(1):  # sums, and so the choice, must not depend on the number of threads
        strongest, cells = _strongest(columns, first, targets[:half])
        rounds = [each for each in _candidates(strongest, of_three=of_three) if each[0]]
        if not rounds:
            return ()
        residuals = targets[:half] - _out_of_fold(strongest, cells, targets[:half], sample.y[:half])
        for candidates, n_by_chance in rounds:
            pairs = _propose(strongest, cells, residuals, candidates, n_by_chance)
            if not pairs:
                continue
            combined, judging = add_pairs(columns, second, pairs)
            judged = sample.y[half:], targets[half:]
            gain = out_of_fold_gain(
                (columns, second), (combined, judging), *judged, until_clear=until_clear
            )
            if is_enough(*gain):
                return tuple(pairs)
    return ()


def select_encoded(
    preprocessing: Preprocessing, frame: Frame, y: Targets, *, until_clear: bool = False
) -> Sequence[str]:
    """Return the columns of many categories whose target encoding improves predictions; mostly
    none.

    `frame` and `y` are a sample of rows in random order. All such columns are judged together, and
    once, so that chance has no choice among them. With `until_clear`, the judgement ends as soon as
    it is clear.
    """
    readings = preprocessing.columns.readings
    names = [reading.name for reading in readings if isinstance(reading, FrequencyReading)]
    if not names or len(y) < MIN_ROWS:
        return ()
    from threadpoolctl import threadpool_limits

    before, after = (
        (learned.columns, learned.read_cells(frame)[0])
        for learned in (preprocessing, preprocessing.with_target_means(frame, names, y))
    )
    with threadpool_limits(1):
        gain = out_of_fold_gain(before, after, y, _targets(y), until_clear=until_clear)
    return names if is_enough(*gain) else ()


def _candidates(
    columns: TableColumns, *, of_three: bool
) -> Iterator[tuple[list[CombinedColumn], float]]:
    """Yield the candidates of each round, pairs, then products of three columns, and how many may
    be proposed by chance.

    In one round, products that include a pair that decides would stand in the pair's way.
    """
    yield [pair for pair in candidate_pairs(columns) if pair.operation in PROPOSED], N_BY_CHANCE
    if of_three:
        yield list(candidate_products(columns, MAX_MULTIPLIED)), N_PRODUCTS_BY_CHANCE


def _targets(y: Targets) -> Floats:
    """Return (N, K) numbers to predict: the value without its tails, less its mean, or a column for
    a class."""
    if y.dtype != np.int64:
        values: Floats = y.clip(*np.quantile(y, (0.02, 0.98)))
        values -= values.mean()
        return values[:, None]
    classes, counts = np.unique(y, return_counts=True)
    frequent = classes[np.argsort(-counts, kind="stable")][: 1 if len(classes) < 3 else MAX_TARGETS]
    hits: Floats = (y[:, None] == frequent).astype(np.float64)
    return hits


def _propose(
    columns: TableColumns,
    rows: TableRows,
    residuals: Floats,
    candidates: Sequence[CombinedColumn],
    n_by_chance: float,
) -> list[CombinedColumn]:
    """Return the candidates that explain most of the residuals, one after another."""
    cells = dict(candidate_cells(columns, rows, candidates))
    crossed = [pair for pair in cells if pair.operation == CROSSING]
    pairs = [*(pair for pair in cells if pair.operation != CROSSING), *crossed]
    bins = [
        *_number_bins([cells[pair] for pair in pairs[: len(pairs) - len(crossed)]]),
        *(cells[pair].astype(np.int64) for pair in crossed),
    ]
    least = NormalDist().inv_cdf(1 - min(0.5, n_by_chance / len(bins)))
    found: list[CombinedColumn] = []
    while len(found) < MAX_PAIRS:
        surprises = [_surprise(column, residuals) for column in bins]
        best = int(np.argmax(surprises))
        if surprises[best] < least:
            break
        found.append(pairs[best])
        residuals = residuals - _means(bins[best], residuals)[bins[best]]
    return found


def _strongest(
    columns: TableColumns, rows: TableRows, targets: Floats
) -> tuple[TableColumns, TableRows]:
    """Return MAX_COLUMNS columns of each kind, those that tell most of the targets, and their
    cells."""
    centred = targets - targets.mean(axis=0)
    numbers, codes = (
        np.sort(np.argsort([-_surprise(column, centred) for column in bins])[:MAX_COLUMNS])
        for bins in (_number_bins(rows.numbers.T), rows.codes.T)
    )
    kept = {columns.numbers[i].name for i in numbers} | {columns.categories[i].name for i in codes}
    own = tuple(column for column in columns.all if column.name in kept)
    return replace(columns, all=own), TableRows(rows.numbers[:, numbers], rows.codes[:, codes])


def out_of_fold_gain(
    before: LearnedRows,
    after: LearnedRows,
    y: Targets,
    targets: Floats,
    *,
    until_clear: bool = False,
) -> tuple[float, float]:
    """Return the share by which the columns after reduce the error on unseen rows, and the gain in
    standard errors.

    The error is squared for classes. For values it is absolute, because a few outliers would
    otherwise decide it. Where the columns before predict worse than one value for all rows, the
    columns after must beat that value: else a random target gains by columns that overfit less.
    With `until_clear`, the rows of the first folds decide if they leave no doubt (`is_clear`).
    """
    has_classes = np.isin(targets, (0, 1)).all()
    measure = np.square if has_classes else np.abs
    middle = targets.mean(axis=0) if has_classes else np.median(targets, axis=0)
    of_middle = measure(targets - middle).sum(axis=1)
    errors, is_judged = np.full((2, len(targets)), np.nan), np.zeros(len(targets), dtype=bool)
    found = 0.0, 0.0
    for (judged, of_before), (_, of_after) in zip(
        *(_fold_predictions(*made, targets, y) for made in (before, after)), strict=True
    ):
        for place, values in enumerate((of_before, of_after)):
            errors[place, judged] = measure(targets[judged] - values).sum(axis=1)
        is_judged |= judged
        found = _gain(of_middle[is_judged], *errors[:, is_judged])
        if until_clear and is_clear(*found, share=float(is_judged.mean())):
            break
    return found


def _gain(of_middle: Floats, before: Floats, after: Floats) -> tuple[float, float]:
    """Return the gain as a share and in standard errors, by the errors (N,) of one value for all
    rows, of the columns before, and of the columns after."""
    least = min(before, of_middle, key=np.sum)
    gain = least - after
    chance = max(float(gain.std(ddof=1)) / np.sqrt(len(gain)), 1e-300)
    return float(gain.mean() / max(least.mean(), 1e-300)), float(gain.mean() / chance)


def is_clear(gain: float, t: float, *, share: float) -> bool:
    """Return whether a gain among a share of the rows leaves no doubt whether it `is_enough` among
    all.

    If the gain goes on like this, it is `t / sqrt(share)` standard errors of all rows, and differs
    from that by chance with the deviation `sqrt(1 / share - 1)`.
    """
    expected = t / math.sqrt(share)
    least = max(MIN_T, MIN_GAIN * expected / gain) if gain else MIN_T
    return abs(expected - least) > CLEAR_DEVIATIONS * math.sqrt(1 / share - 1)


def is_enough(gain: float, t: float) -> bool:
    """Return whether a gain, as a share and in standard errors, is worth more columns."""
    return gain > MIN_GAIN and t > MIN_T


def _out_of_fold(columns: TableColumns, rows: TableRows, targets: Floats, y: Targets) -> Floats:
    """Return what a simple model predicts (N, K) for rows that it was not fitted to."""
    predicted = np.empty_like(targets)
    for judged, found in _fold_predictions(columns, rows, targets, y):
        predicted[judged] = found
    return predicted


def _fold_predictions(
    columns: TableColumns, rows: TableRows, targets: Floats, y: Targets
) -> Iterator[tuple[npt.NDArray[np.bool_], Floats]]:
    """Yield for each fold which rows (N,) it judges, and what a simple model of all other rows
    predicts for them.

    The model is a ridge regression, and boosted trees of its residuals: plain sums, which linear
    models find, are therefore no gain.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    is_category = np.arange(len(columns.all)) >= len(columns.numbers)
    trees = HistGradientBoostingRegressor(
        learning_rate=0.12,
        max_iter=60,
        max_leaf_nodes=16,
        early_stopping=False,
        categorical_features=is_category if is_category.any() else None,
    )
    x, linear = _views(columns, rows)
    fold = np.arange(len(x)) % N_FOLDS
    for number in range(N_FOLDS):
        trained, judged = fold != number, fold == number
        if columns.encoded:
            x, linear = _views(columns, _encoded(columns, rows, y, trained))
        line = linear @ _ridge(linear[trained], targets[trained])
        predicted = line[judged]
        for place, left in enumerate((targets - line).T):
            predicted[:, place] += trees.fit(x[trained], left[trained]).predict(x[judged])
        yield judged, predicted


def _views(columns: TableColumns, rows: TableRows) -> tuple[Floats, Floats]:
    """Return the rows as trees take them (N, F), and as a ridge regression takes them (N, D)."""
    known = [column.n_codes for column in columns.categories]
    x = np.column_stack([rows.numbers, np.where(rows.codes < known, rows.codes, np.nan)])
    return x, np.column_stack([scaled_numbers(columns, rows), np.ones(len(x))])


def _encoded(
    columns: TableColumns, rows: TableRows, y: Targets, trained: npt.NDArray[np.bool_]
) -> TableRows:
    """Return the rows as the rows `trained` encode them."""
    encoding, learned = fit_encoding(columns, rows.numbers[trained], y[trained])
    numbers = encoding.encode(columns, rows.numbers)
    numbers[trained] = learned
    return replace(rows, numbers=numbers)


def _ridge(x: Floats, targets: Floats) -> Floats:
    """Return the coefficients (D, K) of a ridge regression."""
    solved = np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T @ targets)
    return np.asarray(solved, dtype=np.float64)


def _number_bins(columns: Iterable[Floats]) -> list[npt.NDArray[np.int64]]:
    """Return for each column (N,) the bin of each cell; missing cells have the last bin."""
    inner = np.linspace(0, 1, N_BINS + 1)[1:-1]
    found = []
    for column in columns:
        is_missing = np.isnan(column)
        present = column[~is_missing] if is_missing.any() else column
        edges = np.quantile(present, inner) if len(present) else inner
        rises = np.append(True, edges[1:] > edges[:-1])
        bins = np.searchsorted(edges[rises], column, "right")
        found.append(np.where(is_missing, N_BINS, bins))
    return found


def _means(bins: npt.NDArray[np.integer], residuals: Floats) -> Floats:
    """Return the mean residual (bins, K) of each bin."""
    sums = np.stack([np.bincount(bins, column) for column in residuals.T], axis=1)
    means: Floats = sums / np.maximum(1, np.bincount(bins))[:, None]
    return means


def _surprise(bins: npt.NDArray[np.integer], residuals: Floats) -> float:
    """Return by how much the bins explain more than random bins would, in standard deviations.

    The sum of squares between random bins has a chi-squared distribution, whose cube root is nearly
    normal (Wilson and Hilferty, 1931).
    """
    counts = np.bincount(bins)
    between = (counts[:, None] * np.square(_means(bins, residuals))).sum(axis=0)
    explained = (between / np.maximum(residuals.var(axis=0), 1e-300)).sum()
    n_free = max(1, int((counts > 0).sum()) - 1) * residuals.shape[1]
    variance = 2 / (9 * n_free)
    return float((np.cbrt(explained / n_free) - 1 + variance) / np.sqrt(variance))
