"""The short notation of a range of numbers: `2..8`, `log:1e-4..1e-1`, `0..1/0.1`.

It is the same on the command line, in YAML and in Python. This file turns a text into the mapping
`{low, high, log, step}` and back; `search/domains.py` checks whether the numbers make a range.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from automl.errors import ConfigError

RANGE_FORMS_TEXT = "0.1..0.9, 2..8, log:1e-4..1e-1 or 0..1/0.1 (in steps)"
_LOG = "log:"
_WHOLE = re.compile(r"[-+]?\d[\d_]*")
_NUMBER = re.compile(r"[-+]?(?:\d[\d_]*(?:\.\d[\d_]*)?|\.\d+)(?:[eE][-+]?\d+)?")
_PLAIN_CHOICE = re.compile(r"[\w.+-]+")


def parse_range(key: str, text: str) -> dict[str, Any] | None:
    """Return the range that a text spells as a mapping, both ends included; None: the text is no
    range.

    Raises ConfigError naming `key` for a text that begins like a range and is none.
    """
    text = text.strip()
    is_log = text.startswith(_LOG)
    low, dots, rest = text.removeprefix(_LOG).partition("..")
    high, slash, step = rest.partition("/")
    parts = {"low": low.strip(), "high": high.strip()} | ({"step": step.strip()} if slash else {})
    begins_like_one = is_log or _is_number(parts["low"])
    if not dots or not (begins_like_one or (not parts["low"] and _is_number(parts["high"]))):
        return None
    for name, part in parts.items():
        if not _is_number(part):
            problem = f"{part} is no number" if part else "a number is missing"
            what = "the step" if name == "step" else f"the {name} end"
            raise ConfigError(
                f"{key}={text}: {problem} ({what} of the range). A range is written "
                f"{RANGE_FORMS_TEXT}; a text that is no range as {{choices: ['{text}']}}."
            )
    return {name: _number(part) for name, part in parts.items()} | ({"log": True} if is_log else {})


def range_text(low: object, high: object, *, log: object = False, step: object = None) -> str:
    """Return the notation of a range."""
    return f"{_LOG if log else ''}{low}..{high}{'' if step is None else f'/{step}'}"


def entry_text(entry: object) -> str:
    """Return an entry of a space as it is typed: `log:0.0001..0.1`, `32,64`, else its mapping."""
    if isinstance(entry, Mapping):
        given = {
            name: value for name, value in entry.items() if value is not None and value is not False
        }
        if {"low", "high"} <= given.keys() <= {"low", "high", "log", "step"}:
            return range_text(**given)
        choices = given.get("choices")
        if given.keys() == {"choices"} and isinstance(choices, list) and len(choices) > 1:
            texts = [plain_text(choice) for choice in choices]
            if all(map(_PLAIN_CHOICE.fullmatch, texts)):
                return ",".join(texts)
    return plain_text(entry)


def plain_text(value: object) -> str:
    """Return a setting as it is typed, without quotation marks: `{low: 0, high: 1}`."""
    return json.dumps(value, ensure_ascii=False).replace('"', "")


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def _number(text: str) -> int | float:
    return int(text) if _WHOLE.fullmatch(text) else float(text)
