"""Small tables on disk, written cell by cell so that a test shows what is in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from automl.config import DataConfig, DataKind

WriteTable = Callable[..., DataConfig]


@pytest.fixture
def table(tmp_path: Path) -> WriteTable:
    """`table("a,y", "1,x", …)` writes a CSV and gives the settings that read it; target `y`."""

    def write(
        *lines: str, n_times: int = 1, encoding: str = "utf-8", **settings: object
    ) -> DataConfig:
        path = tmp_path / "table.csv"
        rows = [*lines[:1], *list(lines[1:]) * n_times]
        path.write_bytes("".join(f"{row}\n" for row in rows).encode(encoding))
        values = {"kind": DataKind.csv, "path": str(path), "target": "y"} | settings
        return DataConfig(**values)  # type: ignore[arg-type]

    return write
