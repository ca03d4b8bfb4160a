"""The words of a line that are arguments of its command: found among the others, typed and checked.

Arguments have the grammar of settings, with two exceptions: a text is taken as typed, so that names
of files need no quotes, and `none` stands for no value. Finding them needs no Hydra.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_type_hints

from automl.cli.command_registry import COMMANDS
from automl.config.command_arguments import CommandArguments, argument_fields, is_listed
from automl.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_PARAM_WORDS = ("params", "steps", "metrics", "value", "step")
"""The arguments that hold params, steps or values of trials, whose whole numbers may be large."""


def split_arguments(command: str, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the words that are arguments of the command, and all others. Raises ConfigError for
    `which=` given twice: which of them counts would be a guess."""
    known = argument_fields(COMMANDS[command].arguments)
    given = [word for word in words if "=" in word and word.partition("=")[0] in known]
    named = [word for word in given if word.startswith("which=")]
    if len(named) > 1:
        texts = ",".join(dict.fromkeys(word.partition("=")[2] for word in named))
        raise ConfigError(f"{' '.join(named)}: give one word, such as which={texts}")
    return given, [word for word in words if word not in given]


def commands_with_argument(word: str) -> list[str]:
    """Return the commands that have an argument of this word, apart from those of all commands."""
    if word in argument_fields(CommandArguments):
        return []
    return [name for name in COMMANDS if word in argument_fields(COMMANDS[name].arguments)]


def type_arguments(command: str, words: Sequence[str]) -> CommandArguments:
    """Return the checked arguments of the command that the words give. Raises ConfigError."""
    from omegaconf import OmegaConf

    from automl.cli.hydra_errors import explain_errors
    from automl.cli.number_bounds import refuse_large_numbers

    cls = COMMANDS[command].arguments
    by_word, hints = argument_fields(cls), get_type_hints(cls)
    pairs = [word.partition("=")[::2] for word in words]
    try:
        with explain_errors([f"{by_word[word]}={text}" for word, text in pairs]):
            node = OmegaConf.structured(cls)
            for word, text in pairs:
                node[by_word[word]] = _value(hints[by_word[word]], word, text)
            refuse_large_numbers(node, _PARAM_WORDS)
            arguments = OmegaConf.to_object(node)
    except ConfigError as error:
        raise ConfigError(_with_words(str(error), by_word)) from error
    assert isinstance(arguments, CommandArguments)
    return arguments


def _with_words(message: str, by_word: Mapping[str, str]) -> str:
    """Return the message with the words of arguments (`as=`) in place of their fields (`as_=`)."""
    for word, field_name in by_word.items():
        if word != field_name:
            message = message.replace(f"{field_name}=", f"{word}=")
    return message


def _value(hint: Any, word: str, text: str) -> Any:
    """Return the value of an argument of the type `hint`."""
    kinds = set(get_args(hint)) or {hint}
    if text in ("none", "null", "") and (type(None) in kinds or hint is Any):
        return None
    if str in kinds and not _is_quoted(text):
        return text
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import ChoiceSweep, Sweep

    from automl.cli.space_overrides import plain_entry

    value = OverridesParser.create().parse_override(f"{word}={text}").value()
    is_list = hint == list[str]
    if is_list and isinstance(value, ChoiceSweep):
        value = value.list
    if isinstance(value, Sweep):
        raise ConfigError(f"{word}={text}: takes one value.")
    value = plain_entry(value)
    return [value] if is_list and not isinstance(value, list) else value


def _is_quoted(text: str) -> bool:
    return len(text) > 1 and text[0] == text[-1] and text[0] in "'\""


class ArgumentText(NamedTuple):
    """What help says about an argument of a command."""

    word: str
    default: str
    """The default as it is typed; `none` for no value."""
    text: str
    """The sentence that says what the argument is for."""


def argument_texts(command: str, *, unlisted: bool = False) -> list[ArgumentText]:
    """Return what help says about the arguments of a command, in the order of their class; those
    that hardly anyone gives only where `unlisted` asks for them."""
    from automl.cli.help_text import class_docstrings, shown_default

    cls = COMMANDS[command].arguments
    texts = class_docstrings(cls)
    by_name = {known.name: known for known in fields(cls)}
    return [
        ArgumentText(word, shown_default(by_name[name]), texts.get(name, ""))
        for word, name in argument_fields(cls).items()
        if unlisted or is_listed(cls, name)
    ]
