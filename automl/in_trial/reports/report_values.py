"""Checks the steps, metrics and tags that an objective reports, and makes them plain values.

Nothing is stored or emitted here; `trial_reports.py` does that.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection
from typing import SupportsIndex

from automl.record.texts import describe_value
from automl.trial import MAX_STEP

MAX_NAME_CHARACTERS = 250
"""Longest name of a metric or tag; every tracker takes this length."""
MAX_TAG_CHARACTERS = 5000
"""Longest value of a tag; every tracker takes this length."""
MAX_TAGS = 100
"""Largest number of tags of a trial, all of which stay in memory while the trial runs."""
RESERVED_TAGS = ("automl.", "mlflow.")


def parse_step(step: SupportsIndex) -> int:
    """Return the step of a report as a plain number. Raises ValueError."""
    number = _whole(step)
    if number is None or not 0 <= number <= MAX_STEP:
        raise ValueError(
            f"report(step={describe_value(step)}): a step is a whole number from 0 to {MAX_STEP} "
            "(2**53); count epochs or batches from 0."
        )
    return number


def parse_metric_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"report(metrics): the name {describe_value(name)} is no string.")
    if len(name) > MAX_NAME_CHARACTERS:
        raise ValueError(
            f"report(metrics): the name {name[:40]!r}… has {len(name)} characters; give it at most "
            f"{MAX_NAME_CHARACTERS}."
        )
    return name


def parse_metric_value(name: str, value: object) -> float:
    """Return a metric as float. Raises TypeError for a value that `plain_number` does not take."""
    number = plain_number(value)
    if number is None:
        raise TypeError(
            f"report(metrics): {name!r} is {describe_value(value)} ({type(value).__name__}); "
            "a metric is a number."
        )
    return number


def plain_number(value: object) -> float | None:
    """Return a number of any library as float, also from an array or tensor that holds one value.

    Returns None for anything else: texts, truth values, complex numbers, several values.
    """
    item = getattr(value, "item", None)
    try:
        single = item() if callable(item) and not isinstance(value, type) else value
        if isinstance(single, str | bytes | bool | None):
            return None
        return float(single)  # type: ignore[arg-type]  # the except clause is the check
    except (TypeError, ValueError, RuntimeError, ArithmeticError):
        return None


def parse_tag(name: object, value: object) -> tuple[str, str]:
    """Return the name and the text of a tag. Raises ValueError."""
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARACTERS:
        raise ValueError(
            f"set_tag({describe_value(name)}): a tag's name is a string of 1 to "
            f"{MAX_NAME_CHARACTERS} characters."
        )
    if name.startswith(RESERVED_TAGS):
        raise ValueError(
            f"set_tag({name!r}): names that begin with {' or '.join(RESERVED_TAGS)} are taken; "
            "give it another."
        )
    text = str(value)
    if len(text) > MAX_TAG_CHARACTERS:
        raise ValueError(
            f"set_tag({name!r}): its value has {len(text)} characters; give it at most "
            f"{MAX_TAG_CHARACTERS}, and write longer texts into a file."
        )
    return name, text


def refuse_too_many_tags(name: str, there: Collection[str]) -> None:
    """Raise ValueError if a trial has too many tags for a further one."""
    if name not in there and len(there) >= MAX_TAGS:
        raise ValueError(
            f"set_tag({name!r}): a trial has at most {MAX_TAGS} tags; report what changes by step "
            "as a metric."
        )


def is_same_metric_value(a: float, b: float) -> bool:
    """Return whether two values of a metric are equal; NaN equals NaN."""
    return a == b or (math.isnan(a) and math.isnan(b))


def _whole(value: object) -> int | None:
    """Return a whole number of any library (numpy's, a tensor with one) as int, else None."""
    if type(value) is int:
        return value
    truth = "bool" in str(getattr(value, "dtype", type(value).__name__))
    try:
        return None if truth else operator.index(value)  # type: ignore[arg-type]  # the except clause is the check
    except TypeError:
        return None
