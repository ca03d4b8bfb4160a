"""An MLflow store for each fault."""

from __future__ import annotations

from pathlib import Path

import pytest

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
        for name, value in getattr(report, "user_properties", ())
        if name == "faults"
    ]
    if counts:
        terminalreporter.section("faults")
        terminalreporter.line(f"{'fault':20}{'tried':>8}{'broken promises':>18}")
    for fault, n_tried, n_broken in counts:
        terminalreporter.line(f"{fault:20}{n_tried:8}{n_broken:18}")
