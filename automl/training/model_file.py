"""What a `best.pt` says of its model, checked before anything is made of it.

Its author may be a stranger. What is checked here can be used: it agrees with itself, and nothing
much larger than the file is ever made; weights of networks are looked at in `weights.py`. Names in
it are shown, and never imported.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from automl.config import Task
from automl.config.losses import OF_VALUES, SQUARED_ERROR, ValueLoss
from automl.config.refit import ROWS
from automl.data.readings import NumberReading, reading_of
from automl.training.model_state import THRESHOLD
from automl.training.refitted import Refitted
from automl.trial import ParamValue

MAX_LABEL_BYTES = 2**26
"""Of all labels in one numpy array, in which each takes the room of the longest."""


REFITTED = "refitted"
"""Says in a `refit.pt` what it is of."""


class NeedsBuilder(Exception):
    """Raised for a network that only a function of the user's can build."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.target = target
        """What the file says of that function; shown, and never imported."""


def check(holds: bool, what: str, value: object) -> None:
    """Raises ValueError; of the value only a short beginning is shown, and looked at."""
    if not holds:
        raise ValueError(f"{what}: {reprlib.repr(value)}")


def task_of(state: Mapping[str, Any]) -> Task:
    name = state["task"]
    tasks = [task.value for task in Task if task is not Task.auto]
    check(isinstance(name, str) and name in tasks, "no task", name)
    return Task(name)


def threshold_of(state: Mapping[str, Any], n_outputs: int) -> float | None:
    """See `model_state.THRESHOLD`."""
    if THRESHOLD not in state:
        return None
    threshold = number(state, THRESHOLD)
    check(n_outputs == 2 and 0 <= threshold <= 1, "no threshold", threshold)
    return threshold


def loss_of(state: Mapping[str, Any]) -> ValueLoss:
    """What a model of numbers was trained by. Raises ValueError for none that there is."""
    given = state.get("value_loss", [SQUARED_ERROR.name, SQUARED_ERROR.quantile])
    check(isinstance(given, list | tuple) and len(given) == 2, "no loss", given)
    name, quantile = given
    check(name in OF_VALUES, "no loss", name)
    check(type(quantile) is float and 0 < quantile < 1, "no quantile", quantile)
    return ValueLoss(name, quantile)


def target_reading_of(state: Mapping[str, Any]) -> NumberReading | None:
    """How texts say the numbers that it predicts; None: they are plain ones."""
    plain = state.get("target_reading")
    if plain is None:
        return None
    check(isinstance(plain, Mapping), "no reading", plain)
    reading = reading_of(plain)
    check(isinstance(reading, NumberReading), "no reading of numbers", plain)
    assert isinstance(reading, NumberReading)
    return reading


def number(state: Mapping[str, Any], key: str) -> float:
    value = state[key]
    check(type(value) in (int, float) and math.isfinite(value), f"{key} is no number", value)
    return float(value)


def text(state: Mapping[str, Any], key: str) -> str:
    """Empty where an earlier version wrote none."""
    value = state.get(key, "")
    check(isinstance(value, str), f"{key} is no text", value)
    return str(value)


def metrics_of(plain: object) -> dict[str, float]:
    """Names and numbers."""
    check(isinstance(plain, Mapping), "no metrics", plain)
    assert isinstance(plain, Mapping)
    for name, value in plain.items():
        check(isinstance(name, str), "a metric without a name", name)
        check(type(value) in (int, float), f"the metric {name[:50]!r}", value)
    return {name: float(value) for name, value in plain.items()}


def params_of(plain: object) -> dict[str, ParamValue]:
    """Names and single values: the params of a trial, or arguments of a network."""
    check(isinstance(plain, Mapping), "no params", plain)
    assert isinstance(plain, Mapping)
    for name, value in plain.items():
        check(isinstance(name, str), "a param without a name", name)
        check(value is None or _is_label(value), f"the param {name[:50]!r}", value)
    return dict(plain)


def classes_of(state: Mapping[str, Any], task: Task, n_outputs: int) -> tuple[ParamValue, ...]:
    """The labels; none for regression."""
    plain = state["classes"]
    check(isinstance(plain, list | tuple) and all(map(_is_label, plain)), "no labels", plain)
    n_expected = 0 if task is Task.regression else n_outputs
    check(len(plain) == n_expected, f"not {n_expected} labels", plain)
    check(task is not Task.regression or n_outputs == 1, "not one output", n_outputs)
    longest = max((len(label) for label in plain if isinstance(label, str)), default=0)
    check(4 * longest * len(plain) <= MAX_LABEL_BYTES, "labels too long", plain)
    return tuple(plain)


def refitted_of(content: Mapping[str, Any]) -> Refitted | None:
    """None: it is a trial's own, or an earlier version wrote it."""
    plain = content.get(REFITTED)
    if plain is None:
        return None
    check(isinstance(plain, Mapping), "no refit", plain)
    members = plain.get("members", [])
    check(isinstance(members, list | tuple) and all(map(_is_trial, members)), "no trials", members)
    rows, data = text(plain, "rows"), text(plain, "data")
    found = Refitted(plain["trial"], rows, plain["n_seeds"], data, tuple(members))
    check(_is_trial(found.trial), "no trial", found.trial)
    check(found.rows in ROWS and is_size(found.n_seeds), "no refit", plain)
    return found


def _is_trial(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_label(value: object) -> bool:
    return type(value) in (str, int, float, bool)


def shares_of(plain: object, n: int) -> list[float]:
    """`n` numbers above 0 that sum to 1."""
    check(isinstance(plain, list | tuple) and len(plain) == n, f"not {n} weights", plain)
    assert isinstance(plain, list | tuple)
    check(all(type(x) is float and 0 < x <= 1 for x in plain), "no weights of models", plain)
    check(math.isclose(math.fsum(plain), 1, rel_tol=1e-6), "weights that do not sum to 1", plain)
    return list(plain)


def sizes_of(plain: object, n: int) -> list[int]:
    """Whole numbers from 1 that sum to `n`."""
    check(isinstance(plain, list | tuple) and all(map(is_size, plain)), "no numbers", plain)
    assert isinstance(plain, list | tuple)
    check(sum(plain) == n, f"not {n} models", plain)
    return list(plain)


def check_room(members: Sequence[Mapping[str, Any]], file_bytes: int) -> None:
    """Several models that may share what they hold: made apart they are no larger than the file."""
    size_bytes = sum(map(_tensor_bytes, members))
    check(size_bytes <= file_bytes, f"models larger than the file ({file_bytes} bytes)", size_bytes)


def _tensor_bytes(plain: object) -> int:
    size_bytes = getattr(plain, "nbytes", None)  # of a tensor or an array
    if isinstance(size_bytes, int):
        return size_bytes
    if isinstance(plain, Mapping):
        return sum(map(_tensor_bytes, plain.values()))
    return sum(map(_tensor_bytes, plain)) if isinstance(plain, list | tuple) else 0


def with_arrays(plain: Any) -> Any:
    """A state with arrays where torch has read tensors: of a model without torch that stands in one
    file with networks. What is no dense tensor in memory raises TypeError."""
    if type(plain).__module__ == "torch" and hasattr(plain, "numpy"):
        return plain.numpy()
    if isinstance(plain, Mapping):
        return {name: with_arrays(value) for name, value in plain.items()}
    return plain


def is_size(value: object) -> bool:
    """A number of rows, columns or units."""
    return type(value) is int and value >= 1


def short(error: BaseException) -> str:
    """One printable line about what went wrong, however long the error is."""
    text = " ".join(str(error)[:2000].split()) or type(error).__name__
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= 300 else f"{text[:299]}…"
