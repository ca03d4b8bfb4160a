"""Which ways of training are worth timing on a device. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from automl.config import ObjectiveKind, Precision
from automl.training.gain.words import Way
from automl.training.network_family import NetworkFamily
from automl.training.packs.key import PackSetting, pack_size
from automl.training.plan import TrainingPlan
from automl.trial import Params

_ALL_COUNTS = 4
"""Up to so many threads each count is timed, above powers of two."""


def ways(
    plan: TrainingPlan, params: Params, *, on_host: bool, n_cores: int, pack: PackSetting
) -> tuple[Way, ...]:
    """The first is what the others are compared with: one thread, alone, data on the device."""
    precision = _base_precision(plan)
    counts = thread_counts(n_cores) if on_host else (1,)
    found = [Way(n, precision) for n in counts]
    if plan.objective.kind is ObjectiveKind.builtin and isinstance(plan.family, NetworkFamily):
        found += [Way(precision=other) for other in _other_precisions(precision)]
        found += _packs(plan, params, precision, on_host=on_host, pack=pack)
        found += [Way(precision=precision, copies=True)]
    return tuple(found)


def not_varied(plan: TrainingPlan) -> str | None:
    """What is the user's own business, in words; None: all was varied."""
    if plan.objective.kind is not ObjectiveKind.builtin:
        return "precision, packs and copies of data are the function's own, and were not varied"
    if not isinstance(plan.family, NetworkFamily):
        return "precision, packs and copies of data are of networks, and were not varied"
    return None


def thread_counts(n_cores: int) -> tuple[int, ...]:
    """From 1 to all cores."""
    powers = {2**k for k in range(n_cores.bit_length())}
    return tuple(sorted({*range(1, min(n_cores, _ALL_COUNTS) + 1), *powers, n_cores}))


def _base_precision(plan: TrainingPlan) -> Precision:
    """float32, unless the weights have to be wider."""
    wide = plan.training.precision is Precision.float64
    return Precision.float64 if wide else Precision.float32


def _other_precisions(base: Precision) -> Iterator[Precision]:
    if base is Precision.float64:
        yield Precision.float32
    yield Precision.bfloat16


def _packs(
    plan: TrainingPlan, params: Params, precision: Precision, *, on_host: bool, pack: PackSetting
) -> list[Way]:
    """A whole pack, and a quarter of one, so that it is seen what does not shrink."""
    key = plan.pack_key(params, on_host=on_host)
    n_lanes = 1 if key is None else pack_size(key, "auto" if pack == "off" else pack)
    counts = sorted({n for n in (n_lanes // 4, n_lanes) if n > 1})
    return [Way(precision=precision, n_lanes=n) for n in counts]
