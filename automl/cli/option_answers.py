"""Answers the options that run no command: `--help`, `--version`, Hydra's own (`--cfg`, `--info`,
`--hydra-help`) and shell completion.

Each import stands in its function, so that each answer loads only what it needs.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from automl.cli.arguments import CommandLine
from automl.cli.command_registry import COMMANDS, LISTED_COMMANDS, conf_dir
from automl.config import StudyConfig
from automl.errors import ConfigError


def answer_option(line: CommandLine) -> int:
    """Print what an option asks for; with `--json` as one object. Raises ConfigError."""
    if line.completion:
        return _complete_in_shell(line.overrides)
    if not line.json:
        sys.stdout.write(_answer_text(line))
        return 0
    from automl.terminal.machine_output import machine_output, write_answer

    with machine_output():
        text = _answer_text(line)
        if line.help:
            does = {command.name: command.does for command in LISTED_COMMANDS.values()}
            write_answer({"help": text, "commands": does})
        elif "--cfg" in line.hydra_options and not line.version:
            import yaml

            write_answer({"config": yaml.safe_load(text)})
        else:
            write_answer({"text": text})
    return 0


def _answer_text(line: CommandLine) -> str:
    if line.help:
        from automl.cli.help_text import help_text

        return help_text(line.help_topic, line.config_dir)
    if line.version:
        from importlib import metadata

        return f"automl {metadata.version('automl-sweep')}\n"
    printed = io.StringIO()
    # Hydra ends the process after its own help.
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        _show_hydra_answer(line)
    if line.hydra_options[:2] != ("--cfg", "job") or line.json:
        return printed.getvalue()
    from automl.cli.open_values import write_open_values

    options = dict(zip(line.hydra_options, line.hydra_options[1:], strict=False))
    return write_open_values(printed.getvalue(), options.get("--package"))


def _show_hydra_answer(line: CommandLine) -> None:
    """Let Hydra print what `--cfg`, `--info` or `--hydra-help` asks for. Raises ConfigError."""
    from automl.cli.command_steps import choose_hydra_input
    from automl.cli.compose import compose
    from automl.cli.hydra_errors import explain_errors, refuse_hydra_overrides
    from automl.cli.space_overrides import override_text

    words = list(line.hydra_options)
    with explain_errors(line.overrides):
        if words[:2] == ["--cfg", "job"]:
            refuse_hydra_overrides(line.overrides)
        hydra_input = choose_hydra_input(line)
        if hydra_input.config_dir is not None:
            words += ["--config-dir", str(hydra_input.config_dir)]
        words += hydra_input.overrides
        if "--cfg" in line.hydra_options:
            config = compose(hydra_input).config  # or refuses what cannot work
            words.append(f"training.epochs={override_text(config.training.epochs)}")
            words.append(f"data.folds={override_text(config.data.folds)}")
        _hydra_main(hydra_input.config_name, words)


def _complete_in_shell(overrides: Sequence[str]) -> int:
    """Print the shell function (`-sc install=bash`), or the candidates that it asks for at each Tab
    (`-sc query=bash`). Hydra's query knows neither commands nor `python -m`."""
    if Path(sys.argv[0]).suffix == ".py":
        raise ConfigError(
            'Completion is for the `automl` script: eval "$(automl -sc install=bash)"'
        )
    from hydra.errors import HydraException

    from automl.cli.base import SWEEP_CONFIG
    from automl.cli.config_keys import SCHEMA_SUFFIX
    from automl.cli.hydra_errors import explain_errors
    from automl.cli.schemas import register_schemas

    register_schemas()
    words = ["--shell-completion", *overrides]
    if not any(word.startswith("query=") for word in overrides):
        with explain_errors(overrides):
            _hydra_main(SWEEP_CONFIG, words)
        return 0
    os.environ["COMP_LINE"], ours = _split_line(os.environ.get("COMP_LINE", ""))
    output = io.StringIO()
    # A half-typed line that cannot be read has no candidates; a message would break the prompt.
    with contextlib.suppress(HydraException), contextlib.redirect_stdout(output):
        _hydra_main(SWEEP_CONFIG, words)
    theirs = [word for word in output.getvalue().split() if not word.endswith(SCHEMA_SUFFIX)]
    sys.stdout.write(" ".join([*ours, *theirs]) + "\n")
    return 0


def _split_line(line: str) -> tuple[str, list[str]]:
    """Return the words of the line that Hydra knows, and the candidates that it does not know: the
    commands, then arguments of the command and names of studies."""
    from automl.cli.command_arguments import split_arguments
    from automl.cli.help_text import argument_texts
    from automl.record.studies import study_names

    words = line.split()
    last = "" if line.endswith(" ") or not words else words.pop()
    names, key, ours = study_names(Path(StudyConfig.dir)), "study.name=", [*LISTED_COMMANDS]
    if len(words) > 1 and words[1] in COMMANDS:
        command, others = words[1], [word for word in words[2:] if "=" in word]
        ours = [*(f"{text.word}=" for text in argument_texts(command)), *names]
        words = [words[0], *split_arguments(command, others)[1]]
    elif len(words) > 1:
        ours = []
    ours += [f"{key}{name}" for name in names] if last.startswith(key) else []
    return " ".join([*words, last]), [word for word in ours if word.startswith(last)]


def _hydra_main(config_name: str, words: list[str]) -> None:
    """Call `hydra.main` with a command line. The process ends with its answer, so what it reads,
    `sys.argv` and the environment, is not put back."""
    import hydra

    from automl.cli.users_files import rename_keys_of_files

    os.environ["HYDRA_FULL_ERROR"] = "1"  # makes it raise errors instead of printing them
    sys.argv = [sys.argv[0], *words]
    main = hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name=config_name)
    with rename_keys_of_files():
        main(lambda config: None)()
