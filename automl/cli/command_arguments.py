"""Finds the words of a line that are arguments of its command.

Nothing is read from their values here, and Hydra is not loaded; `typed_arguments.py` types them.
"""

from __future__ import annotations

from collections.abc import Sequence

from automl.cli.command_registry import COMMANDS, LISTED_COMMANDS
from automl.config import STUDY_NAME_PATTERN
from automl.config.command_arguments import argument_fields, is_listed
from automl.errors import ConfigError
from automl.search.optuna_address import parse_optuna_source

_PLACE_WORDS = ("study.name=", "study.dir=", "study.storage=", "study.copy=", "copy=", "tracking.")
"""The words that say where a study is, and change nothing."""


def split_arguments(command: str, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words that are arguments of the command, without Hydra's `+`, and all others.
    Raises ConfigError for `which=` given twice: which of them counts would be a guess."""
    known = argument_fields(COMMANDS[command].arguments)
    is_given = [bool(known.get(w.lstrip("+").partition("=")[0])) and "=" in w for w in words]
    given = [word.lstrip("+") for word, its in zip(words, is_given, strict=True) if its]
    named = [word for word in given if word.startswith("which=")]
    if len(named) > 1:
        texts = ",".join(dict.fromkeys(word.partition("=")[2] for word in named))
        raise ConfigError(f"{' '.join(named)}: give one word, such as which={texts}")
    return given, [word for word, its in zip(words, is_given, strict=True) if not its]


def choose_entry(command: str, words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the entry of the registry that runs these words of a command, and the words that this
    entry takes. Raises ConfigError where they change a setting beside a study's name."""
    for mark, entry in COMMANDS[command].other_entries.items():
        marked = [
            word
            for word in words
            if word == mark or (mark[-1] == "=" and word[: len(mark)] == mark)
        ]
        if not marked or (entry == "clone" and not _is_name(marked[-1].partition("=")[2])):
            continue
        others = [word for word in words if word not in marked]
        words_of = _WORDS_OF_ENTRY.get(entry)
        return entry, list(words) if words_of is None else words_of(marked[-1], others)
    return command, list(words)


def _words_of_clone(marked: str, others: Sequence[str]) -> list[str]:
    named = [word.replace("study.name=", "name=", 1) for word in others]
    start = [] if any(word.startswith("start=") for word in named) else ["start=true"]
    return [f"study.name={marked.partition('=')[2]}", *named, *start]


def _words_of_rename(marked: str, others: Sequence[str]) -> list[str]:
    if changes := [word for word in others if not word.startswith(_PLACE_WORDS)]:
        raise ConfigError(
            f"{marked} {' '.join(changes)}: edit gives a study another name, or changes its "
            "settings: give two lines."
        )
    return [*others, marked]


def _words_of_register(marked: str, others: Sequence[str]) -> list[str]:
    return list(others)


_WORDS_OF_ENTRY = {
    "clone": _words_of_clone,
    "register": _words_of_register,
    "rename": _words_of_rename,
}
"""Makes the words of an entry, by its name, of the word that leads to it and the others. All other
entries take the words as they are."""


def _is_name(text: str) -> bool:
    """Return whether a text may name a study of ours, and is no address of one of Optuna's, such as
    `old.db`, and no sweep configuration of W&B, such as `sweep.yaml`."""
    plain = text.strip("'\"")
    is_foreign = parse_optuna_source(plain) is not None or is_wandb_file(plain)
    return bool(STUDY_NAME_PATTERN.fullmatch(plain)) and not is_foreign


def is_wandb_file(text: str) -> bool:
    """Return whether the text of `from=` is a file with a sweep configuration of W&B."""
    return text.endswith((".yaml", ".yml", ".json"))


def commands_with_argument(word: str) -> list[str]:
    """Return the commands whose help lists an argument of this word."""
    return [
        name
        for name, cls in ((name, command.arguments) for name, command in LISTED_COMMANDS.items())
        if (field_name := argument_fields(cls).get(word)) and is_listed(cls, field_name)
    ]
