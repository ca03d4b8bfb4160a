"""Folders with an MLflow store, and programs in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.program import Program
from tests.fork_server import workers_start_soon
from tests.mlflow_store import folder, ignore_mlflows_warning, mlflow_environment

__all__ = ["folder", "mlflow_environment", "workers_start_soon"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ignore_mlflows_warning(items, Path(__file__).parent)


@pytest.fixture
def program(folder: Path) -> Iterator[Program]:
    program = Program(folder)
    yield program
    program.end_all()
