"""Names the range that is nearest to a distribution as W&B, Ray Tune, Hyperopt or SciPy write it.

A space has ranges and choices alone. A text such as `normal(0, 1)` or a mapping such as
`{distribution: normal, mu: 0, sigma: 1}` is no notation of a space; the error for it has the range
to write in its place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from automl.config.range_text import range_text

_CALL = re.compile(r"\s*(?:\w+\.)*(\w+)\((.*)\)\s*")
_N_DEVIATIONS = 2
"""A normal distribution has 95 % of its values within so many standard deviations of its mean."""

Numbers: TypeAlias = Sequence[float]


def nearest_to_text(text: str) -> str | None:
    """Return the clause on the nearest range for a text such as `loguniform(1e-4, 1e-1)`; None: it
    is no distribution that is known."""
    called = _CALL.fullmatch(text)
    if called is None:
        return None
    try:
        numbers = [float(part.partition("=")[2] or part) for part in called[2].split(",")]
    except ValueError:
        return None
    return nearest_range(called[1], numbers)


def nearest_to_entry(entry: Mapping[str, Any]) -> str | None:
    """Return the clause on the nearest range for an entry in the form of W&B; None: it has none."""
    if isinstance(entry.get("values", entry.get("grid_search")), list):
        listed = entry.get("values", entry.get("grid_search"))
        weights = entry.get("probabilities")
        if weights is None or len(weights) != len(listed):
            return f"the nearest is {{choices: {_plain(listed)}}}"
        best = listed[max(range(len(listed)), key=lambda i: weights[i])]
        return (
            f"the nearest is {{choices: {_plain(listed)}, likely: {_plain(best)}}}: choices have "
            "no weights, and the likely one is tried first and more often in the first trials"
        )
    kind = str(entry.get("distribution", "int_uniform" if _is_whole(entry) else "uniform"))
    names = ("mu", "sigma") if "mu" in entry else ("min", "max")
    given = [entry[name] for name in (*names, "q") if name in entry]
    if len(given) < 2 or not all(isinstance(number, int | float) for number in given):
        return None
    if kind in ("log_uniform", "q_log_uniform"):  # W&B's have exponents of e
        given[:2] = [math.exp(given[0]), math.exp(given[1])]
    return nearest_range(kind, given)


def nearest_range(name: str, numbers: Numbers) -> str | None:
    """Return the clause on the nearest range for a distribution by its name and its numbers."""
    plain = name.lower().replace("_", "").removesuffix("values")
    is_stepped = plain.startswith("q")
    write = _WRITERS.get(plain.removeprefix("q"))
    if write is None or len(numbers) != (3 if is_stepped else 2):
        return None
    try:
        return write(numbers, is_stepped)
    except OverflowError:
        return None


def _uniform(numbers: Numbers, is_stepped: bool) -> str:
    low, high = _as_floats(*numbers[:2])
    step = f"{numbers[2]:g}" if is_stepped else None
    return f"the nearest is {range_text(low, high, step=step)}"


def _log_uniform(numbers: Numbers, is_stepped: bool) -> str:
    note = ": a log range has no step" if is_stepped else ""
    return f"the nearest is {range_text(*_as_floats(*numbers[:2]), log=True)}{note}"


def _whole_uniform(numbers: Numbers, is_stepped: bool) -> str:
    step = f"{numbers[2]:g}" if is_stepped else None
    return f"the nearest is {range_text(f'{numbers[0]:g}', f'{numbers[1]:g}', step=step)}"


def _ray_whole_uniform(numbers: Numbers, is_stepped: bool) -> str:
    low, end = numbers[0], numbers[1] - (0 if is_stepped else 1)  # its upper end is exclusive
    return _whole_uniform([low, end, *numbers[2:]], is_stepped)


def _ray_log_whole(numbers: Numbers, is_stepped: bool) -> str:
    end = numbers[1] - (0 if is_stepped else 1)
    return f"the nearest is {range_text(f'{numbers[0]:g}', f'{end:g}', log=True)}"


def central_range(mean: float, deviation: float) -> tuple[float, float]:
    """Return the ends of the range that has 95 % of the values of a normal distribution."""
    return mean - _N_DEVIATIONS * deviation, mean + _N_DEVIATIONS * deviation


def _normal(numbers: Numbers, is_stepped: bool) -> str:
    mean, deviation = numbers[:2]
    low, high = central_range(mean, deviation)
    if is_stepped:
        step = numbers[2]
        mean, low, high = (round(value / step) * step for value in (mean, low, high))
    return _around(low, mean, high, f", step: {numbers[2]:g}" if is_stepped else "")


def _log_normal(numbers: Numbers, is_stepped: bool) -> str:
    mean, deviation = numbers[:2]
    low, high = map(math.exp, central_range(mean, deviation))
    middle = math.exp(mean)
    return _around(low, middle, high, ", log: true")


def _around(low: float, middle: float, high: float, more: str) -> str:
    ends = "low: {}, high: {}, likely: {}".format(*_as_floats(low, high, middle))
    return f"the nearest, with 95 % of its values, is {{{ends}{more}}}"


def _as_floats(*numbers: float) -> list[str]:
    """Return numbers as texts that a space reads as floats, with six digits."""
    texts = [f"{number:.6g}" for number in numbers]
    return [text if set(text) & set(".en") else f"{text}.0" for text in texts]


def _is_whole(entry: Mapping[str, Any]) -> bool:
    return all(isinstance(entry.get(name), int) for name in ("min", "max"))


def _plain(value: object) -> str:
    return str(value).replace("'", "")


_WRITERS: Mapping[str, Callable[[Numbers, bool], str]] = {
    "uniform": _uniform,
    "loguniform": _log_uniform,
    "reciprocal": _log_uniform,
    "intuniform": _whole_uniform,
    "randint": _ray_whole_uniform,
    "lograndint": _ray_log_whole,
    "normal": _normal,
    "gauss": _normal,
    "randn": _normal,
    "lognormal": _log_normal,
}
"""What writes the nearest range, by the distribution's name without `q`."""
