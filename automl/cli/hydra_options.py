"""Answers that only Hydra can give: `--cfg`, `--info`, `--hydra-help`, and shell completion.

They go through `hydra.main`, which reads `sys.argv` and prints; nothing is run here.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig

from automl.cli.arguments import CommandLine
from automl.cli.command_registry import COMMANDS, conf_dir
from automl.cli.compose import HydraInput, compose_command, make_hydra_input
from automl.cli.hydra_errors import explain_errors
from automl.cli.schemas import SCHEMA_SUFFIX, epochs_override, register_schemas
from automl.cli.stored_config import SWEEP_CONFIG
from automl.config import StudyConfig
from automl.errors import ConfigError
from automl.record.studies import study_names


def show_hydra_answer(arguments: CommandLine) -> int:
    """Let Hydra print what its option asks for. Returns the exit code; raises ConfigError."""
    length: tuple[str, ...] = ()
    if "--cfg" in arguments.hydra_options:
        composed = compose_command(arguments)  # a config that cannot work is refused, not shown
        length = (epochs_override(composed.config.training),) if composed.has_open_length else ()
    with explain_errors(arguments.overrides):
        _, composition = make_hydra_input(arguments)
        composition = replace(composition, overrides=(*composition.overrides, *length))
        _hydra_main(arguments.hydra_options, composition)
    return 0


def complete_in_shell(arguments: CommandLine) -> int:
    """Print the shell function (`-sc install=bash`), or the candidates that it asks for at each Tab
    (`-sc query=bash`).

    Hydra's query knows neither commands nor `python -m`. Returns the exit code.
    """
    if Path(sys.argv[0]).suffix == ".py":
        raise ConfigError(
            'Completion is for the `automl` script: eval "$(automl -sc install=bash)"'
        )
    register_schemas()
    composition = HydraInput(SWEEP_CONFIG, arguments.overrides, None)
    if not any(line.startswith("query=") for line in arguments.overrides):
        with explain_errors(arguments.overrides):
            _hydra_main(["--shell-completion"], composition)
        return 0
    line, ours = _split_line(os.environ.get("COMP_LINE", ""))
    output = io.StringIO()
    # A half-typed line that cannot be read has no candidates; a message would break the prompt.
    with (
        contextlib.suppress(HydraException),
        contextlib.redirect_stdout(output),
        _environment({"COMP_LINE": line}),
    ):
        _hydra_main(["--shell-completion"], composition)
    theirs = [word for word in output.getvalue().split() if not word.endswith(SCHEMA_SUFFIX)]
    sys.stdout.write(" ".join([*ours, *theirs]) + "\n")
    return 0


def _split_line(line: str) -> tuple[str, list[str]]:
    """Return the line without its command word, and the candidates that Hydra does not know."""
    words = line.split()
    done = line.endswith(" ")
    last = "" if done or not words else words[-1]
    first_open = len(words) < 2 or (len(words) == 2 and not done)
    if first_open:
        ours = [command for command in COMMANDS if command.startswith(last)]
    else:
        ours = []
        if words[1] in COMMANDS:
            words.pop(1)
    key = "study.name="
    if last.startswith(key):
        names = study_names(Path(StudyConfig.dir))
        ours += [f"{key}{name}" for name in names if name.startswith(last.removeprefix(key))]
    return " ".join(words) + (" " if done else ""), ours


def _hydra_main(options: Sequence[str], composition: HydraInput) -> None:
    """Call `hydra.main`, which reads its command line from `sys.argv`."""
    config_dir = (
        [] if composition.config_dir is None else ["--config-dir", str(composition.config_dir)]
    )
    words = [sys.argv[0], *options, *config_dir, *composition.overrides]
    main = hydra.main(
        version_base="1.3", config_path=str(conf_dir()), config_name=composition.config_name
    )
    # The variable makes Hydra raise its errors instead of printing them and leaving.
    with _environment({"HYDRA_FULL_ERROR": "1"}), _arguments(words):
        main(_do_nothing)()


def _do_nothing(config: DictConfig) -> None:
    """The task of `hydra.main`; the options it is called with here never run it."""


@contextlib.contextmanager
def _arguments(words: list[str]) -> Iterator[None]:
    before, sys.argv = sys.argv, words
    try:
        yield
    finally:
        sys.argv = before


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
