"""Reads what a contender left behind: MLflow's SQLite file, and checkpoints.

Straight from the file, so that the same few lines judge all contenders.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

STORE = "mlflow.db"  # MLflow's own default, in the working directory


@dataclass(frozen=True)
class Records:
    """How much of a sweep can be found again; None: nothing is recorded there."""

    n_complete: int | None
    """Runs that are FINISHED and have both losses of every epoch."""
    n_checkpoints: int | None
    """Folders with a checkpoint, outside automl's study directory (its artifacts count)."""


def count(folder: Path, n_epochs: int) -> Records:
    """Count the records of the contender that ran in `folder`."""
    with _open(folder) as store:
        (n_complete,) = store.execute(
            """SELECT count(*) FROM (
                 SELECT m.run_uuid FROM metrics m JOIN runs r ON r.run_uuid = m.run_uuid
                 WHERE r.status = 'FINISHED' AND m.key IN ('train_loss', 'val_loss')
                 GROUP BY m.run_uuid HAVING count(*) = ?)""",
            (2 * n_epochs,),
        ).fetchone()
    checkpoints = {
        path.parent
        for path in folder.rglob("*.pt")
        if "studies" not in path.relative_to(folder).parts
    }
    return Records(n_complete, len(checkpoints))


def best_so_far(folder: Path, metric: str, began_seconds: float) -> list[tuple[float, float]]:
    """(seconds since `began_seconds`, least value of `metric` until then), at each improvement."""
    with _open(folder) as store:
        rows = store.execute(
            "SELECT timestamp, value FROM metrics WHERE key = ? AND is_nan = 0 ORDER BY timestamp",
            (metric,),
        ).fetchall()
    curve: list[tuple[float, float]] = []
    for milliseconds, value in rows:
        if not curve or value < curve[-1][1]:
            curve.append((milliseconds / 1000 - began_seconds, value))
    return curve


def trial_starts(folder: Path) -> list[float]:
    """Unix times at which automl's trials started, in their order."""
    with _open(folder) as store:
        rows = store.execute(
            """SELECT r.start_time FROM runs r JOIN tags t ON t.run_uuid = r.run_uuid
               WHERE t.key = 'automl.trial' ORDER BY r.start_time"""
        ).fetchall()
    return [milliseconds / 1000 for (milliseconds,) in rows]


def n_finished(folder: Path) -> int:
    """Trials of automl that MLflow shows as FINISHED."""
    with _open(folder) as store:
        (n,) = store.execute(
            """SELECT count(*) FROM runs r JOIN tags t ON t.run_uuid = r.run_uuid
               WHERE t.key = 'automl.trial' AND r.status = 'FINISHED'"""
        ).fetchone()
    return int(n)


@contextmanager
def _open(folder: Path) -> Iterator[sqlite3.Connection]:
    path = folder / STORE
    if not path.is_file():
        raise FileNotFoundError(f"{path}: the contender left no MLflow store; see output.txt")
    with closing(sqlite3.connect(path)) as store:
        yield store
