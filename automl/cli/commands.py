"""What each command calls. Each import stands in its function: a command loads what it needs."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from automl.cli.arguments import Arguments
from automl.cli.paths import conf_dir

if TYPE_CHECKING:
    from automl.cli.compose import Composed
    from automl.config import Config, StudyConfig


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
    return _dispatch(arguments)


def _dispatch(arguments: Arguments) -> int:
    from automl.cli.compose import compose

    composed = compose(arguments)
    config = composed.config
    match composed.command:
        case "status":
            from automl.running.view import print_status

            return print_status(config)
        case "devices":
            from automl.running.view import print_devices

            return print_devices(config)
        case "ui":
            from automl.tracking.ui import serve_ui

            study = None if config.study.name is None else _folder(config.study)
            return serve_ui(config.tracking, config.ui.port, study=study)
        case "sync":
            return _sync(config)
        case command:
            return _sweep(composed, resume=command == "resume")


def _sync(config: Config) -> int:
    from automl.record.place import settle_unlocked
    from automl.tracking.delivery import deliver_all
    from automl.tracking.run_update import StudyRef

    directory = _folder(config.study)
    place = settle_unlocked(directory, config.study)
    ref = None if place is None else StudyRef(place.study_uuid, place.name, place.former_names)
    return deliver_all(directory, config.tracking, study=ref)


def _folder(study: StudyConfig) -> Path:
    assert study.name is not None
    return Path(study.dir) / study.name


def _sweep(composed: Composed, *, resume: bool) -> int:
    from automl.running.pictures import mute
    from automl.running.warm import warmed_up
    from automl.tracking.say import say_on_stdout

    try:
        say_on_stdout("loading Optuna, PyTorch and MLflow: some seconds")
    except OSError:  # nobody looks, and the sweep goes on
        mute(sys.stdout)
    with warmed_up(composed.config) as deliverer:
        from automl.running.sweep import run_sweep  # takes a second: Optuna and its kin

        return run_sweep(
            composed.config, composed.stored_config, resume=resume, deliverer=deliverer
        )
