"""Turns the distributions of Optuna and Ray Tune, as Python objects, into entries of a space.

They are recognised by their attributes: neither library is imported here.
"""

from __future__ import annotations

from typing import Any

from automl.config.other_distributions import nearest_range
from automl.errors import ConfigError


def entry_of_object(key: str, value: object) -> dict[str, Any] | None:
    """Return the entry of a distribution object; None: it is none.

    Raises ConfigError with the nearest range for one that no space has, such as `tune.randn(0, 1)`.
    """
    module = type(value).__module__
    if module.startswith("optuna."):
        return _of_optuna(value)
    return _of_ray(key, value) if module.startswith("ray.tune.") else None


def _of_optuna(value: Any) -> dict[str, Any] | None:
    if hasattr(value, "choices"):
        return {"choices": list(value.choices)}
    if not (hasattr(value, "low") and hasattr(value, "high")):
        return None
    step = None if value.step == 1 and isinstance(value.low, int) else value.step
    return {"low": value.low, "high": value.high, "log": value.log, "step": step}


def _of_ray(key: str, value: Any) -> dict[str, Any] | None:
    if hasattr(value, "categories"):
        return {"choices": list(value.categories)}
    if not hasattr(value, "get_sampler"):
        return None
    sampler = value.get_sampler()
    step = getattr(sampler, "q", None)
    scale = type(getattr(sampler, "sampler", sampler)).__name__
    if scale == "_Normal":
        inner = getattr(sampler, "sampler", sampler)
        numbers = [inner.mean, inner.sd, *([] if step is None else [step])]
        why = nearest_range("normal" if step is None else "q_normal", numbers)
        raise ConfigError(f"{key}={value}: a space has no normal distribution; {why}.")
    is_log, is_whole = scale == "_LogUniform", type(value).__name__ == "Integer"
    ends = [value.lower, value.upper]
    if is_whole and step is None:
        ends[1] -= 1  # its upper end is exclusive
    if is_log and step not in (None, 1):
        why = nearest_range("q_log_randint" if is_whole else "q_log_uniform", [*ends, step])
        raise ConfigError(f"{key}={value}: log and step exclude each other; {why}.")
    ends = ends if is_whole else [float(end) for end in ends]
    return {"low": ends[0], "high": ends[1], "log": is_log, "step": None if step == 1 else step}
