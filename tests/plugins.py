"""The package's entry points as they will be found when it is installed from this tree.

A checkout's own are those of the day on which it was installed.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def write_entry_points(folder: Path) -> Path:
    """A folder that, first on the Python path, says what `pyproject.toml` says of them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    name = project["name"].replace("-", "_")
    there = folder / f"{name}-{project['version']}.dist-info"
    there.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (there / "METADATA").write_text(metadata)
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{point} = {target}" for point, target in points.items())]
    (there / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder
