"""An MLflow store for each fault, and the table of promises that a run prints at its end."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from tests.end_to_end.conftest import module_program, program
from tests.mlflow_store import folder, ignore_mlflows_warning, mlflow_environment

__all__ = ["folder", "mlflow_environment", "module_program", "program"]

N_POINTS = int(os.environ.get("FAULT_POINTS", "1"))
"""How often each fault strikes, at most."""
ARE_SAMPLED = "FAULT_POINTS" not in os.environ
"""Whether only some of the faults are tried, others in each run (`make slow`)."""
SEED = int(os.environ["FAULT_SEED"])
"""Another seed takes other faults, places and moments; each run of the tests has its own."""
_PROMISE = "promise"
Case = TypeVar("Case")


def sample(cases: Sequence[Case], n: int) -> list[Case]:
    """Return `n` of the cases in their order, or all of them where nothing is sampled."""
    chosen = random.Random(SEED).sample(range(len(cases)), n if ARE_SAMPLED else len(cases))
    return [cases[index] for index in sorted(chosen)]


class NotePromise(Protocol):
    """Writes a line of the table: how often a promise was tried, and how often it was broken."""

    def __call__(self, promise: str, n_tried: int, n_broken: int, n_all: int = 0) -> None: ...


@pytest.fixture
def note_promise(record_property: Callable[[str, object], None]) -> NotePromise:
    """Return what writes a line of the table; `n_all`: as many there are to try."""

    def note(promise: str, n_tried: int, n_broken: int, n_all: int = 0) -> None:
        record_property(_PROMISE, [promise, n_tried, n_broken, n_all or n_tried])

    return note


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let what fails tell how it is repeated."""
    report = yield
    report.sections.append(("seed", f"FAULT_SEED={SEED} takes these faults again"))
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ignore_mlflows_warning(items, Path(__file__).parent)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table of promises; several tests may try one."""
    lines: dict[str, list[int]] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in getattr(report, "user_properties", ()):
                if name == _PROMISE:
                    promise, *counts = value
                    sums = lines.get(promise, [0, 0, 0])
                    lines[promise] = [a + b for a, b in zip(sums, counts, strict=True)]
    if not lines:
        return
    width = max(map(len, lines)) + 2
    terminalreporter.section("promises")
    terminalreporter.line(f"{'promise':{width}}{'there are':>10}{'tried':>8}{'broken':>8}")
    for promise, (n_tried, n_broken, n_all) in lines.items():
        terminalreporter.line(f"{promise:{width}}{n_all:10}{n_tried:8}{n_broken:8}")
