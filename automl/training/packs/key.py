"""How many trials train together. What can is the family's to say: see `family.PackKey`."""

from __future__ import annotations

from typing import Literal, TypeAlias

from automl.training.family import PackKey

PackSetting: TypeAlias = "Literal['auto', 'off'] | int"
"""`execution.pack`: as many as are worth it, none, or this many lanes."""


def pack_size(key: PackKey, setting: PackSetting) -> int:
    """How many lanes a pack of this key has; 1: train alone."""
    if setting == "off":
        return 1
    return key.n_lanes if setting == "auto" else setting
