"""Which trials may train together, and how many: by arithmetic on params, the same on every run.

A pack pads its lanes to one width, so that a lane's arithmetic depends on its own params and not on
its neighbours'; the padded width is part of the key for that reason. No torch here: the parent
process asks. How a pack trains is in `trainer.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from automl.config import Growth, ObjectiveKind, Precision
from automl.training.params import ModuleParams, params_of
from automl.training.plan import TrainingPlan
from automl.trial import Params, ParamValue

PackSetting: TypeAlias = "Literal['auto', 'off'] | int"
"""`execution.pack`: by the table, never, or this many lanes."""

_LEAST_WIDTH = 16  # narrower layers gain nothing: a vector register of a CPU holds 16 numbers

# Lanes by padded width. Measured on one CPU core (experiments/002-packs): against training alone, 9
# times as fast up to 32 units, 4 up to 64, 1.6 up to 128; 64 lanes add nothing to 32.
_LANES_ON_HOST = {16: 32, 32: 32, 64: 16, 128: 8}
# A GPU is idle under one small network; these bound the memory of activations at batch 256 to
# some 100 MiB.
_LANES_ON_GPU = {16: 128, 32: 128, 64: 64, 128: 32, 256: 16, 512: 8}
# Of a user's network only its arguments are known here.
_MODULE_LANES_ON_HOST, _MODULE_LANES_ON_GPU = 16, 32


@dataclass(frozen=True)
class PackKey:
    """Trials of one study that have the same key can train together, on one device."""

    on_host: bool
    optimizer: str
    batch_size: int
    precision: Precision
    width: int
    """Units that every hidden layer is padded to; 0 where layers grow and nothing is padded."""
    depth: int | None = None
    """Where layers grow, lanes have the same depth; else their depths may differ."""
    arguments: tuple[tuple[str, ParamValue], ...] | None = None
    """Of a user's network: those it is built with, all the same; None: it is the built-in one."""


def pack_key(plan: TrainingPlan, params: Params, *, on_host: bool) -> PackKey | None:
    """What this trial can train together with; None: it trains alone.

    Alone train: an objective of the user's own, a linear model (depth 0), a user's network in
    bfloat16, and params that the built-in objective refuses (the trial will fail with the reason).
    """
    if plan.objective.kind is not ObjectiveKind.builtin:
        return None
    try:
        mine = params_of(plan.model.kind, params)
    except (TypeError, ValueError):
        return None
    precision = plan.training.precision
    key = PackKey(on_host, mine.optimizer, mine.batch_size, precision, width=0)
    if isinstance(mine, ModuleParams):
        alone = precision is Precision.bfloat16  # autocast inside torch.func was not tried
        return None if alone else replace(key, arguments=mine.arguments)
    if mine.depth == 0:
        return None
    if plan.model.growth is Growth.doubling:
        return replace(key, depth=mine.depth)
    return replace(key, width=padded_width(mine.width))


def pack_size(key: PackKey, setting: PackSetting) -> int:
    """How many lanes a pack of this key has; 1: train alone."""
    if setting == "off":
        return 1
    if setting != "auto":
        return setting
    if key.arguments is not None:
        return _MODULE_LANES_ON_HOST if key.on_host else _MODULE_LANES_ON_GPU
    widest = key.width if key.depth is None else padded_width(2**key.depth)
    return (_LANES_ON_HOST if key.on_host else _LANES_ON_GPU).get(widest, 1)


def padded_width(width: int) -> int:
    """16, 32, 64, …: the least that holds `width` units."""
    return max(_LEAST_WIDTH, 1 << (width - 1).bit_length())
