"""`resume`: continues a study by its own stored config.

The file is short because each command is a file of its own.
"""

from __future__ import annotations

from automl.commands.sweep import load_and_run_sweep
from automl.config import Config


def run(config: Config, stored_config: str) -> int:
    """Run the sweep of an existing study to its end. Raises AutoMLError."""
    return load_and_run_sweep(config, stored_config, resume=True)
