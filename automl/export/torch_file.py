"""`export.format=torch`: the traced program itself, for torch of this version or newer."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch


def check() -> None:
    """torch is here."""


def write(
    program: torch.export.ExportedProgram, example: Mapping[str, npt.NDArray[Any]], file: Path
) -> None:
    torch.export.save(program, file)
