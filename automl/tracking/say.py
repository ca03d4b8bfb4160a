"""Lines for the user of a command that does nothing but talk."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeAlias

from automl.record.texts import fit

Say: TypeAlias = Callable[[str], object]


def say_on_stdout(line: str) -> None:
    """Write a line, at once."""
    sys.stdout.write(f"{fit(line)}\n")
    sys.stdout.flush()
