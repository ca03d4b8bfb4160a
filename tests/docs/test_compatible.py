"""The pure parts of `make compatible`, which itself takes an hour."""

from __future__ import annotations

import tomllib

import pytest

from tests.compatible import (
    ENVIRONMENTS,
    HEAD,
    PAGE,
    SHOWN,
    SUITES,
    constraints_of_others,
    has_passed,
    lowest_versions,
    stored_rows,
    table,
    with_rows,
)
from tests.manuals import ROOT

ROW = ["3.11", "2.10.0", "5.0.0", "3.17.2", "1.3.0", "2.0.0", "2.2.2", "1.6.0"]


@pytest.mark.parametrize(
    ("allowed", "lowest"),
    [
        ("torch>=2.10", "torch==2.10"),
        ("optuna>=5.0,<6", "optuna==5.0"),
        ("py3nvml==0.2.7", "py3nvml==0.2.7"),
    ],
)
def test_the_lowest_version_is_the_first_that_is_allowed(allowed: str, lowest: str) -> None:
    assert lowest_versions([allowed]) == [lowest]


def test_what_is_pinned_to_its_lowest_is_no_constraint() -> None:
    text = constraints_of_others(["jinja2==3.1.2", "torch==2.10"])
    assert "Jinja2==" not in text
    assert "torch==" not in text
    assert "torchmetrics==" in text


def test_the_suites_are_there() -> None:
    assert [suite for suite in SUITES if not (ROOT / suite).exists()] == []


def test_an_environment_replaces_its_row_of_the_page() -> None:
    failed = [*ROW, "1 failed, 3 passed", "2026-11-28"]
    page = f"# Versions\n\n{table({'newest-3.12': ROW, 'lowest': failed})}\n\nMore.\n"
    again = with_rows(page, {"lowest": [*ROW, "4 passed, 1 skipped", "2026-11-29"]})
    assert [*stored_rows(again)] == ["lowest", "newest-3.12"]
    assert stored_rows(again)["lowest"][-2:] == ["4 passed, 1 skipped", "2026-11-29"]
    assert again.startswith("# Versions\n\n| environment |")
    assert again.endswith("2026-11-29 |\n| newest-3.12 | " + " | ".join(ROW) + " |\n\nMore.\n")


@pytest.mark.parametrize(
    ("result", "passes"),
    [("4 passed", True), ("4 passed, 1 skipped", True), ("4 passed, 1 error", False)],
)
def test_an_environment_has_passed_where_all_suites_have(result: str, passes: bool) -> None:
    assert has_passed([*ROW, result, "2026-11-29"]) == passes


def test_the_page_has_the_environments_and_all_have_passed() -> None:
    rows = stored_rows(PAGE.read_text("utf-8"))
    assert [*rows] == [environment.name for environment in ENVIRONMENTS]
    assert [name for name, row in rows.items() if not has_passed(row)] == []


def test_the_lowest_versions_of_the_page_are_those_that_are_allowed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    allowed = dict(pin.split("==") for pin in lowest_versions(project["dependencies"]))
    row = dict(zip(HEAD[1:], stored_rows(PAGE.read_text("utf-8"))["lowest"], strict=True))
    assert {name: row[name] for name in SHOWN if not row[name].startswith(allowed[name])} == {}
