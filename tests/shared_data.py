"""Real tables, which the project does not ship: they lie in `shared/data` beside the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

_FOLDER = Path(__file__).parents[2] / "shared" / "data"


def shared_table(name: str) -> Path:
    """The path of a table there; skips the test, saying so, where there is none."""
    path = _FOLDER / name
    if not path.exists():
        pytest.skip(f"needs {name} in {_FOLDER}, which the project does not ship")
    return path
