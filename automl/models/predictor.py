"""From `best.pt` to predictions: `automl.load("best.pt").predict(frame)`."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from automl.config import ExportFormat, StudyConfig, Task
from automl.data.columns import TableColumns
from automl.data.dataset import Label, TableRows, Targets
from automl.data.scoring.metrics import JudgedPredictions, labels_by, make_predictions
from automl.errors import AutoMLError
from automl.models import model_file
from automl.models.family import (
    Family,
    NetworkBuilder,
    TrainedModel,
    load_families,
    load_heavy_side,
)
from automl.models.mean_model import MeanModel, outputs_by_threads
from automl.models.model_file import ARRAY_MODEL_FORMAT, MODEL_FORMAT
from automl.objectives.checkpoints import plain_checkpoint
from automl.record.studies import model_files
from automl.record.study_files import BEST, LAST, StudyFiles, study_around

if TYPE_CHECKING:
    from automl.data.tables.frames import Frame
    from automl.models.array_predictor import ArrayPredictor

MEMBERS_KEY = "members"
"""What differs among several models that are one by their mean, in a `refit.pt`."""
MEMBER_WEIGHTS_KEY = "member_weights"
"""How much each of them counts, in an `ensemble.pt`; all alike where there are none."""
MEMBER_SIZES_KEY = "member_sizes"
"""How many of them are of one trial, its folds or seeds, one after another; else each is one."""
_FAMILIES_BEFORE = {"automl-mlp-1": "mlp", "automl-module-1": "python"}
"""Files written before they said their family, by their format."""


class Predictor:
    """A trained model with its table's preprocessing: raw rows in, labels or values out.

    It computes on the CPU until it is moved with `to`.
    """

    def __init__(
        self,
        content: Mapping[str, Any],
        path: Path,
        file_bytes: int,
        build: NetworkBuilder | None,
    ) -> None:
        """Of a file's `content`. Raises whatever one of unknown origin brings about; `file_bytes`
        is its size."""
        state = content["state"]
        self.task = model_file.parse_task(state)
        self._model = _model(state, file_bytes, build)
        self.export_formats = _formats(state)
        """What `export` can make of it."""
        self.classes = model_file.parse_classes(state, self.task, self._model.n_outputs)
        """The labels, in the order of `predict_probabilities`; empty for regression."""
        self.params = model_file.parse_params(content["params"])
        """The hyperparameters it was trained with."""
        self.metrics = model_file.parse_metrics(content.get("metrics", {}))
        """What its trial reported with it, its best report: `val_loss` and the like. A mean of
        several has none."""
        self.refitted = model_file.parse_refitted(content)
        """Of a `refit.pt` the `trial` that was trained again, its `rows`, `n_seeds`; else None."""
        self.path = path
        """The file that it was loaded from."""
        self.target = model_file.parse_text(state, "target")
        """Name of the column that it predicts; empty: not known."""
        self._target_reading = model_file.parse_target_reading(state)
        self.data_digest = model_file.parse_text(state, "data")
        """Of the table and split that it was trained on, in hex; empty: not known."""
        self._mean = model_file.parse_number(state, "target_mean")
        self._scale = model_file.parse_number(state, "target_scale")
        self.value_loss = model_file.parse_loss(state)
        """What its training descended, where it predicts numbers."""
        self.threshold = model_file.parse_threshold(state, self._model.n_outputs)
        """Of two classes, from which probability on a row is of the second (`study.metric=val_f1`);
        None: the likelier one is predicted."""
        # Here, because training processes import this module too, and need no pandas.
        from automl.data.preprocessing import Preprocessing

        self._preprocessing = Preprocessing.from_plain(state["preprocessing"])
        self._model.check_columns(self._preprocessing.columns)

    def predict(self, frame: Any) -> npt.NDArray[Any]:
        """(N,) labels, or values in the target's unit.

        `frame` is a pandas DataFrame with the columns of training (others are ignored), or an array
        (N, D) where the training data had no columns.
        """
        out = self.outputs(self.read(frame))
        if self.task is Task.regression:
            return np.asarray(out[:, 0] * self._scale + self._mean)
        said = out if self.threshold is None else _shares(out)
        return np.asarray(np.array(self.classes)[labels_by(said, self.threshold)])

    def predict_probabilities(self, frame: Any) -> npt.NDArray[np.float64]:
        """(N, C) probabilities, columns as in `classes`. Raises AutoMLError for regression."""
        if self.task is Task.regression:
            raise AutoMLError("A regression model has no classes: use predict(frame).")
        return _shares(self.outputs(self.read(frame)))

    @property
    def trained(self) -> TrainedModel:
        """The model without its table."""
        return self._model

    @property
    def unit(self) -> tuple[float, float]:
        """Mean and scale of the target in its own unit; 0 and 1 for classes."""
        return self._mean, self._scale

    def score(self, frame: Any, y: Any = None) -> dict[str, float]:
        """Every metric of the task, as `evaluate` has them (`config.metrics.METRICS`).

        The targets are `y` (N,), or the column of `frame` that was the target in training; rows
        without one are left out. Raises AutoMLError where there are none, or unknown classes.
        """
        rows, targets = self._labelled(frame, y)
        return self._predictions(rows, targets).scored()

    def explain(self, frame: Any, y: Any = None, *, n_repeats: int = 5, seed: int = 0) -> Frame:
        """How much each column matters: a DataFrame by `column` of `importance`, by how much the
        loss rises where the column's cells are shuffled among the rows, and `std` over the
        `n_repeats`; the most important first (Breiman 2001, permutation importance).

        `frame` and `y` as in `score`. Of two columns that tell the same, neither may seem to
        matter.
        """
        rows, targets = self._labelled(frame, y)

        def loss(some: TableRows) -> float:
            return self._predictions(some, targets).scored(["loss"])["loss"]

        from automl.data.scoring.model_findings import importances

        return importances(self.columns, rows, loss, n_repeats=n_repeats, seed=seed)

    @property
    def model(self) -> Any:
        """The `torch.nn.Module`, which takes the encoded columns; a list of them where the model is
        the mean of several; None where it is no network."""
        return self._model.module

    def to(self, device: str) -> Predictor:
        """Compute on this device from now on, as torch names it (`cuda:0`); returns itself."""
        self._model.to(device)
        return self

    @property
    def has_network(self) -> bool:
        """Whether it is a network, or has one among its members, which may compute on a GPU."""
        return any(model.module is not None for model in self._members)

    def copied_to(self, device: str) -> Predictor:
        """Another that computes on this device: whatever becomes of that, this one stays where it
        is. What is no network is shared."""
        found = copy.copy(self)
        shared = {id(model): model for model in self._members if model.module is None}
        found._model = copy.deepcopy(self._model, shared)
        return found.to(device)

    @property
    def _members(self) -> Sequence[TrainedModel]:
        """Itself, where it is no mean of several."""
        return self._model.members if isinstance(self._model, MeanModel) else (self._model,)

    @property
    def study(self) -> str | None:
        """Name of the study in whose folder its file lies; None: it lies elsewhere."""
        return study_around(self.path)

    @property
    def columns(self) -> TableColumns:
        """What it learned of each column that it takes."""
        return self._preprocessing.columns

    def read(self, frame: Any) -> TableRows:
        """Raw rows as `outputs` takes them. Raises ConfigError for columns that are not there."""
        return self._preprocessing.read(frame)

    def outputs(self, rows: TableRows) -> npt.NDArray[np.float64]:
        """(N, C) scores whose softmax are the classes' probabilities, or (N, 1) scaled targets."""
        return outputs_by_threads(self._model, self.columns, rows)

    def of_heaviest(self, n: int) -> Predictor:
        """The same by the `n` members of an ensemble that count most, by their weights among
        themselves: faster, and mostly less good; by all where there are no more. Raises AutoMLError
        where it is no mean of several."""
        if not isinstance(self._model, MeanModel):
            raise AutoMLError(f"{self.path}: it is one model, and has no members to choose from.")
        found = copy.copy(self)
        found._model = self._model.of_heaviest(n)
        found.metrics = {}  # nobody measured it
        return found

    def _labelled(self, frame: Any, y: Any) -> tuple[TableRows, Targets]:
        from automl.data.cells import are_verbatim
        from automl.data.target import TargetColumn, labelled_rows

        classes = cast("tuple[Label, ...]", self.classes)
        verbatim = are_verbatim(classes)
        target = TargetColumn(self.target, self.task, classes, "", self._target_reading, verbatim)
        frame, targets = labelled_rows(frame, y, target)
        return self.read(frame), targets

    def _predictions(self, rows: TableRows, y: Targets) -> JudgedPredictions:
        unit = self._mean, self._scale
        return make_predictions(
            self.task, self.outputs(rows), y, *unit, self.value_loss, self.threshold
        )


def _shares(outputs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    shares = np.exp(outputs - outputs.max(axis=1, keepdims=True, initial=-np.inf))
    probabilities: npt.NDArray[np.float64] = shares / shares.sum(axis=1, keepdims=True)
    return probabilities


def _model(state: Mapping[str, Any], file_bytes: int, build: NetworkBuilder | None) -> TrainedModel:
    """The model of a state, or the mean of its members."""
    if MEMBERS_KEY not in state:
        return load_heavy_side(_family(state)).read_model(state, file_bytes=file_bytes, build=build)
    members = state[MEMBERS_KEY]
    model_file.check_content(
        isinstance(members, list | tuple) and len(members) > 0, "no models", members
    )
    model_file.check_content(all(isinstance(one, Mapping) for one in members), "no models", members)
    model_file.check_unpacked_size(members, file_bytes)
    models = []
    shared = {name: value for name, value in state.items() if name != MEMBERS_KEY}
    for member in ({**shared, **one} for one in members):
        side = load_heavy_side(_family(member))
        models.append(side.read_model(member, file_bytes=file_bytes, build=build))
    weights = (
        model_file.parse_shares(state[MEMBER_WEIGHTS_KEY], len(models))
        if MEMBER_WEIGHTS_KEY in state
        else None
    )
    sizes = (
        model_file.parse_sizes(state[MEMBER_SIZES_KEY], len(models))
        if MEMBER_SIZES_KEY in state
        else None
    )
    return MeanModel(models, model_file.parse_task(state), weights, sizes)


def _formats(state: Mapping[str, Any]) -> tuple[ExportFormat, ...]:
    """Those that the families of all members have."""
    members = state.get(MEMBERS_KEY, [{}])
    each = [_family({**state, **one}).export_formats for one in members]
    return tuple(kind for kind in each[0] if all(kind in formats for formats in each))


def _family(state: Mapping[str, Any]) -> type[Family]:
    """The file names it, among those that there are: nothing is imported by its word."""
    name = _FAMILIES_BEFORE.get(state["format"]) or state["family"]
    known = load_families()
    what = f"of no family that this version of automl has ({', '.join(known)})"
    model_file.check_content(isinstance(name, str) and name in known, what, name)
    return known[name]


def load(
    path: str | PathLike[str], *, build: NetworkBuilder | None = None
) -> Predictor | ArrayPredictor:
    """The model in a `best.pt` of the built-in objective, or in a study's `refit.pt` or
    `ensemble.pt`, on the CPU; of data of your own (data=python) it takes arrays.

    `build` is for a network of your own: the function that `model.target` named. It is called with
    the arguments in the file. No code runs because the file names it, so a stranger's can be
    opened.

    Raises AutoMLError for a file that is missing, no checkpoint, or of an objective of your own,
    that contradicts itself, or needs `build`.
    """
    content = _content(path)
    state = content.get("state")
    if not isinstance(state, Mapping) or not is_model_state(state):
        raise AutoMLError(
            f"{path}: automl.load reads the {BEST} of the built-in objective, and this is not "
            f"one ({LAST} holds no model to predict with). For an objective of your own: "
            "torch.load(path, weights_only=True)['state']."
        )
    try:
        return _open(content, Path(path), build)
    except model_file.BuilderNeededError as needs:
        raise AutoMLError(_how_to_build(path, needs.target)) from None
    except Exception as error:  # whatever a file of unknown origin, or `build`, brings about
        raise AutoMLError(
            f"{path}: this is not a model that can be used ({type(error).__name__}: "
            f"{model_file.short_error_text(error)}). Name the {BEST} of a trial as automl wrote it"
            f"{', and the function that built its network' if build else ''}."
        ) from error


def load_table_model(
    path: str | PathLike[str], *, build: NetworkBuilder | None = None
) -> Predictor:
    """`load`, for whoever has rows of a table; raises AutoMLError for a model of others, too."""
    model = load(path, build=build)
    if not isinstance(model, Predictor):
        raise AutoMLError(
            f"{path}: this model takes arrays (data=python), and here it is given rows of a table: "
            "automl.load(path).predict(rows) asks it."
        )
    return model


def load_user_state(path: str | PathLike[str]) -> Any:
    """What an objective of the user's own gave for a `best.pt`; None: it is one that `load` reads.

    Raises AutoMLError as `load` does for a file that is missing or no checkpoint.
    """
    state = _content(path).get("state")
    return None if isinstance(state, Mapping) and is_model_state(state) else state


def _open(
    content: Mapping[str, Any], path: Path, build: NetworkBuilder | None
) -> Predictor | ArrayPredictor:
    state, file_bytes = content["state"], path.stat().st_size
    if plain_checkpoint.is_plain_checkpoint(path):  # its arrays are compressed
        file_bytes = plain_checkpoint.max_array_bytes(file_bytes)
    if state["format"] != ARRAY_MODEL_FORMAT:
        return Predictor(content, path, file_bytes, build)
    from automl.models.array_predictor import ArrayPredictor  # loads torch

    model = load_heavy_side(_family(state)).read_model(state, file_bytes=file_bytes, build=build)
    return ArrayPredictor(content, path, model)


def _content(path: str | PathLike[str]) -> dict[str, Any]:
    try:
        return read_checkpoint(Path(path))
    except FileNotFoundError as error:
        raise AutoMLError(_no_file(Path(path))) from error
    except ValueError as error:
        if Path(path).is_dir():
            raise AutoMLError(_no_file(Path(path))) from error
        raise AutoMLError(f"{error} Name the {BEST} of a trial.") from error


def _no_file(path: Path) -> str:
    """Return what is said of a path that is no file: of a study's, which file holds its model."""
    studies = (path, Path(StudyConfig.dir) / path)
    study = next((folder for folder in studies if StudyFiles(folder).config.is_file()), None)
    if study is None:
        return f"{path}: there is no such file. Name the {BEST} of a trial."
    files = model_files(study)
    meant = (
        f"load the file of its model: automl.load({str(files[0])!r})."
        if files
        else (f"none of its trials has left a {BEST} yet, which automl.load could read.")
    )
    return f"{path}: is a study, and no file; {meant}"


def read_checkpoint(path: Path) -> dict[str, Any]:
    """What a checkpoint file holds, of torch's or without. Raises FileNotFoundError, ValueError."""
    if plain_checkpoint.is_plain_checkpoint(path):
        return plain_checkpoint.load(path)
    from automl.objectives.checkpoints import torch_checkpoint  # loads torch

    return torch_checkpoint.load(path)


def is_model_state(state: Mapping[str, Any]) -> bool:
    """Whether `load` may read it: an estimator of ours gave it."""
    return state.get("format") in (MODEL_FORMAT, ARRAY_MODEL_FORMAT, *_FAMILIES_BEFORE)


def _how_to_build(path: str | PathLike[str], target: str) -> str:
    """The call that works; in place of what is no name of a function a word."""
    name = r"[A-Za-z_]\w{0,99}(\.[A-Za-z_]\w{0,99}){0,9}"
    if re.fullmatch(f"{name}:{name}", target, re.ASCII) is None:
        target = "module:function"
    module, _, function = target.partition(":")
    return (
        f"{path}: its network was built by {target}, and no code runs because a file names it. "
        f"If you trust that function, give it: import {module}; "
        f"automl.load({str(path)!r}, build={module}.{function})"
    )
