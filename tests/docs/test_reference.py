"""The generated reference is what `docs/generate.py` makes of the code, and nothing is empty."""

from __future__ import annotations

import re

import pytest

from automl.cli.command_registry import COMMANDS, LISTED_COMMANDS
from docs.environment import ENVIRONMENT
from docs.generate import FOLDER, MARK, PAGES, page
from docs.source_texts import definition, signature
from tests.manuals import ROOT

EXAMPLES = {"AUTOML_LR", "AUTOML_BATCH_SIZE"}
"""Names of docstrings that stand for a param."""


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_the_one_that_is_generated(name: str) -> None:
    assert (FOLDER / f"{name}.md").read_text("utf-8") == page(name), "run: make reference"


def test_only_pages_that_are_generated_say_so() -> None:
    marked = {file.stem for file in FOLDER.glob("*.md") if file.read_text("utf-8").startswith(MARK)}
    assert marked == set(PAGES)


@pytest.mark.parametrize(
    "name", ["settings", "options", "params", "python", "metrics", "environment"]
)
def test_each_row_says_what_its_name_is(name: str) -> None:
    rows = [line for line in page(name).splitlines() if line.startswith("| `")]
    assert len(rows) > 10
    assert [row for row in rows if row.split(" | ")[1].strip("| ") == ""] == []


def test_every_variable_of_the_package_is_listed() -> None:
    sources = "\n".join(path.read_text("utf-8") for path in (ROOT / "automl").rglob("*.py"))
    named = set(re.findall(r"\bAUTOML_[A-Z_]*[A-Z]\b", sources)) - EXAMPLES
    assert named == {name for name in ENVIRONMENT if name.startswith("AUTOML_")}


def test_a_signature_has_defaults_and_no_types() -> None:
    function = definition("automl.models.predictor", "load")
    assert signature(function) == "load(path, *, build=None)"  # type: ignore[arg-type]


def test_each_listed_command_has_a_page() -> None:
    pages = {name: command.page for name, command in LISTED_COMMANDS.items()}
    assert [name for name, where in pages.items() if not (ROOT / where).is_file()] == []
    assert (ROOT / COMMANDS["doctor"].page).is_file()
