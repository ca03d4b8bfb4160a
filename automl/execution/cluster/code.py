"""Which of the working directory goes to the nodes: the user's code, and not what it made.

Left out are studies, MLflow's stores, virtual environments, caches, version control, and what
mostly holds credentials (`.env` and its like, `.netrc`, `.pgpass`, `*.pem`).
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from automl.errors import ConfigError
from automl.record.files import CONFIG, EVENTS

_LEFT_OUT = frozenset(
    [
        "__pycache__",
        ".git",
        ".hg",
        ".svn",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".ipynb_checkpoints",
        ".hypothesis",
        "node_modules",
        "mlruns",
        "mlartifacts",
        ".netrc",
        ".pgpass",
        ".rayignore",
    ]
)
_N_NAMED = 5


@dataclass(frozen=True)
class Code:
    """A folder to take along."""

    folder: Path
    excludes: Sequence[str]
    """As `.gitignore` has them."""


def code_of(folder: Path, max_bytes: int, without: Collection[Path] = ()) -> Code:
    """The folder without what is no code, nor one of these paths. Raises ConfigError where it is
    more than `max_bytes`."""
    away = {path.absolute() for path in without}
    excludes: list[str] = []
    sizes: list[tuple[int, str]] = []
    for top, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(top, name)
            if _is_left_out(path) or path.absolute() in away:
                excludes.append(f"/{path.relative_to(folder).as_posix()}")
                if name in folders:
                    folders.remove(name)
            elif name in names and path.is_file():
                sizes.append((path.stat().st_size, str(path.relative_to(folder))))
    total = sum(size for size, _ in sizes)
    if total > max_bytes:
        largest = heapq.nlargest(_N_NAMED, sizes)
        listed = ", ".join(f"{name} ({size / 2**20:.0f} MiB)" for size, name in largest)
        raise ConfigError(
            f"the working directory {folder} is {total / 2**20:.0f} MiB, and at most "
            f"{max_bytes // 2**20} go to the nodes of a Ray cluster. Start from a folder with your "
            f"code alone, move what is large elsewhere, or allow more by ray.max_code, which Ray "
            f"has end at 500MiB: {listed}."
        )
    return Code(folder, excludes)


def _is_left_out(path: Path) -> bool:
    if path.name in _LEFT_OUT or path.name.startswith((".env", "mlflow.db")):
        return True
    if path.suffix == ".pem":
        return True
    is_study = (path / EVENTS).exists() and (path / CONFIG).exists()
    return is_study or (path / "pyvenv.cfg").exists()
