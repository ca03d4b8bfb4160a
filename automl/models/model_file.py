"""Names what a model file holds besides the model, and checks it before anything is made of it.

The author of a file may be a stranger. What passes the checks agrees with itself, and nothing much
larger than the file is made of it. Names in a file are shown, never imported. The jobs of the
processes that write files are defined here, too, because the asking processes load no models.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, Self, cast

from automl.config import Task
from automl.config.command_arguments import REFIT_ROWS
from automl.config.metrics import SQUARED_ERROR, VALUE_LOSSES, ValueLoss
from automl.data.columns import NumberReading, reading_from_plain
from automl.data.dataset import Dataset, UserDataFacts
from automl.data.target_encoding import encoding_entry
from automl.errors import AutoMLError
from automl.models.family import Family, TrainedModel, family_name
from automl.record.study_files import study_around
from automl.trial import EnsembleFindings, ParamValue, ScoreInterval

MODEL_FORMAT = "automl-model-2"
"""Format of each `best.pt` for tables that `load` can read; a changed layout gets a new number."""
ARRAY_MODEL_FORMAT = "automl-model-arrays-1"
"""Format of each `best.pt` of a model that was trained on arrays of a user."""

THRESHOLD_KEY = "threshold"
"""Key of the probability from which on a row gets the second of two classes, or of one for each of
more classes."""

SHARPNESS_KEY = "sharpness"
"""Key of the factor of an ensemble's class scores; without it, the factor is 1."""

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
"""Keys that `make_model_state` adds to the model, the same for all models of a table."""


def make_model_state(
    family: Family, data: Dataset | UserDataFacts, model: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the plain values that an estimator reports as its best; `load` needs nothing else.

    `model` is the part that the heavy side's `read_model` takes.
    """
    own_loss = {} if data.loss == SQUARED_ERROR else {"value_loss": list(astuple(data.loss))}
    if isinstance(data, UserDataFacts):
        return own_loss | _array_state(family_name(family), data, model)
    reading = data.target_reading
    return {
        **own_loss,
        **encoding_entry(data.encoding),
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
    """Describes the final training that made a `refit.pt`."""

    trial: int
    """Number of the trial that was trained again; for an ensemble, the heaviest member's."""
    rows: str
    """Name of the rows that were trained on, one of `config.command_arguments.REFIT_ROWS`."""
    n_seeds: int
    data: str
    """Digest of the table and split of the search, in hex; empty: the training has its own rows."""
    members: tuple[int, ...] = ()
    """Trials of an ensemble, each of which was trained again, the heaviest first."""


@dataclass(frozen=True)
class RefitFileJob:
    """Describes a `refit.pt` to write, and the models it is made from. Picklable."""

    path: str
    seeds: Sequence[str]
    """The `best.pt` of each seed; in an ensemble, the seeds of one member stand together."""
    study: str
    refitted: RefitFacts
    searched_model: str | None = None
    """The `best.pt` of the searched trial, whose label threshold the refit keeps."""
    weights: Mapping[int, float] = field(default_factory=dict)
    """Weights of an ensemble by trial, in the order of `seeds`; empty for a single trial."""


MAX_LABEL_BYTES = 2**26
"""Largest size of all labels in one numpy array, where each takes the room of the longest."""


REFITTED_KEY = "refitted"
"""Key of the `RefitFacts` in a `refit.pt`."""


class BuilderNeededError(Exception):
    """Raised for a network that only a function of the user can build."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.target = target
        """Name of the function in the file; shown, never imported."""


class WeightsError(AutoMLError):
    """Raised for a model that predicts with a file of weights that is not there, or is another."""


def check_content(holds: bool, what: str, value: object) -> None:
    """Raise ValueError unless `holds`; only a short beginning of the value is read and shown."""
    if not holds:
        raise ValueError(f"{what}: {reprlib.repr(value)}")


def parse_task(state: Mapping[str, Any]) -> Task:
    name = state["task"]
    tasks = [task.value for task in Task if task is not Task.auto]
    check_content(isinstance(name, str) and name in tasks, "no task", name)
    return Task(name)


def parse_threshold(state: Mapping[str, Any], n_outputs: int) -> float | tuple[float, ...] | None:
    """Return what decides the labels of a model (`THRESHOLD_KEY`), or None: a number for two
    classes, one for each of more."""
    if THRESHOLD_KEY not in state:
        return None
    several = state[THRESHOLD_KEY]
    if isinstance(several, list | tuple):
        fits = n_outputs > 2 and len(several) == n_outputs
        fits = fits and all(type(one) is float and 0 < one <= 1 for one in several)
        check_content(fits, "no thresholds", several)
        return tuple(several)
    threshold = parse_number(state, THRESHOLD_KEY)
    check_content(n_outputs == 2 and 0 <= threshold <= 1, "no threshold", threshold)
    return threshold


def parse_sharpness(state: Mapping[str, Any]) -> float:
    """Return the factor of a mean's class scores (`SHARPNESS_KEY`)."""
    sharpness = parse_number({SHARPNESS_KEY: 1.0, **state}, SHARPNESS_KEY)
    check_content(0 < sharpness < 100, "no sharpness", sharpness)
    return sharpness


def parse_loss(state: Mapping[str, Any]) -> ValueLoss:
    """Return the training loss of a regression model. Raises ValueError for an unknown loss."""
    plain = state.get("value_loss", [SQUARED_ERROR.name, SQUARED_ERROR.quantile])
    check_content(isinstance(plain, list | tuple) and len(plain) == 2, "no loss", plain)
    name, quantile = plain
    check_content(name in VALUE_LOSSES, "no loss", name)
    check_content(type(quantile) is float and 0 < quantile < 1, "no quantile", quantile)
    return ValueLoss(name, quantile)


def parse_target_reading(state: Mapping[str, Any]) -> NumberReading | None:
    """Return how target texts are read as numbers; None: they are plain numbers."""
    plain = state.get("target_reading")
    if plain is None:
        return None
    reading = reading_from_plain(parse_mapping(plain, "no reading"))
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
    """Return a text of the state; empty if an earlier version wrote none."""
    value = state.get(key, "")
    check_content(isinstance(value, str), f"{key} is no text", value)
    return str(value)


def parse_mapping(plain: object, what: str) -> Mapping[str, Any]:
    """Return a mapping by names; else raise ValueError with `what`."""
    check_content(
        isinstance(plain, Mapping) and all(isinstance(n, str) for n in plain), what, plain
    )
    return cast(Mapping[str, Any], plain)


def parse_list(plain: object, what: str, is_item: Callable[[Any], bool]) -> list[Any]:
    """Return a list or tuple whose items pass `is_item`; else raise ValueError with `what`."""
    check_content(isinstance(plain, list | tuple) and all(map(is_item, plain)), what, plain)
    return list(cast(Sequence[Any], plain))


def parse_metrics(plain: object) -> dict[str, float]:
    """Return metrics by name. Raises ValueError for anything but names and numbers."""
    metrics = parse_mapping(plain, "no metrics")
    for name, value in metrics.items():
        check_content(type(value) in (int, float), f"the metric {name[:50]!r}", value)
    return {name: float(value) for name, value in metrics.items()}


def parse_params(plain: object) -> dict[str, ParamValue]:
    """Return params of a trial, or arguments of a network: names and single values."""
    params = parse_mapping(plain, "no params")
    for name, value in params.items():
        check_content(value is None or _is_label(value), f"the param {name[:50]!r}", value)
    return dict(params)


def parse_classes(state: Mapping[str, Any], task: Task, n_outputs: int) -> tuple[ParamValue, ...]:
    """Return the class labels; none for regression."""
    plain = parse_list(state["classes"], "no labels", _is_label)
    n_expected = 0 if task is Task.regression else n_outputs
    check_content(len(plain) == n_expected, f"not {n_expected} labels", plain)
    check_content(task is not Task.regression or n_outputs == 1, "not one output", n_outputs)
    longest = max((len(label) for label in plain if isinstance(label, str)), default=0)
    check_content(4 * longest * len(plain) <= MAX_LABEL_BYTES, "labels too long", plain)
    return tuple(plain)


def parse_refitted(content: Mapping[str, Any]) -> RefitFacts | None:
    """Return the facts of a `refit.pt`; None: a trial or an earlier version wrote the file."""
    plain = content.get(REFITTED_KEY)
    if plain is None:
        return None
    plain = parse_mapping(plain, "no refit")
    members = parse_list(plain.get("members", []), "no trials", _is_trial)
    rows, data = parse_text(plain, "rows"), parse_text(plain, "data")
    found = RefitFacts(plain["trial"], rows, plain["n_seeds"], data, tuple(members))
    check_content(_is_trial(found.trial), "no trial", found.trial)
    check_content(found.rows in REFIT_ROWS and is_positive_size(found.n_seeds), "no refit", plain)
    return found


def _is_trial(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_label(value: object) -> bool:
    return type(value) in (str, int, float, bool)


def parse_shares(plain: object, n: int) -> list[float] | None:
    """Return `n` weights, checked to be above 0 and to sum to 1; None if there are none."""
    if plain is None:
        return None
    shares = parse_list(plain, "no weights of models", lambda x: type(x) is float and 0 < x <= 1)
    check_content(len(shares) == n, f"not {n} weights", plain)
    sums_to_1 = math.isclose(math.fsum(shares), 1, rel_tol=1e-6)
    check_content(sums_to_1, "weights that do not sum to 1", plain)
    return shares


def parse_sizes(plain: object, n: int) -> list[int] | None:
    """Return group sizes, whole numbers from 1 that sum to `n`; None if there are none."""
    if plain is None:
        return None
    sizes = parse_list(plain, "no numbers", is_positive_size)
    check_content(sum(sizes) == n, f"not {n} models", plain)
    return sizes


def check_unpacked_size(members: Sequence[Mapping[str, Any]], file_bytes: int) -> None:
    """Raise ValueError if models that may share arrays would be larger than the file when apart."""
    size_bytes = sum(map(_tensor_bytes, members))
    check_content(
        size_bytes <= file_bytes, f"models larger than the file ({file_bytes} bytes)", size_bytes
    )


def _tensor_bytes(plain: object) -> int:
    size_bytes = getattr(plain, "nbytes", None)  # tensors and arrays have it
    if isinstance(size_bytes, int):
        return size_bytes
    if isinstance(plain, Mapping):
        return sum(map(_tensor_bytes, plain.values()))
    return sum(map(_tensor_bytes, plain)) if isinstance(plain, list | tuple) else 0


def tensors_to_arrays(plain: Any) -> Any:
    """Return a state with arrays in place of the tensors that torch has read, for a model without
    torch in one file with networks. Raises TypeError for anything but dense tensors in memory."""
    if type(plain).__module__ == "torch" and hasattr(plain, "numpy"):
        return plain.numpy()
    if isinstance(plain, Mapping):
        return {name: tensors_to_arrays(value) for name, value in plain.items()}
    return plain


def is_positive_size(value: object) -> bool:
    """Return whether a value can be a number of rows, columns or units."""
    return type(value) is int and value >= 1


def short_error_text(error: BaseException) -> str:
    """Return one printable line about an error, however long its text is."""
    text = " ".join(str(error)[:2000].split()) or type(error).__name__
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= 300 else f"{text[:299]}…"


_N_SHOWN_METRICS = 3
"""Number of metrics in the line that a model is shown as."""


class LoadedModel:
    """What `load` returns: a trained model, on the CPU until it is moved with `to`."""

    def __init__(self, content: Mapping[str, Any], path: Path, model: TrainedModel) -> None:
        state, self._model = content["state"], model
        self.task: Task = parse_task(state)
        self.params = parse_params(content["params"])
        """The hyperparameters that the model was trained with."""
        self.metrics = parse_metrics(content.get("metrics", {}))
        """Metrics of its trial's best report (`val_loss`); a mean of several models has none."""
        self.refitted = parse_refitted(content)
        """For a `refit.pt` the `trial` trained again, its `rows` and `n_seeds`; else None."""
        self.path = path
        """The file that the model was loaded from."""
        self.data_digest = parse_text(state, "data")
        """Digest of the data and split of the training, in hex; empty: unknown."""
        self.value_loss = parse_loss(state)
        """The training loss, if the model predicts numbers."""

    @property
    def model(self) -> Any:
        """The `torch.nn.Module`, which takes the encoded columns; a list of modules for the mean of
        several models; None for a model that is no network."""
        return self._model.module

    def to(self, device: str) -> Self:
        """Move the model to a device, named as in torch (`cuda:0`), and return it."""
        self._model.to(device)
        return self

    def __repr__(self) -> str:
        kind = "model" if self.refitted is None else "refitted model"
        of_study = f" of study {self.study}" if self.study else ""
        known = [name for name in self.metrics if name.startswith("val_")][:_N_SHOWN_METRICS]
        scores = "".join(f"; {name} {self.metrics[name]:.4g}" for name in known)
        return f"<{kind}{of_study}: {self._what}, {self.task.value}{scores}>"

    @property
    def _what(self) -> str:
        """What the model is, in a few words."""
        return "network"

    @property
    def study(self) -> str | None:
        """Name of the study whose folder contains the model file; None: no study does."""
        return study_around(self.path)


@dataclass(frozen=True)
class EnsembleFileJob:
    """Describes an `ensemble.pt` to write, and the models to choose from. Picklable."""

    path: str
    """Path of the file to write."""
    models: Mapping[int, str]
    """The `best.pt` of each trial, the best first."""
    dataset: Dataset
    study: str
    build: str | None = None
    """Target (`module:function`) that builds a network of the user; None: there is none."""
    importance_seconds: float | None = None
    """Longest time to find out which columns matter; None: nothing is found out or drawn."""
    plots: str | None = None
    """Folder for pictures of the findings; None: none are drawn."""
    metric: str = "val_loss"
    """The study's metric, by which the ensemble is chosen."""
    max_leaves: int = 2_400_000
    """Number of leaves above which forests lose trees, if the loss allows it; 50 MB as ONNX."""


@dataclass(frozen=True)
class EnsembleFileResult:
    """Describes the ensemble that was written."""

    members: Mapping[int, float]
    """Weights of the members by trial, the heaviest first."""
    scores: Mapping[str, float]
    """Metrics of the ensemble on the rows by which its members were chosen."""
    best_trial_scores: Mapping[int, Mapping[str, float]]
    """Metrics of the best trial by itself on the same rows, by trial."""
    rows_per_second: Mapping[int, float]
    """How many rows each model that could be chosen predicts per second, by trial."""
    intervals: Mapping[str, Mapping[str, ScoreInterval]]
    """The main metrics of the ensemble and the best models with their intervals, by name."""
    findings: EnsembleFindings | None = None
    """What the ensemble goes by; None: nobody asked, or it could not be found out."""
    not_drawn: str = ""
    """Findings that were asked for and not made or drawn, with the reason; empty: all were."""
    note: str = ""
    """What was done so that the file stays small; empty: nothing."""


@dataclass(frozen=True)
class EnsembleWorkerSetup:
    """Starts the process that previews an ensemble during a sweep, and writes it at the end."""

    dataset: Dataset
    build: str | None = None
    """Target (`module:function`) that builds a network of the user; None: there is none."""
    metric: str = "val_loss"
    """The study's metric, by which the ensemble is chosen."""


@dataclass(frozen=True)
class EnsembleQuery:
    """Asks how good an ensemble of these models is."""

    models: Mapping[int, str]
    """The `best.pt` of each trial, the best first."""


@dataclass(frozen=True)
class EnsembleQueryResult:
    """Answers an `EnsembleQuery` with the members that were chosen."""

    members: Mapping[int, float]
    """Weights of the members by trial, the heaviest first; empty if no model gives numbers."""
    scores: Mapping[str, float]
    """Metrics of the ensemble on the rows by which its members were chosen."""
    seconds: float
    """Time that the choice of the members took."""
