"""`resume`: a study goes on from its own stored config."""

from __future__ import annotations

from automl.commands.sweep import carry_out
from automl.config import Config


def run(config: Config, stored_config: str) -> int:
    """As `sweep` does, but the study has to be there. Raises AutoMLError."""
    return carry_out(config, stored_config, resume=True)
