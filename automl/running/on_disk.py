"""What a study takes on disk, for people."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from automl.record.files import BEST


def line_of(path: Path) -> str:
    """`on disk: 34.1 MB in studies/any; its largest model 1.2 MB`; of the folder of a study."""
    sizes = dict(_sizes(path))
    models = [size for file, size in sizes.items() if file.name == BEST]
    largest = f"; its largest model {_megabytes(max(models))}" if models else ""
    return f"on disk: {_megabytes(sum(sizes.values()))} in {os.path.relpath(path)}{largest}"


def _sizes(path: Path) -> Iterator[tuple[Path, int]]:
    """Of the files below; one that goes meanwhile has none."""
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                yield Path(folder, name), Path(folder, name).stat().st_size
            except FileNotFoundError:
                continue


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB"
