"""Whose environment a program is of: another's Python does not know this package."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

_STARTERS = frozenset(
    ("env", "ionice", "nice", "nohup", "numactl", "setsid", "stdbuf", "taskset", "time", "timeout")
)
"""What starts the program that is named behind it, as it is."""
_PATH = "PATH="


def elsewhere(argv: Sequence[str]) -> Path | None:
    """The program that a command runs, where it is not of this Python's environment; None: it is.

    A shell, or what sets up an environment of its own, is not of this one, whatever it runs.
    """
    program = _program(argv)
    return None if program.parent == Path(sys.executable).parent else program


def _program(argv: Sequence[str]) -> Path:
    path = next((word[len(_PATH) :] for word in argv[1:] if word.startswith(_PATH)), None)
    first = Path(shutil.which(argv[0]) or argv[0])
    if first.name not in _STARTERS:
        return first
    behind = (shutil.which(word, path=path) for word in argv[1:])
    return next((Path(found) for found in behind if found is not None), first)
