"""An MLflow store for each fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.syscalls import FaultCount
from tests.mlflow_store import ignore_mlflows_warning, mlflow_environment

__all__ = ["mlflow_environment"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ignore_mlflows_warning(items, Path(__file__).parent)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a table of the faults that were tried."""
    reports = [
        report for kind in ("passed", "failed") for report in terminalreporter.getreports(kind)
    ]
    counts = [
        value
        for report in reports
        for _, value in getattr(report, "user_properties", ())
        if isinstance(value, FaultCount)
    ]
    if counts:
        terminalreporter.section("faults")
        terminalreporter.line(f"{'fault':20}{'tried':>8}{'broken promises':>18}")
    for count in counts:
        terminalreporter.line(f"{count.fault:20}{count.n_tried:8}{count.n_broken:18}")
