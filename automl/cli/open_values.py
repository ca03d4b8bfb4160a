"""The two words for a setting without a value of its own: `auto` (the program decides) and `none`
(no limit, or off).

Inside the program both are None, or a member of an enum. The words of a line become that before
Hydra sees them, and what is printed of a config is written with them. `null`, `off` and `false` are
read as `none`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from enum import EnumType
from types import NoneType
from typing import Any, get_args, get_type_hints

from automl.cli.config_keys import OPTIONS_BY_CLASS
from automl.config import Config
from automl.config.checks import NONE_WORDS
from automl.errors import ConfigError

AUTO_KEYS = frozenset(
    (
        *("study.name", "study.n_trials", "study.direction"),
        *("data.validation_fraction", "data.rules", "training.epochs", "tracking.uri"),
        *("sampler.population_size", "sampler.mutation_prob", "pruner.max_steps"),
        *("admission.request", "admission.max_concurrent_trials"),
        "admission.max_trials_per_device",
    )
)
"""The keys whose value follows from others where none is given; any other key without a value has
no limit, or is off."""
_WITH_BOTH = frozenset(
    (
        *("study.finish", "data.combine", "data.test", "tracking.uri"),
        *("execution.pack", "admission.lookahead"),
    )
)
"""The keys that take `auto` and `none`, as their classes say."""
_SETTING = re.compile(r"(\+{0,2}(\w+)\.(\w+)=)(\w+)")
_NULL_LINE = re.compile(r"( *)([\w-]+):(?: (.*))?")


def read_open_values(words: Sequence[str]) -> list[str]:
    """Return overrides in which `auto` and `none` are what the types of the settings have for them.

    Raises ConfigError for the one of the two that a setting does not have.
    """
    return [_read(word) for word in words]


def _read(word: str) -> str:
    match = _SETTING.fullmatch(word)
    value = match[4].lower() if match else ""
    if match is None or value not in (*NONE_WORDS, "auto"):
        return word
    before, section, name, _ = match.groups()
    key, hints = f"{section}.{name}", list(_hints(section, name))
    members: list[Mapping[str, object]] = [
        hint.__members__ for hint in hints if isinstance(hint, EnumType)
    ]
    if members or key in _WITH_BOTH:
        has_none = value in NONE_WORDS and (key in _WITH_BOTH or "none" in members[0])
        return f"{before}none" if has_none else word
    kinds = {kind for hint in hints for kind in get_args(hint)}
    is_open = NoneType in kinds and not (bool in kinds and value == "false")
    is_auto = key in AUTO_KEYS
    if value == "auto" if is_auto else is_open and value in NONE_WORDS:
        return f"{before}null"
    if value == "null" or not is_open:
        return word
    what = "a value" if str in kinds else "a number"
    if is_auto:
        raise ConfigError(f"{key}={value}: must be {what}, or auto: the program decides.")
    if str in kinds:
        return word
    raise ConfigError(f"{key}={value}: must be {what}, or none.")


def _hints(section: str, name: str) -> Iterator[Any]:
    """Yield the type of a setting, in each option of its group that has it."""
    shared = get_type_hints(Config).get(section)
    for cls in OPTIONS_BY_CLASS.get(section, {"": shared}).values():
        if is_dataclass(cls) and name in (hints := get_type_hints(cls)):
            yield hints[name]


def write_open_values(text: str, package: str | None = None) -> str:
    """Return a printed config with `auto` and `none` in place of each `null` of a setting;
    `package` is the part of the config that is printed."""
    path: list[tuple[int, str]] = []
    lines = []
    for line in text.split("\n"):
        match = _NULL_LINE.fullmatch(line)
        if match is not None:
            depth = len(match[1])
            path = [(known, key) for known, key in path if known < depth] + [(depth, match[2])]
            keys = [*(package or "").split("."), *(key for _, key in path)]
            key = ".".join(filter(None, keys))
            if match[3] == "null" and key.count(".") == 1 and not key.startswith("space."):
                line = line.removesuffix("null") + ("auto" if key in AUTO_KEYS else "none")
        lines.append(line)
    return "\n".join(lines)


def explain_open_values(text: str, reasons: Mapping[str, tuple[object, str]]) -> str:
    """Return a printed config with the value and the case behind each `auto` that has a reason, by
    key."""
    section, lines = "", []
    for line in text.split("\n"):
        match = _NULL_LINE.fullmatch(line)
        section = match[2] if match and not match[1] else section
        key = f"{section}.{match[2]}" if match and len(match[1]) == 2 else ""
        if match and match[3] == "auto" and key in reasons:
            value, case = reasons[key]
            is_later = value == "auto"
            line = f"{line}  # {case}" if is_later else f"  {match[2]}: {value}  # auto: {case}"
        lines.append(line)
    return "\n".join(lines)
