"""Command lines composed on behalf of callers, who may come from several threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from automl.cli.arguments import Arguments
from automl.cli.compose import Composed
from automl.cli.joining import compose_to_run

composing = threading.RLock()
"""Hydra has one state for a whole process."""


def composed(command: str, overrides: Sequence[str], application: object = None) -> Composed:
    """What `python -m automl COMMAND OVERRIDES` would run, by the settings that a Hydra application
    composed if they are given. Raises ConfigError."""
    with composing:
        return compose_to_run(Arguments(command, tuple(overrides)), application)
