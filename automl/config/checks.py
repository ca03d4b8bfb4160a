"""Checks that settings share, and the defaults of a settings class.

The message of a failed check names the key, the value and the rule.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

from automl.errors import ConfigError

NONE_WORDS = frozenset(("none", "null", "off", "false"))
"""The spellings of `none`, the first of them ours."""
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_SECONDS_PER_UNIT = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)(?![a-z])")
_TARGET = re.compile(r"([\w.]+|[^:\0]+\.py):[\w.]+")
_SIZE_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", start=1):
    _SIZE_UNITS |= {f"{_letter}iB": 1024**_power, f"{_letter}B": 1000**_power}


def is_none(value: object) -> bool:
    """Return whether a value, or a text of a command line, is a spelling of `none`."""
    return value is None or str(value).lower() in NONE_WORDS or value == ""


def parse_bytes(key: str, text: str) -> int:
    """Return the bytes of a size: 536870912 for `512MiB`.

    Raises ConfigError naming `key` for anything that is not a size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or match[2] not in _SIZE_UNITS:
        raise ConfigError(
            f"{key}={text}: a size is a number and a unit, such as 512MiB, 3GiB or 1.5GB."
        )
    n_bytes = float(match[1]) * _SIZE_UNITS[match[2]]
    check_setting(n_bytes < 2**63, key, f"{text[:12]}…", "a size must be less than 8 EiB.")
    return int(n_bytes)


def parse_seconds(key: str, value: object) -> float:
    """Return the seconds of a duration: 5400 for `1h30min`, and a number as it is.

    Raises ConfigError naming `key` for anything that is no duration.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    text = str(value).strip()
    parts = _DURATION_PART.findall(text)
    if text and "".join("".join(part) for part in parts) == "".join(text.split()):
        return sum(float(number) * _SECONDS_PER_UNIT[unit] for number, unit in parts)
    try:
        return float(text)
    except ValueError:
        raise ConfigError(
            f"{key}={value}: a duration is a number of seconds, or numbers with the units s, min, "
            "h and d, such as 90s, 10min or 1h30min."
        ) from None


def parse_limit(key: str, value: object) -> float:
    """Return a limit that is a number, or a size such as `5MiB` in bytes. Raises ConfigError."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if abs(value) < 2**64 else math.inf
    try:
        return float(str(value))
    except ValueError:
        return float(parse_bytes(key, str(value)))


def check_setting(holds: bool, key: str, value: object, rule: str) -> None:
    """Raise ConfigError naming key, value and rule unless the rule holds."""
    if not holds:
        raise ConfigError(f"{key}={'none' if value is None else value}: {rule}")


def check_known_name(what: str, name: str, known: Sequence[str], rule: str, hint: str = "") -> None:
    """Raise ConfigError for a name that is not among those known, with `hint` or the nearest."""
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=1)
    hint = hint or (f" Did you mean {near[0]}?" if near else "")
    raise ConfigError(f"{what}: unknown here; {rule}: {', '.join(known) or 'nothing'}.{hint}")


def checker(section: str, settings: object) -> Callable[[str, bool, str], None]:
    """Return a function `check(name, holds, rule)`, which checks a setting of a section."""

    def check(name: str, holds: bool, rule: str) -> None:
        check_setting(holds, f"{section}.{name}", getattr(settings, name), rule)

    return check


def is_count(value: object, minimum: int = 1) -> bool:
    """Return whether a value of any type is a whole number from `minimum`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def check_positive(key: str, value: float | None) -> None:
    """Raise ConfigError for a number that is not finite or not greater than 0; None is allowed."""
    check_setting(
        value is None or (math.isfinite(value) and value > 0), key, value, "must be greater than 0."
    )


def is_function_target(text: str) -> bool:
    """Return whether a text names a function: `module:function` or `file.py:function`."""
    return _TARGET.fullmatch(text) is not None


def check_function_target(group: str, target: str | None, option: str = "python") -> None:
    """Raise ConfigError unless `target` names a function, which an option of the group needs."""
    check_setting(
        target is not None and is_function_target(target),
        f"{group}.target",
        target,
        f"{group}={option} needs {group}.target=module:function, or file.py:function.",
    )


T = TypeVar("T")


NO_SETTING = {"is_setting": False}
"""Marks a field of a config class that the program sets itself: no line and no file gives it, and
none is stored."""


def setting_names(cls: type[Any]) -> tuple[str, ...]:
    """Return the names of the settings of a config class, in order."""
    return tuple(f.name for f in fields(cls) if f.metadata.get("is_setting", True))


def field_defaults(cls: type[Any]) -> dict[str, Any]:
    """Return the default of each field of a dataclass that has one, by name."""
    defaults = {known.name: _default(known) for known in fields(cls)}
    return {name: value for name, value in defaults.items() if value is not MISSING}


def make_unset(cls: type[T]) -> T:
    """Return an instance of defaults alone, unchecked: some options need a setting to be valid."""
    instance = cls.__new__(cls)
    for name, value in field_defaults(cls).items():
        setattr(instance, name, value)
    return instance


def _default(known: Field[Any]) -> Any:
    return known.default if known.default_factory is MISSING else known.default_factory()
