"""Scripts of `experiments/` as modules: each folder's own files, as where a script is started."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Imports `folder/name`."""

    def load(path: str) -> Any:
        folder, name = path.split("/")
        monkeypatch.syspath_prepend(str(EXPERIMENTS / folder))
        return importlib.import_module(name)

    return load
