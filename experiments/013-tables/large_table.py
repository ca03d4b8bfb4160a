"""Makes a large table of two classes: 20 columns of numbers and two of categories.

    .venv/bin/python experiments/013-tables/large_table.py --rows 1000000 --out DIR

It writes `DIR/large-1000000.csv`, and `DIR/large-test.csv` with 100,000 other rows. What decides is
a sum of products, waves and steps of ten of the numbers and an effect of each category, with noise:
a linear model sees little of it, boosted trees see more with more rows.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

N_TEST, N_NUMBERS = 100_000, 20
CHUNK_ROWS = 100_000
KINDS = {"town": 40, "shop": 400}


def make_rows(n_rows: int, seed: int) -> pd.DataFrame:
    """Return `n_rows` rows with their target `y`, drawn by `seed`."""
    draws = np.random.default_rng([51, seed])
    x = draws.normal(size=(n_rows, N_NUMBERS))
    codes = {name: draws.integers(0, n, n_rows) for name, n in KINDS.items()}
    noise = draws.logistic(scale=0.35, size=n_rows)
    is_one = _score(x, codes) + noise > 0
    columns = {f"x{place}": np.round(x[:, place], 5) for place in range(N_NUMBERS)}
    named = {name: [f"{name}{code}" for code in codes[name]] for name in KINDS}
    return pd.DataFrame({**columns, **named, "y": np.where(is_one, "yes", "no")})


def _score(
    x: npt.NDArray[np.float64], codes: dict[str, npt.NDArray[np.int64]]
) -> npt.NDArray[np.float64]:
    effects = {
        name: np.random.default_rng(number).normal(size=n)[codes[name]]
        for number, (name, n) in enumerate(KINDS.items())
    }
    products = x[:, 0] * x[:, 1] + 0.7 * x[:, 2] * x[:, 3] + 0.5 * x[:, 4] * effects["town"]
    waves = np.sin(2 * x[:, 5]) + np.cos(3 * x[:, 6]) * (x[:, 7] > 0)
    steps = 1.2 * ((x[:, 8] > 0.5) & (x[:, 9] < 0.3)) - 0.4
    total: npt.NDArray[np.float64] = products + waves + steps + 0.5 * effects["shop"]
    return total + 0.3 * x[:, 10]


def write_rows(path: Path, n_rows: int, seed: int) -> None:
    """Write a table in chunks, so that memory holds only one of them."""
    for number, begin in enumerate(range(0, n_rows, CHUNK_ROWS)):
        rows = make_rows(min(CHUNK_ROWS, n_rows - begin), seed + number)
        rows.to_csv(path, mode="a" if number else "w", header=not number, index=False)


def make_tables(folder: Path, n_rows: int) -> tuple[Path, Path]:
    """Return the paths of the table of `n_rows` and of the test rows, which are made once."""
    folder.mkdir(parents=True, exist_ok=True)
    train, test = folder / f"large-{n_rows}.csv", folder / "large-test.csv"
    if not test.exists():
        write_rows(test, N_TEST, seed=1_000_000)
    if not train.exists():
        write_rows(train, n_rows, seed=0)
    return train, test


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    for n_rows in arguments.rows:
        make_tables(arguments.out, n_rows)
