"""Rows are divided among threads, and what is said of them stays what one thread says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from automl.config import Task
from automl.data.columns import TableColumns
from automl.data.dataset import TableRows
from automl.models.mean_model import ROWS_PER_THREAD, MeanModel, outputs_by_threads, usable_threads

NO_COLUMNS = TableColumns(())


@dataclass
class Told:
    """Says each row's number; keeps how many rows it was asked about at once."""

    module: Any = None
    asked: list[int] = field(default_factory=list)
    n_outputs: int = 1

    def to(self, device: str) -> None:
        raise NotImplementedError

    def check_columns(self, columns: TableColumns) -> None:
        raise NotImplementedError

    def outputs(self, columns: TableColumns, rows: TableRows) -> npt.NDArray[np.float64]:
        self.asked.append(len(rows))
        return rows.numbers


def numbered(n: int) -> TableRows:
    return TableRows(np.arange(float(n)).reshape(n, 1), np.zeros((n, 0), np.int32))


@pytest.fixture(autouse=True)
def three_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")


@pytest.mark.parametrize(
    ("n_rows", "n_parts"),
    [(0, 1), (2 * ROWS_PER_THREAD - 1, 1), (2 * ROWS_PER_THREAD, 2), (9 * ROWS_PER_THREAD + 1, 3)],
)
def test_each_thread_has_a_part_of_many_rows(n_rows: int, n_parts: int) -> None:
    model, rows = Told(), numbered(n_rows)
    assert np.array_equal(outputs_by_threads(model, NO_COLUMNS, rows), rows.numbers)
    assert len(model.asked) == n_parts
    assert sum(model.asked) == n_rows


def test_a_network_has_all_rows_and_so_the_threads_of_torch() -> None:
    network, other, rows = Told(module="a module"), Told(), numbered(3 * ROWS_PER_THREAD)
    mean = MeanModel([network, other], Task.regression)
    assert np.array_equal(outputs_by_threads(mean, NO_COLUMNS, rows), rows.numbers)
    assert (len(network.asked), len(other.asked)) == (1, 3)


@pytest.mark.parametrize("said", ["", "0", "many"])
def test_who_says_no_number_has_the_cores(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", said)
    assert usable_threads() >= 1
