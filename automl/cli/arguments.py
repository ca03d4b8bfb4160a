"""Parses the command line into command word, overrides and options, without Hydra.

Hydra's own options are parsed here too, so that a mistake gets a message of one line, and so that
overrides may stand before and after options. Nothing is composed or checked against the settings
here.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from automl.cli.command_arguments import choose_entry, split_arguments
from automl.cli.command_registry import (
    COMMANDS,
    DEFAULT_COMMAND,
    LISTED_COMMANDS,
    MULTIRUN,
    command_meant,
)
from automl.cli.short_words import expand_short_words, name_bare_words
from automl.config import STUDY_NAME_PATTERN, StudyConfig
from automl.config.renamed import rename_words
from automl.errors import ConfigError

HELP = "help"
"""The word before a topic, as another way to write `--help`."""


@dataclass(frozen=True)
class CommandLine:
    """One command line, as typed."""

    command: str = DEFAULT_COMMAND
    overrides: tuple[str, ...] = ()
    """The words about settings, as Hydra takes them."""
    arguments: tuple[str, ...] = ()
    """The words that are arguments of the command (`which=best`)."""
    config_name: str | None = None
    config_dir: str | None = None
    help: bool = False
    help_topic: str = ""
    """The command or topic that help is asked about; empty: the first screen."""
    version: bool = False
    completion: bool = False
    json: bool = False
    """Whether the answer is one JSON object on stdout; lines for people then go to stderr."""
    why: bool = False
    """Whether `--cfg job` says what each `auto` becomes, and why."""
    hydra_options: tuple[str, ...] = ()
    """The options that only Hydra can answer (`--cfg job`, `--info`, …), in Hydra's form; empty:
    run the command."""

    @property
    def asks_option(self) -> bool:
        """Return whether the line asks for an answer and runs no command."""
        return self.help or self.version or self.completion or bool(self.hydra_options)


class _Parser(argparse.ArgumentParser):
    """A parser that raises ConfigError instead of printing a usage of twenty lines."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}. See: python -m automl --help")


def make_command_line(command: str, words: Sequence[str]) -> CommandLine:
    """Return the line of a command with these words, as a call from Python gives them. Raises
    ConfigError."""
    command, words = choose_entry(command, replace_old_keys(words))
    arguments, overrides = split_arguments(command, words)
    return CommandLine(command, tuple(_long_words(overrides)), tuple(arguments))


def parse_command_line(argv: Sequence[str]) -> CommandLine:
    """Parse the words after the program's name into a command line. Raises ConfigError."""
    if argv and argv[0] == HELP:
        return _help_line(argv[1:])
    command, rest = _split_command(argv)
    topic = command if len(rest) < len(argv) else ""
    parser = _parser()
    parsed, unknown = parser.parse_known_intermixed_args(rest)
    # argparse takes an unknown option with a space for an override.
    unknown += [word for word in parsed.overrides if word.startswith("--")]
    if unknown:
        raise ConfigError(_unknown_option(unknown[0], rest, parser))
    if parsed.multirun:
        raise ConfigError(MULTIRUN)
    hydra_options: list[str] = []
    for name in ("cfg", "package", "info"):
        if value := getattr(parsed, name):
            hydra_options += [f"--{name}", value]
    for flag in ("resolve", "hydra_help"):
        if getattr(parsed, flag):
            hydra_options.append("--" + flag.replace("_", "-"))
    parsed.overrides = replace_old_keys(parsed.overrides)
    if parsed.yes:
        parsed.overrides.append("yes=true")
    _refuse_missing_values(parsed.overrides)
    if COMMANDS[command].written_now and not parsed.json:
        sys.stderr.write(
            f"automl: {command} is now written: automl {COMMANDS[command].written_now}\n"
        )
    named = name_bare_words(COMMANDS[command], parsed.overrides)
    command, named = choose_entry(command, named)
    arguments, overrides = split_arguments(command, named)
    is_answered = parsed.help or parsed.version or parsed.shell_completion
    overrides = overrides if is_answered else _long_words(overrides)
    if not (is_answered or parsed.config_name or parsed.config_dir):  # these may have other groups
        from automl.cli.config_keys import refuse_unknown_words

        refuse_unknown_words(overrides)
    if not is_answered:
        from automl.cli.option_keys import refuse_kinds

        refuse_kinds(overrides)
    return CommandLine(
        command=command,
        overrides=tuple(overrides),
        arguments=tuple(arguments),
        config_name=parsed.config_name,
        config_dir=parsed.config_dir,
        help=parsed.help,
        help_topic=topic,
        version=parsed.version,
        completion=parsed.shell_completion,
        json=parsed.json,
        why=parsed.why,
        hydra_options=tuple(hydra_options),
    )


def _help_line(words: Sequence[str]) -> CommandLine:
    """Return the line `help [TOPIC]`. Raises ConfigError."""
    parsed, unknown = _parser().parse_known_intermixed_args(words)
    if unknown or len(parsed.overrides) > 1:
        raise ConfigError(
            f"help {' '.join(words)}: help takes one word, a command or a topic: automl help space"
        )
    topic = "".join(parsed.overrides)
    return CommandLine(help=True, help_topic=topic, json=parsed.json, config_dir=parsed.config_dir)


def replace_old_keys(words: Sequence[str]) -> list[str]:
    """Return overrides with today's keys, and write advice on each old one to stderr. Raises
    ConfigError."""
    renamed, advice = rename_words(words)
    for line in advice:
        sys.stderr.write(f"automl: {line}\n")
    return renamed


def _long_words(words: Sequence[str]) -> list[str]:
    """Return overrides with long keys, and values of the settings' types. Raises ConfigError."""
    from automl.cli.open_values import read_open_values

    return read_open_values(expand_short_words(words))


def _refuse_missing_values(words: Sequence[str]) -> None:
    """Raise ConfigError for a key without a value (`study.n_trials`), which is no study's name."""
    from automl.cli.config_keys import missing_value_text

    for word in words:
        if "." in word and "=" not in word and (missing := missing_value_text(word)):
            raise ConfigError(missing)


def _split_command(argv: Sequence[str]) -> tuple[str, Sequence[str]]:
    if not argv or "=" in argv[0] or argv[0].startswith(("-", "~")):
        return DEFAULT_COMMAND, argv
    word = argv[0]
    if word not in COMMANDS:
        from automl.cli.config_keys import missing_value_text

        if missing := missing_value_text(word):
            raise ConfigError(missing)
        if STUDY_NAME_PATTERN.fullmatch(word) and Path(StudyConfig.dir, word).is_dir():
            raise ConfigError(
                f"{word}: a study has this name, and a command comes first: automl resume {word} "
                f"goes on with it, automl status {word} shows it."
            )
        raise ConfigError(
            f"{word}: there is no such command.{command_meant(word)} "
            f"Commands: {', '.join(LISTED_COMMANDS)}. Settings are written key=value."
        )
    return word, argv[1:]


def _unknown_option(word: str, words: Sequence[str], parser: argparse.ArgumentParser) -> str:
    """Return the refusal of an option: `--n_trials 8` is a setting in the form of other tools."""
    from automl.cli.config_keys import as_setting, keys_meant

    flag, _, value = word.partition("=")
    next_words = words[words.index(word) + 1 :][:1]
    if (
        flag == word
        and next_words
        and "=" not in next_words[0]
        and not next_words[0].startswith("-")
    ):
        value = next_words[0]
    name = flag.lstrip("-")
    options = [option for action in parser._actions for option in action.option_strings]
    close_options = difflib.get_close_matches(flag, options, n=1, cutoff=0.75)
    if not word.startswith("--") or (close_options and not keys_meant(name.replace("-", "_"))):
        hint = (
            f" Did you mean {close_options[0]}?" if close_options and word.startswith("--") else ""
        )
        return f"{word}: there is no such option.{hint} See: python -m automl --help"
    return (
        f"{word}: settings are written key=value, without dashes.{as_setting(name, value)} "
        "See: python -m automl --help"
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="automl", add_help=False, allow_abbrev=False)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--version", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--why", action="store_true")
    parser.add_argument("--yes", action="store_true")
    parser.add_argument("--hydra-help", action="store_true")
    parser.add_argument("--cfg", "-c", choices=["job", "hydra", "all"])
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("--package", "-p")
    parser.add_argument("--multirun", "-m", action="store_true")
    parser.add_argument("--shell-completion", "-sc", action="store_true")
    parser.add_argument("--config-name", "-cn")
    parser.add_argument("--config-dir", "-cd")
    kinds = ["all", "config", "defaults", "defaults-tree", "plugins", "searchpath"]
    parser.add_argument("--info", "-i", nargs="?", const="all", choices=kinds)
    return parser
