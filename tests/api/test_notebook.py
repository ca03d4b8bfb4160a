"""The page on Python and notebooks, run as written, cell by cell, by a real kernel."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.manuals import ROOT

PAGE = ROOT / "docs" / "how-to" / "notebook.md"


def cells() -> list[str]:
    """The page's blocks of Python."""
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Proactor")
def test_the_manuals_notebook_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    first, second, third = cells()
    sources = [
        first,
        second,
        third,
        f"{first}\nopened = len(automl.open_study('sine').trials())\nopened",
        "automl.open_study('sine').report()",
    ]
    new: Any = nbformat.v4
    notebook = new.new_notebook(cells=[new.new_code_cell(source) for source in sources])
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}})
    client.execute()
    outputs = [cell["outputs"] for cell in notebook["cells"]]
    said = "".join(o["text"] for o in outputs[0] if o["output_type"] == "stream")
    assert re.search(r"sine: \d+ finished.* in ", said)
    assert re.search(r"^\{'lr': .*, 'width': \d+\} [\d.]+$", said, re.MULTILINE)
    tables = [o["data"] for o in outputs[0] if o["output_type"] == "display_data"]
    assert re.match(r"20/20 trials \(\d+ finished.*; best val_loss ", tables[0]["text/plain"])
    assert "20/20" in tables[0]["text/html"], "the live table as it was at the end"
    assert "<table" in outputs[1][-1]["data"]["text/html"]
    assert "matters most" in outputs[2][-1]["data"]["text/html"]
    again = "".join(o["text"] for o in outputs[3] if o["output_type"] == "stream")
    assert "study sine has 20 trials already" in again
    assert "go on with: the same call with name='sine', n_trials=40" in again
    assert outputs[3][-1]["data"]["text/plain"] == "20"
    frame = outputs[4][-1]["data"]["text/html"]
    assert 'sandbox="allow-scripts" title="report of sine"' in frame
    (page,) = re.findall(r'srcdoc="([^"]*)"', frame)
    assert unescape(page) == (folder / "studies/sine/report.html").read_text("utf-8")
