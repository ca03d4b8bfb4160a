"""Times the reader of a sweep's table against `pandas.read_csv`, on three generated tables.

With `--large`, one table of a million rows is read by pyarrow, by pandas and as a sweep reads it,
each in a process of its own, whose memory is measured, too. All that a sweep imports is imported
before.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import sklearn.ensemble
import sklearn.preprocessing  # noqa: F401 - a sweep imports both, which takes seconds

import automl.data.scoring.model_findings
import automl.data.tables.table_sources  # noqa: F401 - the same
from automl.config import DataConfig, DataKind
from automl.config.data import DataRule
from automl.data.load import load_dataset
from automl.data.tables.frames import write_frame
from automl.data.tables.table_file import TableFile

N_ROWS, N_RUNS = 200_000, 20
N_LARGE_ROWS, N_LARGE_RUNS = 1_000_000, 1


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


def large_table() -> pa.Table:
    """Return a million rows of 20 numbers, two categories and a target of two classes."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N_LARGE_ROWS, 20)).round(4)
    city, shop = (rng.integers(0, n, N_LARGE_ROWS) for n in (12, 300))
    score = x[:, 0] * x[:, 1] + np.sin(2 * x[:, 2]) + city % 3 * 0.6 + 0.4 * np.sin(shop) + x[:, 3]
    cells: dict[str, object] = {f"x{place}": column for place, column in enumerate(x.T)}
    cells["city"] = np.array([f"city{n}" for n in range(12)])[city]
    cells["shop"] = np.array([f"s{n}" for n in range(300)])[shop]
    cells["y"] = (score + 0.5 * rng.normal(size=N_LARGE_ROWS) > np.median(score)).astype(int)
    return pa.table(cells)


def read_as_file(path: Path) -> None:
    TableFile.at("data.path", str(path)).read("y", detect_verbatim=True)


def prepare(path: Path, combine: str) -> None:
    """Do all that a sweep with model=auto does with its table before it has its data set."""
    rules, kind = len(DataRule), DataKind.csv
    load_dataset(
        DataConfig(kind, str(path), "y", combine=combine, test="none", folds="auto", rules=rules)
    )


def costs(read: Callable[[], object]) -> tuple[float, float, float]:
    """Return seconds, seconds of CPU, and MiB of memory beyond what was held before."""
    held_pages = int(Path("/proc/self/statm").read_text().split()[1])
    begin, cpu_begin = time.perf_counter(), time.process_time()
    read()
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return seconds, cpu_seconds, peak - held_pages * resource.getpagesize() / 2**20


def frame_costs(parquet: Path) -> tuple[float, float, float]:
    """Return what `automl.fit` takes to write a table that is in memory for its sweep to read."""
    frame = pd.read_parquet(parquet)
    return costs(partial(write_frame, frame, parquet.parent))


def read_large() -> None:
    table = large_table()
    with TemporaryDirectory() as folder:
        of_csv, parquet = Path(folder) / "table.csv", Path(folder) / "table.parquet"
        pyarrow.csv.write_csv(table, of_csv)
        pyarrow.parquet.write_table(table, parquet)
        del table
        reads: dict[str, Callable[[], object]] = {
            "pyarrow.csv": partial(pyarrow.csv.read_csv, of_csv),
            "pandas.read_csv": partial(pd.read_csv, of_csv),
            "CSV, TableFile.read": partial(read_as_file, of_csv),
            "CSV, all but combined columns": partial(prepare, of_csv, "none"),
            "CSV, all": partial(prepare, of_csv, "auto"),
            "pyarrow.parquet": partial(pyarrow.parquet.read_table, parquet),
            "Parquet, TableFile.read": partial(read_as_file, parquet),
            "Parquet, all but combined columns": partial(prepare, parquet, "none"),
            "Parquet, all": partial(prepare, parquet, "auto"),
        }
        measures = {name: partial(costs, read) for name, read in reads.items()}
        measures["automl.fit, writing its frame"] = partial(frame_costs, parquet)
        processes = multiprocessing.get_context("spawn")
        for name, measure in measures.items():
            found = []
            for _ in range(N_LARGE_RUNS):
                with processes.Pool(1) as pool:
                    found.append(pool.apply(measure))
            seconds, cpu_seconds, mebibytes = map(min, zip(*found, strict=True))
            sys.stdout.write(
                f"{name}: {seconds:.1f} s, {cpu_seconds:.2f} s of CPU, {mebibytes:.0f} MiB; "
                f"load {os.getloadavg()[0]:.0f}\n"
            )
            sys.stdout.flush()


def main() -> None:
    if sys.argv[1:] == ["--large"]:
        read_large()
        return
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
