"""Takes a parsed command line step by step to the exit code of its command.

The line names its `ConfigBase` (`base`, or `hydra_application`), Hydra makes a `ComposedConfig` of
both (`compose`), and the command's function returns the exit code.

Two lines are composed a second time: that of a sweep which joins a shared study, since only the
composed config names the database, and that of a command which compares its settings with those of
the study. Imports stand in their functions, so that an option is answered without Hydra.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from automl.cli.arguments import CommandLine
from automl.cli.command_registry import COMMANDS, StoredSettingsNeed
from automl.cli.optuna_begin import begin_with_optuna
from automl.cli.wandb_begin import begin_with_wandb
from automl.commands.command_call import CommandCall, StoredSettings

if TYPE_CHECKING:
    from automl.cli.compose import ComposedConfig, HydraInput
    from automl.config import Config

_PLACE_KEYS = ("study.name=", "study.dir=", "study.storage=")


def run_command(line: CommandLine) -> int:
    """Run the command of a line, and return the exit code. Raises AutoMLError."""
    from automl.record.study_directory import holding_for
    from automl.terminal.machine_output import machine_output

    command = COMMANDS[line.command]
    json_output = machine_output() if line.json else contextlib.nullcontext()
    with json_output as output:
        line = begin_with_wandb(begin_with_optuna(line))
        stored = _stored_settings(line)
        composed = compose_or_join(line)
        run = command.load()
        with holding_for(command.name):
            code = run(
                CommandCall(
                    composed.config,
                    composed.stored_config,
                    stored,
                    composed.arguments,
                    composed.stored_study,
                )
            )
        if output is not None and output.answer is None:
            output.answer = {"exit_code": code}
        return code


def compose_or_join(line: CommandLine, application: object = None) -> ComposedConfig:
    """Compose a command line; a sweep that joins a shared study takes some of its settings, and
    prints them.

    Raises ConfigError, also for a database that refuses, and StorageError.
    """
    composed = compose_command(line, application)
    if application is not None or not COMMANDS[line.command].joins_shared:
        return composed
    from automl.cli.base import settings_to_join

    taken = settings_to_join(composed.config.study, composed.stored_config, line.overrides)
    if not taken:
        return composed
    return compose_command(replace(line, overrides=(*line.overrides, *taken)))


def compose_command(line: CommandLine, application: object = None) -> ComposedConfig:
    """Compose and check a command line; with `application`, from the settings that a Hydra
    application composed as a part of its own. Raises ConfigError; writes nothing."""
    from automl.cli.compose import compose
    from automl.cli.hydra_errors import explain_errors, refuse_hydra_overrides
    from automl.cli.typed_arguments import type_arguments

    with explain_errors(line.overrides):
        refuse_hydra_overrides(line.overrides)
        composed = compose(choose_hydra_input(line, application))
    arguments = type_arguments(line.command, line.arguments)
    study = replace(composed.config.study, copy=arguments.copy)
    config = replace(composed.config, study=study)
    return replace(composed, config=config, arguments=arguments)


def choose_hydra_input(line: CommandLine, application: object = None) -> HydraInput:
    """Choose what the line is composed from. Raises ConfigError and errors of Hydra."""
    from automl.cli.base import find_base
    from automl.cli.compose import make_hydra_input
    from automl.cli.hydra_application import application_base_config
    from automl.cli.schemas import register_schemas
    from automl.cli.space_overrides import parse_overrides

    register_schemas()
    overrides = parse_overrides(line.overrides)
    if application is not None:
        base = application_base_config(application, overrides)
    else:
        base = find_base(line, overrides)
    return make_hydra_input(base, overrides, line.config_dir)


def _stored_settings(line: CommandLine) -> StoredSettings | None:
    """Return the settings that the study has without those of the line, if the command needs
    them."""
    need = COMMANDS[line.command].stored_settings
    is_plain = all(word.startswith(_PLACE_KEYS) for word in line.overrides)
    if need is StoredSettingsNeed.NONE or (need is StoredSettingsNeed.IF_LINE_CHANGES and is_plain):
        return None
    place = tuple(word for word in line.overrides if word.startswith(_PLACE_KEYS))

    def compose_stored() -> Config:
        return compose_command(replace(line, overrides=place)).config

    is_first = need is StoredSettingsNeed.BEFORE_LINE
    return StoredSettings(compose_stored, compose_stored() if is_first else None)
