"""Writes `export.format=torch`: the traced program itself, for torch of this version or newer.

It is a file of its own as one of the formats, which `formats.py` loads by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch


def check() -> None:
    """Check nothing: torch is always installed."""


def write(
    program: torch.export.ExportedProgram, example: Mapping[str, npt.NDArray[Any]], file: Path
) -> None:
    torch.export.save(program, file)
