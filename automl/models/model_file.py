"""What a `best.pt` says of its model, checked before anything is made of it.

Its author may be a stranger. What is checked here can be used: it agrees with itself, and nothing
much larger than the file is ever made; weights of networks are looked at in `network.py`. Names in
it are shown, and never imported.

What `best.pt` says of a model besides the model itself. No torch: whoever trains writes it.

What a `refit.pt` is of, and what it is written from: plain values, no torch.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

from automl.config import Task
from automl.config.commands import ROWS
from automl.config.metrics import SQUARED_ERROR, VALUE_LOSSES, ValueLoss
from automl.data.columns import NumberReading, reading_from_plain
from automl.data.data_facts import UserDataFacts
from automl.data.dataset import Dataset
from automl.models.family import Family, family_name
from automl.trial import ParamValue

MODEL_FORMAT = "automl-model-2"
"""Stands in each `best.pt` that `load` can read; a change of its layout is a new number."""
ARRAY_MODEL_FORMAT = "automl-model-arrays-1"
"""Likewise of a model of data of the user's own."""

THRESHOLD_KEY = "threshold"
"""Of two classes: from which probability on a row is of the second; where there is none, the
likelier one is said."""

SHARED_KEYS = frozenset(
    (
        "format",
        "family",
        "task",
        "preprocessing",
        "classes",
        "target_mean",
        "target_scale",
        "target",
        "target_reading",
        "data",
        "value_loss",
    )
)
"""What `make_model_state` says beside the model: the same for all models of a table."""


def make_model_state(
    family: Family, data: Dataset | UserDataFacts, model: Mapping[str, Any]
) -> dict[str, Any]:
    """What an estimator reports as its best, so that `load` needs nothing else, as plain values.

    `model` is what the heavy side's `read_model` takes.
    """
    own_loss = {} if data.loss == SQUARED_ERROR else {"value_loss": list(astuple(data.loss))}
    if isinstance(data, UserDataFacts):
        return own_loss | _array_state(family_name(family), data, model)
    reading = data.target_reading
    return {
        **own_loss,
        **({} if reading is None else {"target_reading": reading.plain()}),
        "format": MODEL_FORMAT,
        "family": family_name(family),
        "task": data.task.value,
        **model,
        "preprocessing": data.columns.plain(),
        "classes": data.classes,
        "target_mean": data.target_mean,
        "target_scale": data.target_scale,
        "target": data.target,
        "data": data.digest,
    }


def _array_state(family: str, facts: UserDataFacts, model: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "format": ARRAY_MODEL_FORMAT,
        "family": family,
        "task": facts.task.value,
        **model,
        "outputs": facts.outputs.value,
        "takes_integers": facts.takes_integers,
        "data": facts.digest,
    }


@dataclass(frozen=True)
class RefitFacts:
    """The final training that a `refit.pt` came of."""

    trial: int
    """The one that was trained again; of an ensemble the heaviest."""
    rows: str
    """On which rows: one of `config.refit.ROWS`."""
    n_seeds: int
    data: str
    """Digest of the table and split that its study was searched with, in hex; empty: the training
    has rows of its own."""
    members: tuple[int, ...] = ()
    """Of an ensemble the trials, each of which was trained again, the heaviest first."""


@dataclass(frozen=True)
class RefitFileJob:
    """What is written, and of what. Picklable."""

    path: str
    seeds: Sequence[str]
    """The `best.pt` of each; of an ensemble those of a member stand together."""
    study: str
    refitted: RefitFacts
    searched: str | None = None
    """The `best.pt` of the trial, whose threshold of labels is kept: a refit has no rows to find
    one by."""
    weights: Mapping[int, float] = field(default_factory=dict)
    """Of an ensemble by trial, in the order of `seeds`."""


MAX_LABEL_BYTES = 2**26
"""Of all labels in one numpy array, in which each takes the room of the longest."""


REFITTED_KEY = "refitted"
"""Says in a `refit.pt` what it is of."""


class BuilderNeededError(Exception):
    """Raised for a network that only a function of the user's can build."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.target = target
        """What the file says of that function; shown, and never imported."""


def check_content(holds: bool, what: str, value: object) -> None:
    """Raises ValueError; of the value only a short beginning is shown, and looked at."""
    if not holds:
        raise ValueError(f"{what}: {reprlib.repr(value)}")


def parse_task(state: Mapping[str, Any]) -> Task:
    name = state["task"]
    tasks = [task.value for task in Task if task is not Task.auto]
    check_content(isinstance(name, str) and name in tasks, "no task", name)
    return Task(name)


def parse_threshold(state: Mapping[str, Any], n_outputs: int) -> float | None:
    """See `model_state.THRESHOLD_KEY`."""
    if THRESHOLD_KEY not in state:
        return None
    threshold = parse_number(state, THRESHOLD_KEY)
    check_content(n_outputs == 2 and 0 <= threshold <= 1, "no threshold", threshold)
    return threshold


def parse_loss(state: Mapping[str, Any]) -> ValueLoss:
    """What a model of numbers was trained by. Raises ValueError for none that there is."""
    given = state.get("value_loss", [SQUARED_ERROR.name, SQUARED_ERROR.quantile])
    check_content(isinstance(given, list | tuple) and len(given) == 2, "no loss", given)
    name, quantile = given
    check_content(name in VALUE_LOSSES, "no loss", name)
    check_content(type(quantile) is float and 0 < quantile < 1, "no quantile", quantile)
    return ValueLoss(name, quantile)


def parse_target_reading(state: Mapping[str, Any]) -> NumberReading | None:
    """How texts say the numbers that it predicts; None: they are plain ones."""
    plain = state.get("target_reading")
    if plain is None:
        return None
    check_content(isinstance(plain, Mapping), "no reading", plain)
    reading = reading_from_plain(plain)
    check_content(isinstance(reading, NumberReading), "no reading of numbers", plain)
    assert isinstance(reading, NumberReading)
    return reading


def parse_number(state: Mapping[str, Any], key: str) -> float:
    value = state[key]
    check_content(
        type(value) in (int, float) and math.isfinite(value), f"{key} is no number", value
    )
    return float(value)


def parse_text(state: Mapping[str, Any], key: str) -> str:
    """Empty where an earlier version wrote none."""
    value = state.get(key, "")
    check_content(isinstance(value, str), f"{key} is no text", value)
    return str(value)


def parse_metrics(plain: object) -> dict[str, float]:
    """Names and numbers."""
    check_content(isinstance(plain, Mapping), "no metrics", plain)
    assert isinstance(plain, Mapping)
    for name, value in plain.items():
        check_content(isinstance(name, str), "a metric without a name", name)
        check_content(type(value) in (int, float), f"the metric {name[:50]!r}", value)
    return {name: float(value) for name, value in plain.items()}


def parse_params(plain: object) -> dict[str, ParamValue]:
    """Names and single values: the params of a trial, or arguments of a network."""
    check_content(isinstance(plain, Mapping), "no params", plain)
    assert isinstance(plain, Mapping)
    for name, value in plain.items():
        check_content(isinstance(name, str), "a param without a name", name)
        check_content(value is None or _is_label(value), f"the param {name[:50]!r}", value)
    return dict(plain)


def parse_classes(state: Mapping[str, Any], task: Task, n_outputs: int) -> tuple[ParamValue, ...]:
    """The labels; none for regression."""
    plain = state["classes"]
    check_content(
        isinstance(plain, list | tuple) and all(map(_is_label, plain)), "no labels", plain
    )
    n_expected = 0 if task is Task.regression else n_outputs
    check_content(len(plain) == n_expected, f"not {n_expected} labels", plain)
    check_content(task is not Task.regression or n_outputs == 1, "not one output", n_outputs)
    longest = max((len(label) for label in plain if isinstance(label, str)), default=0)
    check_content(4 * longest * len(plain) <= MAX_LABEL_BYTES, "labels too long", plain)
    return tuple(plain)


def parse_refitted(content: Mapping[str, Any]) -> RefitFacts | None:
    """None: it is a trial's own, or an earlier version wrote it."""
    plain = content.get(REFITTED_KEY)
    if plain is None:
        return None
    check_content(isinstance(plain, Mapping), "no refit", plain)
    members = plain.get("members", [])
    check_content(
        isinstance(members, list | tuple) and all(map(_is_trial, members)), "no trials", members
    )
    rows, data = parse_text(plain, "rows"), parse_text(plain, "data")
    found = RefitFacts(plain["trial"], rows, plain["n_seeds"], data, tuple(members))
    check_content(_is_trial(found.trial), "no trial", found.trial)
    check_content(found.rows in ROWS and is_positive_size(found.n_seeds), "no refit", plain)
    return found


def _is_trial(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_label(value: object) -> bool:
    return type(value) in (str, int, float, bool)


def parse_shares(plain: object, n: int) -> list[float]:
    """`n` numbers above 0 that sum to 1."""
    check_content(isinstance(plain, list | tuple) and len(plain) == n, f"not {n} weights", plain)
    assert isinstance(plain, list | tuple)
    check_content(
        all(type(x) is float and 0 < x <= 1 for x in plain), "no weights of models", plain
    )
    check_content(
        math.isclose(math.fsum(plain), 1, rel_tol=1e-6), "weights that do not sum to 1", plain
    )
    return list(plain)


def parse_sizes(plain: object, n: int) -> list[int]:
    """Whole numbers from 1 that sum to `n`."""
    check_content(
        isinstance(plain, list | tuple) and all(map(is_positive_size, plain)), "no numbers", plain
    )
    assert isinstance(plain, list | tuple)
    check_content(sum(plain) == n, f"not {n} models", plain)
    return list(plain)


def check_unpacked_size(members: Sequence[Mapping[str, Any]], file_bytes: int) -> None:
    """Several models that may share what they hold: made apart they are no larger than the file."""
    size_bytes = sum(map(_tensor_bytes, members))
    check_content(
        size_bytes <= file_bytes, f"models larger than the file ({file_bytes} bytes)", size_bytes
    )


def _tensor_bytes(plain: object) -> int:
    size_bytes = getattr(plain, "nbytes", None)  # of a tensor or an array
    if isinstance(size_bytes, int):
        return size_bytes
    if isinstance(plain, Mapping):
        return sum(map(_tensor_bytes, plain.values()))
    return sum(map(_tensor_bytes, plain)) if isinstance(plain, list | tuple) else 0


def tensors_to_arrays(plain: Any) -> Any:
    """A state with arrays where torch has read tensors: of a model without torch that stands in one
    file with networks. What is no dense tensor in memory raises TypeError."""
    if type(plain).__module__ == "torch" and hasattr(plain, "numpy"):
        return plain.numpy()
    if isinstance(plain, Mapping):
        return {name: tensors_to_arrays(value) for name, value in plain.items()}
    return plain


def is_positive_size(value: object) -> bool:
    """A number of rows, columns or units."""
    return type(value) is int and value >= 1


def short_error_text(error: BaseException) -> str:
    """One printable line about what went wrong, however long the error is."""
    text = " ".join(str(error)[:2000].split()) or type(error).__name__
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= 300 else f"{text[:299]}…"
