"""Times the reader of a sweep's table against `pandas.read_csv`, on three generated tables."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from automl.data.tables.table_file import TableFile

N_ROWS, N_RUNS = 200_000, 20


def least_seconds(read: Callable[[], object]) -> str:
    """Return the least time of several runs, and the least CPU time: others can only add to it."""
    seconds, cpu_seconds = [], []
    for _ in range(N_RUNS):
        begin, cpu_begin = time.perf_counter(), time.process_time()
        read()
        seconds.append(time.perf_counter() - begin)
        cpu_seconds.append(time.process_time() - cpu_begin)
    return f"{min(seconds):.2f} s, {min(cpu_seconds):.2f} s of CPU"


def tables() -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(0)
    words = np.array(["Private", "State-gov", "Never-married", "United-States", "Adm-clerical"])
    numbers = pd.DataFrame(rng.normal(size=(N_ROWS, 20)).round(6)).rename(columns="x{}".format)
    texts = pd.DataFrame(rng.choice(words, (N_ROWS, 12))).rename(columns="c{}".format)
    quoted = texts.assign(note=['said "so", and\nmore'] * N_ROWS)
    return {"decimals": numbers, "texts": texts, "quoted texts": quoted}


def main() -> None:
    for name, frame in tables().items():
        with TemporaryDirectory() as folder:
            path = Path(folder) / "table.csv"
            frame.assign(y=np.arange(N_ROWS) % 2).to_csv(path, index=False)
            table = TableFile.at("data.path", str(path))
            by_pandas = least_seconds(partial(pd.read_csv, path, low_memory=False))
            ours = least_seconds(partial(table.read, "y", detect_verbatim=True))
            sys.stdout.write(
                f"{name}, {path.stat().st_size / 1e6:.0f} MB: pandas {by_pandas}; ours {ours}\n"
            )


if __name__ == "__main__":
    main()
