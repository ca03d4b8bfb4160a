"""The notebooks of `docs/notebooks/`: what they store, and that each can be executed afresh."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest

from docs.run_notebooks import code_cells, execute, notebook_files

CONTENTS = (Path(__file__).parents[2] / "docs" / "contents.md").read_text("utf-8")
EACH = pytest.mark.parametrize("file", notebook_files(), ids=lambda file: file.stem)


def stored(file: Path) -> Any:
    return nbformat.read(file, nbformat.NO_CONVERT)  # type: ignore[no-untyped-call]


def kinds(cell: Any) -> set[str]:
    """Return the kinds of what a cell has shown: its streams, and the types of its values."""
    outputs = cell["outputs"]
    shown = {kind for output in outputs for kind in output.get("data", ())}
    return shown | {output.get("name", "") for output in outputs} - {""}


def text(cell: Any) -> str:
    """Return what a cell has written to stdout."""
    return "".join(output.get("text", "") for output in cell["outputs"])


def test_the_contents_name_each_notebook() -> None:
    assert len(notebook_files()) == 6
    assert [file for file in notebook_files() if f"notebooks/{file.stem}\n" not in CONTENTS] == []


@EACH
def test_a_notebook_is_short_and_each_cell_is_introduced(file: Path) -> None:
    cells = stored(file)["cells"]
    assert 5 <= len(code_cells(stored(file))) <= 10
    assert cells[0]["source"].startswith("# ")
    kinds_of_cells = "".join(cell["cell_type"][0] for cell in cells)
    assert "ccc" not in kinds_of_cells, "two cells in a row may belong together"


@EACH
def test_a_notebook_stores_what_its_cells_have_shown(file: Path) -> None:
    cells = code_cells(stored(file))
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    assert all("stderr" not in kinds(cell) for cell in cells)
    written = file.read_text("utf-8")
    assert [
        path for path in ("/tmp/", "/site-packages/", str(Path.home())) if path in written
    ] == []


@pytest.mark.slow
@EACH
def test_a_notebook_shows_the_same_kinds_of_things_again(file: Path, tmp_path: Path) -> None:
    again = code_cells(execute(file, tmp_path / file.stem))
    for before, after in zip(code_cells(stored(file)), again, strict=True):
        assert after["source"] == before["source"]
        assert kinds(after) == kinds(before), after["source"]
        assert "\nautoml: " not in f"\n{text(after)}", text(after)  # a command that was refused
