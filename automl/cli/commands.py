"""What a command line asks for: an answer to one of its options, else its command.

Each import stands in its function, so that each answer loads what it needs.
"""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

from automl.cli.arguments import Arguments
from automl.cli.paths import conf_dir
from automl.cli.registry import COMMANDS


def run(arguments: Arguments) -> int:
    """Do what the command line says; returns the exit code. Raises AutoMLError."""
    if arguments.help:
        from automl.cli.help import help_text

        extra = None if arguments.config_dir is None else Path(arguments.config_dir)
        sys.stdout.write(help_text(conf_dir(), extra))
        return 0
    if arguments.version:
        sys.stdout.write(f"automl {metadata.version('automl-sweep')}\n")
        return 0
    if arguments.completion:
        from automl.cli.show import complete

        return complete(arguments)
    if arguments.hydra_options:
        from automl.cli.show import show

        return show(arguments)
    return _command(arguments)


def _command(arguments: Arguments) -> int:
    from automl.cli.joining import compose_to_run

    composed = compose_to_run(arguments)
    run_command = COMMANDS[composed.command].load()
    return run_command(composed.config, composed.stored_config)
