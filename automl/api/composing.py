"""Command lines composed on behalf of callers, who may come from several threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from automl.cli.arguments import Arguments
from automl.cli.compose import Composed, compose

_composing = threading.Lock()
"""Hydra has one state for a whole process."""


def composed(command: str, overrides: Sequence[str]) -> Composed:
    """What `python -m automl COMMAND OVERRIDES` would run. Raises ConfigError."""
    with _composing:
        return compose(Arguments(command, tuple(overrides)))
