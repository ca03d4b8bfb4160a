"""An MLflow store, and programs that begin with their libraries loaded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.mlflow_store import ignore_mlflows_warning, mlflow_environment

__all__ = ["mlflow_environment"]

ORDERS_PER_TEST = 10
N_ORDERS = int(os.environ.get("ORDERS", "10"))
"""How many orders are tried."""
SEED = int(os.environ.get("ORDERS_SEED", "0"))
"""Another seed tries others."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ignore_mlflows_warning(items, Path(__file__).parent)
