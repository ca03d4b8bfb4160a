"""Builds the arguments and the environment of a trial's program. Pure.

The placeholders in the words of `objective.command` are filled in. A placeholder that is a whole
word may become several words. Within a word it stays one, quoted for a shell. Nothing is started.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from automl.errors import ConfigError
from automl.trial import Params, ParamValue

_PLACE = re.compile(r"\{\{|\}\}|\{([A-Za-z_][\w.-]*)\}")
FLAGS, OVERRIDES, JSON = "params", "overrides", "json"
OWN = ("seed", "trial", "checkpoint_dir", "trial_dir", "n_devices")
_ALL = (FLAGS, OVERRIDES, JSON)
"""Placeholders for all params that have no placeholder of their own."""
RESERVED = (*OWN, *_ALL)
_PREFIX = "AUTOML_"
_NOT_IN_A_NAME = re.compile(r"\W")
_PLAIN_TEXT = re.compile(r"[A-Za-z_][\w./:-]*", re.ASCII)
"""Texts that Hydra reads as strings without quotes."""
_WORDS_OF_HYDRA = frozenset(("null", "true", "false", "yes", "no", "on", "off", "nan", "inf"))


@dataclass(frozen=True)
class ProgramFlags:
    """The spelling of a program's flags, as far as it is known from its help or source."""

    by_param: Mapping[str, str] = field(default_factory=dict)
    """The flag of each param (`batch_size` → `--batch-size`); other params get `--name`."""
    switches: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)
    """The flags without a value, by param: the flag for true and the flag for false; None: the
    program has no such flag."""

    def words(self, name: str, value: ParamValue) -> list[str]:
        """Return the words for a param: `--name=value`, a switch, or no word; null has none."""
        if value is None:
            return []
        if isinstance(value, bool) and name in self.switches:
            flag = self.switches[name][0 if value else 1]
            return [] if flag is None else [flag]
        return [f"{self.by_param.get(name, f'--{name}')}={value_text(value)}"]


@dataclass(frozen=True)
class ProgramInputs:
    """The values that a trial passes to its program besides the params."""

    seed: int
    trial: int
    checkpoint_dir: str
    trial_dir: str
    n_devices: int
    json: str
    """The path of the JSON file that holds the params."""


def command_words(command: str) -> list[str]:
    """Split a command into words, with their placeholders."""
    return shlex.split(command)


def placeholders_in(words: Iterable[str]) -> set[str]:
    """Return the names in braces in the words of a command."""
    return {match[1] for word in words for match in _PLACE.finditer(word) if match[1]}


def _has_placeholder(name: str, places: Container[str], names: Container[str]) -> bool:
    """Return whether a param has a placeholder of its own: `{opt.lr}`, or `{opt}` of its group."""
    groups = groups_of([name])
    return name in places or any(g in places and g not in names for g in groups)


def appended_params(words: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """Return the params that are passed as flags.

    A param is no flag if it or its group has a placeholder, or `{json}` or `{overrides}` passes
    all.
    """
    names, places = tuple(names), placeholders_in(words)
    if FLAGS not in places and not places.isdisjoint(_ALL):
        return ()
    return tuple(name for name in names if not _has_placeholder(name, places, names))


def program_arguments(
    words: Sequence[str], params: Params, inputs: ProgramInputs, flags: ProgramFlags | None = None
) -> list[str]:
    """Return the program and its arguments. Raises ConfigError for an unfilled placeholder."""
    flags, places = flags or ProgramFlags(), placeholders_in(words)
    rest = {n: value for n, value in params.items() if not _has_placeholder(n, places, params)}
    lists = {
        FLAGS: [word for name, value in rest.items() for word in flags.words(name, value)],
        OVERRIDES: [f"{name}={override_text(value)}" for name, value in rest.items()],
    }
    texts = _texts(params, inputs) | {name: shlex.join(items) for name, items in lists.items()}
    texts = _group_texts(params) | texts
    argv: list[str] = []
    for word in words:
        match = _PLACE.fullmatch(word)
        if match and match[1] in lists:
            argv += lists[match[1]]
        else:
            argv.append(_fill_placeholders(word, texts))
    return argv if not places.isdisjoint(_ALL) else [*argv, *lists[FLAGS]]


def program_environment(params: Params, inputs: ProgramInputs) -> dict[str, str]:
    """Return the environment variables with the same values: `AUTOML_LR`, `AUTOML_TRIAL_DIR`, …

    A param that is null has no variable.
    """
    texts = _texts(params, inputs) | {FLAGS: json.dumps(dict(params))}
    return {variable_name(name): text.replace("\0", "") for name, text in texts.items()}


def _texts(params: Params, inputs: ProgramInputs) -> dict[str, str]:
    own = {name: str(getattr(inputs, name)) for name in (*OWN, JSON)}
    known = {name: value_text(v) for name, v in params.items() if v is not None}
    return known | own


def groups_of(names: Iterable[str]) -> set[str]:
    """Return the groups of dotted names: `opt` and `opt.adam` of `opt.adam.beta`."""
    parts = [name.split(".") for name in names]
    return {".".join(words[:n]) for words in parts for n in range(1, len(words))}


def nested_params(params: Params) -> dict[str, Any]:
    """Return params with those of a group as a mapping: `{"opt.lr": 1}` → `{"opt": {"lr": 1}}`.

    A param whose group is itself a param keeps its name.
    """
    nested: dict[str, Any] = {name: value for name, value in params.items() if "." not in name}
    for name, value in params.items():
        if "." not in name:
            continue
        *groups, last = name.split(".")
        place = nested
        for group in groups:
            place = place.setdefault(group, {}) if isinstance(place, dict) else place
        if isinstance(place, dict):
            place[last] = value
        else:
            nested[name] = value
    return nested


def _group_texts(params: Params) -> dict[str, str]:
    """Return each group of params as Python writes a dict, as W&B passes it to a program."""
    texts: dict[str, str] = {}
    nested = nested_params(params)
    for group in groups_of(params):
        place: Any = nested
        for part in group.split("."):
            place = place.get(part) if isinstance(place, dict) else None
        if isinstance(place, dict):
            texts[group] = str(place)
    return texts


def variable_name(name: str) -> str:
    """Return the environment variable of a name: `batch_size` → `AUTOML_BATCH_SIZE`."""
    return _PREFIX + _NOT_IN_A_NAME.sub("_", name).upper()


def value_text(value: ParamValue) -> str:
    """Return a value as text, numbers as Python writes them: some programs tell 0.0 from 0."""
    return value if isinstance(value, str) else repr(value)


def override_text(value: ParamValue) -> str:
    """Return a value in Hydra's grammar of overrides."""
    if value is None:
        return "null"
    if not isinstance(value, str):
        return repr(value)
    if _PLAIN_TEXT.fullmatch(value) and value.lower() not in _WORDS_OF_HYDRA:
        return value
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", value)
    escaped = re.sub(r"(\\+)\Z", r"\1\1", escaped)
    return f"'{escaped}'"


def check_command_params(
    command: str, names: Iterable[str], optional: Iterable[str] = (), nullable: Iterable[str] = ()
) -> None:
    """Raise ConfigError if a command and the params of a space contradict each other.

    `optional` are the params that some trials lack, `nullable` those that are null in some.
    """
    words, names = command_words(command), tuple(names)
    key, places = f"objective.command={command}", placeholders_in(words)
    # `{overrides}` passes any name to a Hydra application: `seed=1`.
    are_reserved = OVERRIDES not in places
    if taken := [n for n in names if n in RESERVED and (are_reserved or n in places)]:
        raise ConfigError(
            f"space.{taken[0]}: {{{taken[0]}}} is what the trial itself gives to a command. Call "
            f"the param otherwise, and say where it goes: --{taken[0]} {{my_{taken[0]}}}"
        )
    if unknown := sorted(places - {*names, *RESERVED, *groups_of(names)}):
        known = ", ".join(f"{{{name}}}" for name in (*names, *RESERVED))
        raise ConfigError(
            f"{key}: nothing fills {{{unknown[0]}}}. There are {known}; braces of the program's "
            "own are written {{ and }}."
        )
    absent = dict.fromkeys(nullable, "null in some trials")
    absent |= dict.fromkeys(optional, "not in every trial (it has a `when`)")
    if missing := sorted(placeholders_in(words).intersection(absent)):
        raise ConfigError(
            f"{key}: {missing[0]} is {absent[missing[0]]}, so that nothing would fill "
            f"{{{missing[0]}}} there. Leave it out: it is appended where it has a value."
        )
    flags = {
        word.partition("=")[0].lstrip("-").replace("-", "_") for word in words if word[:1] == "-"
    }
    if twice := [name for name in appended_params(words, names) if name.replace("-", "_") in flags]:
        raise ConfigError(
            f"{key}: {twice[0]} stands in the command and in the space. Take one away, or say by "
            f"{{{twice[0]}}} where the trial's value goes."
        )
    _check_variables(names)


def _check_variables(names: Iterable[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        before = seen.setdefault(variable_name(name), name)
        if before != name:
            raise ConfigError(
                f"space.{name}: the program could not tell it from {before}, both are "
                f"{variable_name(name)} in its environment. Call one otherwise."
            )


def _fill_placeholders(word: str, texts: Mapping[str, str]) -> str:
    def text(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]  # {{ and }}
        try:
            return texts[match[1]]
        except KeyError:
            raise ConfigError(f"{word}: this trial has nothing for {match[0]}.") from None

    return _PLACE.sub(text, word)
