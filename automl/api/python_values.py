"""Arguments of Python calls as overrides: a space, settings and overrides, with the values they
hold.

A space becomes an option of the group `space` in Hydra's store, so that its names and texts never
pass through the grammar of the command line. Settings become overrides with quoted texts. Nothing
is composed or run here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from pathlib import PurePath
from typing import Any

from automl.api.space_objects import entry_of_object
from automl.cli.command_registry import closest_word
from automl.cli.config_keys import keys_named
from automl.cli.schemas import register_space
from automl.cli.short_words import SHORT_WORDS, WORDS_ELSEWHERE
from automl.cli.space_overrides import is_call, override_text
from automl.config.checks import parse_seconds
from automl.errors import ConfigError

FORMER_ARGUMENTS = {"timeout_seconds": "timeout"}
"""Keyword arguments of earlier versions, and the present ones. They are taken for ever."""
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_WORDS_OF_HYDRA = frozenset(("null", "true", "false", "nan", "inf"))
_REFERENCE = re.compile(r"(\\*)\$\{")
_MISSING = "???"
"""The text that OmegaConf reads as a missing value; it cannot be escaped."""


def take_former(
    call: Callable[..., Any], arguments: Mapping[str, object], others: Mapping[str, object]
) -> dict[str, object]:
    """Return the arguments with those of `others` that an earlier version had. Raises ConfigError
    for any other that `call` does not have, and for one that is given under both names."""
    refuse_unknown(call, {k: v for k, v in others.items() if k not in FORMER_ARGUMENTS})
    taken = dict(arguments)
    for former, value in others.items():
        name = FORMER_ARGUMENTS[former]
        if value is not None and taken[name] is not None:
            raise ConfigError(
                f"automl.{call.__name__}: {name}={taken[name]!r} and {former}={value!r} say the "
                f"same; leave {former} out."
            )
        taken[name] = value if value is not None else taken[name]
    return taken


def lines_of_settings(arguments: Mapping[str, object]) -> list[str]:
    """Return the keyword arguments that are not None as overrides. Raises ConfigError."""
    return [
        _setting_line(argument, value) for argument, value in arguments.items() if value is not None
    ]


def _setting_line(argument: str, value: object) -> str:
    if argument == "timeout" and value != "none":
        return _line(SHORT_WORDS[argument], parse_seconds(argument, value))
    if argument in ("metric", "direction") and isinstance(value, list | tuple | Mapping):
        plain = dict(value) if isinstance(value, Mapping) else list(value)
        return f"{SHORT_WORDS[argument]}={override_text(plain)}"
    if argument in _EXAMPLES and not isinstance(value, str):
        raise ConfigError(
            f"{argument}={value!r}: must be a text, such as {argument}={_EXAMPLES[argument]!r}."
        )
    return _line(SHORT_WORDS[argument], value)


_EXAMPLES = {"metric": "accuracy", "direction": "maximize", "sampler": "tpe", "pruner": "median"}


def lines_of(overrides: Sequence[str] | Mapping[str, Any]) -> list[str]:
    """Return overrides as they would be typed; those of a dict have exactly the values it holds.

    Raises ConfigError for what is neither a list of texts nor a dict.
    """
    if isinstance(overrides, Mapping):
        return [_line(str(key), value) for key, value in overrides.items()]
    if isinstance(overrides, str) or not all(isinstance(line, str) for line in overrides):
        raise ConfigError(
            f"overrides={overrides!r}: must be a list of texts, overrides=['study.seed=1'], or a "
            "dict, overrides={'study.seed': 1}."
        )
    return list(overrides)


def _line(key: str, value: object) -> str:
    plain = _plain(key, str(value) if isinstance(value, PurePath) else value)
    if isinstance(plain, str) and _WORD.fullmatch(plain) and plain.lower() not in _WORDS_OF_HYDRA:
        return f"{key}={plain}"
    is_section = "." in key  # a mapping of settings, whose keys may be new
    added = "++" if isinstance(plain, dict) and is_section else ""
    return f"{added}{key}={override_text(plain)}"


def refuse_unknown(call: Callable[..., Any], unknown: Mapping[str, object]) -> None:
    """Raise ConfigError for the first argument that `call` does not have, with the one that was
    meant, or the setting of that name."""
    arguments = signature(call).parameters.values()
    known = [
        parameter.name for parameter in arguments if parameter.kind is not parameter.VAR_KEYWORD
    ]
    for name, value in unknown.items():
        word = WORDS_ELSEWHERE.get(name)
        remedy = f" Did you mean {word}?" if word in known else closest_word(name, known)
        if not remedy and (keys := keys_named(name)):
            remedy = f" It is a setting: overrides={{{keys[0]!r}: {value!r}}}."
        elif not remedy and "space" in known:
            remedy = f" A param is an entry of the space: space={{{name!r}: {value!r}}}."
        raise ConfigError(
            f"automl.{call.__name__}({name}={value!r}): there is no such argument.{remedy} "
            f"Arguments: {', '.join(known)}."
        )


# --- a space --------------------------------------------------------------------------------------


def store_space(space: Mapping[str, Any]) -> str:
    """Make a space known to Hydra; returns the override that chooses it.

    Raises ConfigError for what no space holds. The caller has the lock `composing`.
    """
    if not isinstance(space, Mapping):
        raise ConfigError(
            f"space={space!r}: must be a dict of params, such as "
            'space={"lr": {"low": 1e-4, "high": 1e-1, "log": True}}.'
        )
    entries = {str(name): entry_of(f"space.{name}", value) for name, value in space.items()}
    return register_space(entries)


def entry_of(key: str, value: object) -> Any:
    """Return one entry of a space as a mapping or a single value.

    A tuple of two numbers and a `range` are ranges, other sequences are choices, and distributions
    of Optuna and Ray Tune are what they say. Raises ConfigError.
    """
    if isinstance(value, range):
        return _from_range(key, value)
    if (entry := entry_of_object(key, value)) is not None:
        return entry
    plain = _plain(key, value)
    if isinstance(value, tuple):
        numbers = [isinstance(item, int | float) and not isinstance(item, bool) for item in plain]
        if numbers == [True, True]:
            return {"low": plain[0], "high": plain[1]}
        if numbers[:2] == [True, True] and not all(numbers):
            raise ConfigError(
                f"{key}={value}: a tuple of two numbers is a range. Its scale is written in a "
                f'dict, {{"low": {plain[0]}, "high": {plain[1]}, "log": True}}; choices are a list.'
            )
    if isinstance(plain, list):
        if nested := [item for item in plain if isinstance(item, list | dict)]:
            raise _no_value(key, nested[0])
        return {"choices": plain}
    if isinstance(plain, str) and is_call(plain):
        raise ConfigError(
            f"{key}={plain!r}: a text is one value in Python. A range is written as a tuple, "
            '(1e-4, 1e-1), or {"low": 1e-4, "high": 1e-1, "log": True}; choices are a list.'
        )
    if isinstance(plain, str) and "," in plain:
        return {"choices": [plain]}  # by itself it would be several values, as in YAML
    return plain


def _from_range(key: str, values: range) -> dict[str, int]:
    if values.step < 0 or not values:
        raise ConfigError(
            f"{key}={values}: holds no value, or falls: its end is exclusive, its step above 0."
        )
    steps = {} if values.step == 1 else {"step": values.step}
    return {"low": values[0], "high": values[-1]} | steps


def _plain(key: str, value: object) -> Any:
    """Return nested values in the types that a study stores, texts so that none is a reference."""
    if isinstance(value, Mapping):
        return {str(name): _plain(f"{key}.{name}", inner) for name, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(key, inner) for inner in value]
    if hasattr(value, "tolist"):  # of numpy, pandas and torch
        return _plain(key, value.tolist())
    for kind in (bool, int, float):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, str) and value != _MISSING:
        return _REFERENCE.sub(lambda match: match[1] * 2 + r"\${", str(value))
    if value is None:
        return None
    raise _no_value(key, value)


def _no_value(key: str, value: object) -> ConfigError:
    return ConfigError(
        f"{key}={value!r}: a value is a number, a text other than {_MISSING}, True, False or None, "
        "which a study can store. Choose among texts, and look objects up by them."
    )


def which_text(which: str | int | Sequence[int] | None) -> str | None:
    """Return the models that a call names as the text of `which=`: `[3, 7]` → `3,7`; None where it
    names none."""
    if which is None or isinstance(which, str):
        return which
    numbers = which if isinstance(which, Sequence) else [which]
    return ",".join(str(int(number)) for number in numbers) or None
