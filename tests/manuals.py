"""The manuals: the pages in the repository's own folder, in `docs/`, `conf/` and `automl/`.

Those of `experiments/NNN-…` are reports, of which `test_experiments.py` knows.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
MANUALS = (
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "conf").rglob("*.md")),
    *sorted((ROOT / "automl").rglob("*.md")),
    ROOT / "experiments" / "recipes" / "README.md",
)


def text() -> str:
    """All of them, one after another."""
    return "\n".join(path.read_text("utf-8") for path in MANUALS)


def section(title: str) -> str:
    """What stands below this heading (`##` or deeper), up to the next: there is one such."""
    found = re.findall(rf"^##+ {re.escape(title)}\n(.*?)(?=^##+ |\Z)", text(), re.DOTALL | re.M)
    assert len(found) == 1, f"{len(found)} sections are called {title!r}"
    return str(found[0])
