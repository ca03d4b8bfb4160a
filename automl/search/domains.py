"""The domains of params: a fixed value, a list of choices, or a range of numbers. Pure.

`search_space.py` builds a space from domains, and `optuna_trials.py` turns them into Optuna's
distributions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from automl.config.other_distributions import nearest_to_entry
from automl.config.range_text import RANGE_FORMS_TEXT, range_text
from automl.errors import ConfigError
from automl.record.secrets import carries_credential, mask_urls
from automl.trial import LARGEST_INTEGER, ParamValue

_FORMS = f"write {RANGE_FORMS_TEXT}, {{choices: […]}} or one value"


def is_same_value(a: object, b: object) -> bool:
    """Return whether two values are equal, where true and 1 differ (in Python they do not)."""
    return a == b and isinstance(a, bool) == isinstance(b, bool)


@dataclass(frozen=True)
class FixedDomain:
    """The domain of a param that has one value and is not searched."""

    value: ParamValue

    @property
    def ends(self) -> tuple[ParamValue, ...]:
        """The values that show whether an objective takes all values of the domain."""
        return (self.value,)

    def contains(self, value: object) -> bool:
        return is_same_value(value, self.value)

    def cast(self, value: ParamValue) -> ParamValue:
        return self.value

    def at(self, share: float) -> ParamValue:
        """Return the value at the fraction `share` (0 to 1) from the first to the last."""
        return self.value

    def plain(self) -> Any:
        return self.value

    def __str__(self) -> str:
        return f"fixed to {self.value}"


@dataclass(frozen=True)
class ChoiceDomain:
    """A domain of listed values without an order."""

    values: tuple[ParamValue, ...]

    @property
    def ends(self) -> tuple[ParamValue, ...]:
        return self.values

    def contains(self, value: object) -> bool:
        return any(is_same_value(value, v) for v in self.values)

    def cast(self, value: ParamValue) -> ParamValue:
        return next(v for v in self.values if is_same_value(v, value))

    def at(self, share: float) -> ParamValue:
        """Return the value at the fraction `share` (0 to 1) of the list."""
        return self.values[min(int(share * len(self.values)), len(self.values) - 1)]

    def far_apart(self) -> tuple[float, float] | None:
        """Return the choices, the smaller first, if they may be meant as a range; else None.

        They may if they are two floats an order of magnitude apart, or of different signs.
        """
        if len(self.values) != 2:
            return None
        low, high = self.values
        if not (isinstance(low, float) and isinstance(high, float)):
            return None
        low, high = min(low, high), max(low, high)
        small, large = sorted((abs(low), abs(high)))
        return (low, high) if low < 0 < high or large >= 10 * small else None

    def plain(self) -> dict[str, Any]:
        return {"choices": list(self.values)}

    def __str__(self) -> str:
        return "one of " + ", ".join(map(str, self.values))


@dataclass(frozen=True)
class RangeDomain:
    """A domain of numbers from `low` to `high`, both included; integers if its bounds are."""

    low: int | float
    high: int | float
    log: bool = False
    step: int | float | None = None

    @property
    def is_integer(self) -> bool:
        return isinstance(self.low, int)

    @property
    def text(self) -> str:
        """The range as it is typed, such as `log:0.0001..0.1`."""
        return range_text(self.low, self.high, log=self.log, step=self.step)

    @property
    def spacing(self) -> int | float | None:
        """The distance between neighbouring values, before a log scale; None: any float."""
        return 1 if self.step is None and self.is_integer else self.step

    @property
    def n_values(self) -> float:
        """The number of values, which may be infinite."""
        return round((self.high - self.low) / self.spacing) + 1 if self.spacing else math.inf

    def all_values(self) -> tuple[ParamValue, ...]:
        """Return the values of a range that has finitely many, in order."""
        assert self.spacing is not None, "a range of floats without a step has no list of values"
        return tuple(self.cast(self.low + k * self.spacing) for k in range(int(self.n_values)))

    @property
    def ends(self) -> tuple[ParamValue, ...]:
        return (self.low, self.high)

    def contains(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(
            value, int if self.is_integer else int | float
        ):
            return False
        if not self.low <= value <= self.high:
            return False
        n_steps = 0.0 if self.step is None else (value - self.low) / self.step
        return abs(n_steps - round(n_steps)) < 1e-8

    def cast(self, value: ParamValue) -> ParamValue:
        """Return `value` in the range's type, on its steps as written (0.3, not 3 · 0.1)."""
        assert isinstance(value, int | float)
        if self.step is None:
            return int(value) if self.is_integer else float(value)
        return _on_step(self.low, round((value - self.low) / self.step), self.step)

    def at(self, share: float) -> ParamValue:
        """Return the value at the fraction `share` (0 to 1) of the range or its log scale."""
        if share in (0, 1):  # powers and logarithms would miss the ends by rounding
            return self.cast(self.high if share else self.low)
        if self.log:
            return self.nearest(self.low * (self.high / self.low) ** share)
        return self.nearest(self.low + (self.high - self.low) * share)

    def share(self, value: float) -> float:
        """Return which fraction `at` turns into a value; outside the range it is not in 0 to 1."""
        low, high, place = float(self.low), float(self.high), float(value)
        if self.log:
            low, high, place = math.log(low), math.log(high), math.log(place)
        return (place - low) / (high - low) if high > low else 0.0

    def nearest(self, value: float) -> ParamValue:
        """Return the value of the range that is nearest to a number."""
        value = min(max(value, self.low), self.high)
        return round(value) if self.is_integer and self.step is None else self.cast(value)

    def plain(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high, "log": self.log, "step": self.step}

    def __str__(self) -> str:
        kind = "whole numbers" if self.is_integer else "numbers"
        return f"{kind} {self.text}"


Domain: TypeAlias = FixedDomain | ChoiceDomain | RangeDomain


def domain_hull(a: Domain, b: Domain) -> Domain:
    """Return the range from the lower to the higher end of two; of choices the first."""
    if not isinstance(a, RangeDomain) or not isinstance(b, RangeDomain):
        return a
    step = a.step if a.step == b.step else None
    return RangeDomain(min(a.low, b.low), max(a.high, b.high), a.log, step)


def parse_domain(key: str, entry: object) -> Domain:
    """Return the domain of `entry` (without its `when`). Raises ConfigError naming `key`."""
    if not isinstance(entry, Mapping):
        return FixedDomain(_scalar(key, entry))
    settings = {name: value for name, value in entry.items() if value is not None}
    if unknown := entry.keys() - {"low", "high", "log", "step", "choices"}:
        what = f"unknown key {', '.join(map(repr, sorted(unknown)))}"
        nearest = nearest_to_entry(settings) or _FORMS
        raise ConfigError(f"{key}: {what}; {nearest}.")
    if "choices" in settings:
        if len(settings) > 1:
            raise ConfigError(f"{key}: choices and a range exclude each other; {_FORMS}.")
        return _choices(f"{key}.choices", settings["choices"])
    if missing := {"low", "high"} - settings.keys():
        raise ConfigError(f"{key}: {' and '.join(sorted(missing))} missing; {_FORMS}.")
    return _range(key, **settings)


def _choices(key: str, values: object) -> ChoiceDomain:
    if not isinstance(values, Iterable) or isinstance(values, str | Mapping):
        raise ConfigError(f"{key}={values}: must be a list, such as [32, 64].")
    choices = tuple(_scalar(key, value) for value in values)
    if not choices:
        raise ConfigError(f"{key}=[]: no choices; name at least one.")
    # 1, 1.0 and true are one key to Optuna and to Python, hence plain equality here.
    repeated = [b for i, b in enumerate(choices) if any(a == b for a in choices[:i])]
    if repeated:
        raise ConfigError(f"{key}={list(choices)}: {repeated[0]} is repeated; name it once.")
    return ChoiceDomain(choices)


def _range(key: str, low: Any, high: Any, log: Any = False, step: Any = None) -> RangeDomain:
    numbers = [_number(f"{key}.low", low), _number(f"{key}.high", high)]
    numbers += [] if step is None else [_number(f"{key}.step", step)]
    if not all(isinstance(number, int) for number in numbers):
        numbers = [float(number) for number in numbers]
    low, high = numbers[:2]
    step = None if step is None else numbers[2]
    if not isinstance(log, bool):
        raise ConfigError(f"{key}.log={log}: must be true or false.")
    written = f"{key}={range_text(low, high, log=log, step=step)}"
    if low > high:
        raise ConfigError(f"{written}: low={low} is above high={high}; exchange them.")
    if not math.isfinite(float(high) - float(low)):
        raise ConfigError(f"{written}: is too wide for a float64; bring the ends closer.")
    if log and low <= 0:
        raise ConfigError(f"{written}: a log range must begin above 0; raise low={low}.")
    if step is not None and step <= 0:
        raise ConfigError(f"{written}: step={step} must be greater than 0.")
    if log and step not in (None, 1):
        raise ConfigError(f"{written}: log and step exclude each other; leave one out.")
    return RangeDomain(low, high if step is None else _last_step(low, high, step), log, step)


def _last_step(low: int | float, high: int | float, step: int | float) -> int | float:
    """Return the largest `low + k·step` up to `high`, so that the high end can be drawn."""
    n_steps = (Decimal(str(high)) - Decimal(str(low))) // Decimal(str(step))
    return _on_step(low, int(n_steps), step)


def _on_step(low: int | float, n_steps: int, step: int | float) -> int | float:
    """Return `low + n_steps·step` in decimals: 3 · 0.1 in floats is 0.30000000000000004."""
    value = Decimal(str(low)) + n_steps * Decimal(str(step))
    return int(value) if isinstance(low, int) else float(value)


def _number(key: str, value: object) -> int | float:
    """Return an end or a step of a range. Raises ConfigError."""
    number = _finite(key, value)
    if isinstance(number, int) and abs(number) > LARGEST_INTEGER:
        raise ConfigError(
            f"{key}={number}: whole numbers of a range go up to 2**53. Write it as a float, list "
            "the values as choices, or search an exponent."
        )
    return number


def _finite(key: str, value: object) -> int | float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ConfigError(f"{key}={value}: must be a number.")
    if not math.isfinite(value):
        raise ConfigError(f"{key}={value}: must be finite.")
    return value


def _scalar(key: str, value: object) -> ParamValue:
    if isinstance(value, str) and carries_credential(value):
        raise ConfigError(
            f"{key}={mask_urls(value)}: carries a credential, and values of params are stored and "
            "shown. Leave it out, and let the objective read it from its environment."
        )
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ConfigError(f"{key}={value}: whole numbers have 64 bits; write it as a text.")
        return _finite(key, value)
    raise ConfigError(f"{key}={value}: a value is a number, a text, true, false or null; {_FORMS}.")
