"""Types and checks the arguments of a command.

They have the grammar of settings, with two exceptions: a text is taken as typed, so that names of
files need no quotes, and `none` stands for no value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_type_hints

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Sweep
from omegaconf import OmegaConf

from automl.cli.command_registry import COMMANDS
from automl.cli.hydra_errors import explain_errors
from automl.cli.number_bounds import refuse_large_numbers
from automl.cli.space_overrides import plain_entry
from automl.config.command_arguments import CommandArguments, argument_fields
from automl.errors import ConfigError

_PARAM_WORDS = ("params", "steps", "metrics", "value", "step")
"""The arguments that hold params, steps or values of trials, whose whole numbers may be large."""


def type_arguments(command: str, words: Sequence[str]) -> CommandArguments:
    """Return the checked arguments of the command that the words give. Raises ConfigError."""
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
    may_be_none = hint is Any or type(None) in get_args(hint)
    if text in ("none", "null", "") and may_be_none:
        return None
    if hint in (str, str | None) and not _is_quoted(text):
        return text
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
