"""The bounds of whole numbers among the settings, whatever their own checks allow.

A larger number does not fit into a file, database or library, whose error would end the sweep.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from automl.errors import ConfigError

MAX_NUMBER = 2**31 - 1
"""Largest whole number of a setting: the largest number of trials that a database can hold."""
MAX_SEED = 2**32 - 1
MAX_PARAM = 2**63 - 1
"""Largest whole number of a param, or of a step or value that is told."""
_PARAM_PARTS = ("space", "study.enqueue", "study.constraints")
_LONG_NUMBER = re.compile(r"(?<![\w.])[-+]?\d(?:_?\d){18,}")


def refuse_large_numbers(config: DictConfig, param_parts: Sequence[str] = _PARAM_PARTS) -> None:
    """Raise ConfigError for the first whole number of a config that exceeds its bound; that of a
    param is larger, and these parts of the config hold params."""
    for key, number in _whole_numbers(config, ""):
        is_param = any(key == part or key.startswith(f"{part}.") for part in param_parts)
        bound = MAX_PARAM if is_param else MAX_SEED if key.endswith("seed") else MAX_NUMBER
        if abs(number) > bound:
            rule = f"at most {bound:,}" if number > 0 else f"at least {-bound:,}"
            raise ConfigError(f"{key}={_short(number)}: must be {rule}.")


def long_number_text(overrides: Sequence[str]) -> str:
    """Return the refusal of a number that no setting takes, by the override that has it."""
    for line in overrides:
        key, _, value = line.partition("=")
        if match := max(_LONG_NUMBER.findall(value), key=len, default=""):
            return f"{key}: a number of {len(match.lstrip('+-'))} digits is too large; shorten it."
    return "A config file holds a number that is too large; shorten it."


def _whole_numbers(node: DictConfig | ListConfig, prefix: str) -> Iterator[tuple[str, int]]:
    keys: Iterable[Any] = node if isinstance(node, DictConfig) else range(len(node))
    for key in keys:
        if OmegaConf.is_missing(node, key) or OmegaConf.is_interpolation(node, key):
            continue
        value, name = node[key], f"{prefix}{key}"
        if isinstance(value, DictConfig | ListConfig):
            yield from _whole_numbers(value, f"{name}.")
        elif isinstance(value, int) and not isinstance(value, bool):
            yield name, value


def _short(number: int) -> str:
    """Return a whole number for a message, which may have more digits than Python prints."""
    if number.bit_length() <= 128:
        return str(number)
    return f"(a number of about {int((number.bit_length() - 1) * 0.30103) + 1} digits)"
