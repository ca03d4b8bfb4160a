"""Loads model files and predicts with them: `automl.load("best.pt").predict(frame)`.

It writes no files, and loads torch only for models that need it.
"""

from __future__ import annotations

import copy
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from automl.config import ExportFormat, StudyConfig, Task
from automl.data.columns import TableColumns
from automl.data.dataset import DatasetPart, Label, TableRows, Targets
from automl.data.scoring.metrics import JudgedPredictions, make_predictions, predict_labels
from automl.data.target_encoding import ENCODING_KEY, TargetEncoding
from automl.errors import AutoMLError
from automl.in_trial.checkpoints import plain_checkpoint
from automl.models import model_file
from automl.models.family import (
    Family,
    NetworkBuilder,
    TrainedModel,
    load_families,
    load_heavy_side,
)
from automl.models.mean_model import MeanModel, class_probabilities, outputs_by_threads
from automl.models.model_file import ARRAY_MODEL_FORMAT, MODEL_FORMAT, LoadedModel
from automl.record.study_files import BEST_CHECKPOINT_FILE, LAST_CHECKPOINT_FILE, StudyFiles
from automl.record.winner_file import winner_file

if TYPE_CHECKING:
    from automl.data.tables.frames import Frame
    from automl.data.unknown_cells import TableTally
    from automl.models.array_predictor import ArrayPredictor

MEMBERS_KEY = "members"
"""Key of what differs among several models whose mean is one model, as in a `refit.pt`."""
MEMBER_WEIGHTS_KEY = "member_weights"
"""Key of the members' weights, as in an `ensemble.pt`; without it, all are the same."""
MEMBER_SIZES_KEY = "member_sizes"
"""Key of how many consecutive members belong to one trial each; without it, one each."""
_FAMILY_BY_OLD_FORMAT = {"automl-mlp-1": "mlp", "automl-module-1": "python"}
"""Family of the files that do not name theirs, by their format: earlier versions wrote them."""


class Predictor(LoadedModel):
    """A trained model that predicts labels or values for raw rows of a table."""

    def __init__(
        self, content: Mapping[str, Any], path: Path, file_bytes: int, build: NetworkBuilder | None
    ) -> None:
        """Read the model file at `path`. A file of unknown origin may raise any exception."""
        state = content["state"]
        super().__init__(content, path, read_model(state, file_bytes, build))
        members = [{**state, **member} for member in state.get(MEMBERS_KEY, [{}])]
        self._families = Counter(str(_family_name(member)) for member in members)
        self.export_formats = _export_formats(state)
        """File formats that `export` can write of the model."""
        self.no_export_reason = _no_export_reason(state)
        """Why `export` writes none of some part of the model; empty if nothing is known."""
        self.classes = model_file.parse_classes(state, self.task, self._model.n_outputs)
        """The labels, in the order of `predict_probabilities`; empty for regression."""
        self.target = model_file.parse_text(state, "target")
        """Name of the column that the model predicts; empty: unknown."""
        self._target_reading = model_file.parse_target_reading(state)
        self._mean = model_file.parse_number(state, "target_mean")
        self._scale = model_file.parse_number(state, "target_scale")
        self.threshold = model_file.parse_threshold(state, self._model.n_outputs)
        """Probability from which on a row gets the second of two classes (`study.metric=val_f1`,
        `val_balanced_accuracy`), or one for each of more classes; None: the likeliest class is
        predicted."""
        # Imported here because training processes import this module too, and need no pandas.
        from automl.data.preprocessing import Preprocessing

        self._preprocessing = Preprocessing.from_plain(state["preprocessing"])
        self._model.check_columns(self._preprocessing.columns)
        has_means = all(isinstance(model, EncodedModel) for model in self._members)
        model_file.check_content(has_means or not self.columns.encoded, "no means", self.columns)

    @property
    def _what(self) -> str:
        families = self._families.most_common()
        if families == [(families[0][0], 1)]:
            return families[0][0]
        named = ", ".join(f"{n} {family}" for family, n in families)
        return f"mean of {self._families.total()} models ({named})"

    def predict(self, frame: Any) -> npt.NDArray[Any]:
        """Return labels (N,), or values (N,) in the target's unit.

        Warns once of cells that are no numbers or dates where training had them, which count as
        missing (`automl.UnreadableCellWarning`). `frame` is a pandas DataFrame with the columns of
        training (others are ignored), or an array (N, D) if the training data had no columns.
        """
        scores = self.scores(self.read(frame))
        if self.task is Task.regression:
            return scores
        return np.asarray(np.array(self.classes)[predict_labels(scores, self.threshold)])

    def predict_probabilities(self, frame: Any) -> npt.NDArray[np.float64]:
        """Return probabilities (N, C) as in `classes`. Raises AutoMLError for regression."""
        if self.task is Task.regression:
            raise AutoMLError("A regression model has no classes: use predict(frame).")
        return self.scores(self.read(frame))

    predict_proba = predict_probabilities
    """The name of it in scikit-learn and AutoGluon."""

    def scores(self, rows: TableRows) -> npt.NDArray[np.float64]:
        """Return probabilities (N, C) as in `classes`, or values (N,) in the target's unit."""
        out = self.outputs(rows)
        if self.task is Task.regression:
            return np.asarray(out[:, 0] * self._scale + self._mean)
        return class_probabilities(out)

    @property
    def trained_model(self) -> TrainedModel:
        """The model without the preprocessing of its table."""
        return self._model

    @property
    def unit(self) -> tuple[float, float]:
        """Mean and scale of the target in its own unit; 0 and 1 for classification."""
        return self._mean, self._scale

    def score(self, frame: Any, y: Any = None) -> dict[str, float]:
        """Return every metric of the task, the same as `evaluate` (`config.metrics.METRICS`).

        The targets are `y` (N,), or the column of `frame` that was the target in training. Rows
        without a target are left out. Raises AutoMLError without targets, or for unknown classes.
        """
        rows, targets = self._labelled(frame, y)
        return self._predictions(rows, targets).scored()

    def explain(
        self,
        frame: Any,
        y: Any = None,
        *,
        n_repeats: int = 5,
        seed: int = 0,
        timeout: float | None = 20.0,
        on_progress: Callable[[str], None] | None = None,
    ) -> Frame:
        """Return how much each column matters, the most important first (Breiman 2001, permutation
        importance).

        The DataFrame has, by `column`, the `importance`: by how much the loss rises if the
        column's cells are shuffled among the rows; and its `std` over the `n_repeats`. `frame` and
        `y` are as in `score`. If two columns hold the same information, neither may seem to
        matter.

        It takes about `timeout` seconds at most: with a slow model or many columns, a part of the
        rows is used (500 at least), and each column is shuffled less often (twice at least). None
        takes all. `on_progress` is called with texts such as `column 3 of 8, repeat 1`.
        """
        from automl.data.scoring.model_findings import (
            n_rows_in_time,
            permutation_importances,
            repeats_in_time,
        )

        rows, targets = self._labelled(frame, y)

        def loss(shuffled: TableRows) -> float:
            return self._predictions(shuffled, targets).scored(["loss"])["loss"]

        seconds = math.inf if timeout is None else timeout
        begun_seconds = time.monotonic()
        loss(rows)
        repeat_seconds = (time.monotonic() - begun_seconds) * len(self.columns.sources)
        n_rows = n_rows_in_time(len(rows), repeat_seconds, seconds)
        if n_rows < len(rows):
            places = np.sort(np.random.default_rng(seed).permutation(len(rows))[:n_rows])
            part = DatasetPart(rows, targets).take(places)
            rows, targets = part.rows, part.y
        return permutation_importances(
            self.columns,
            rows,
            loss,
            repeats=repeats_in_time(n_repeats, seconds),
            seed=seed,
            on_progress=on_progress or (lambda text: None),
        )

    def leaderboard(self) -> Frame:
        """Return the models of the study in whose folder the file lies, as `automl.open_study(NAME)
        .leaderboard()` does. Raises AutoMLError for a file elsewhere."""
        from automl.data.tables.trials_frame import leaderboard_frame

        file = self.path.resolve()
        folders = [parent for parent in file.parents if StudyFiles(parent).config.exists()]
        if not folders:
            raise AutoMLError(
                f"{self.path}: this file lies in no study, and tells of one model alone. The study "
                "has them all: automl.open_study(NAME).leaderboard()."
            )
        return leaderboard_frame(folders[0])

    @property
    def has_network(self) -> bool:
        """Whether the model is a network, or has one as a member; networks can compute on a GPU."""
        return any(model.module is not None for model in self._members)

    def copied_to(self, device: str) -> Predictor:
        """Return a copy that computes on a device; members that are no networks are shared."""
        copied = copy.copy(self)
        shared = {id(model): model for model in self._members if model.module is None}
        copied._model = copy.deepcopy(self._model, shared)
        return copied.to(device)

    @property
    def _members(self) -> Sequence[TrainedModel]:
        """The members of a mean; for a single model, the model itself."""
        return self._model.members if isinstance(self._model, MeanModel) else (self._model,)

    @property
    def columns(self) -> TableColumns:
        """What the preprocessing learned of each column that the model takes."""
        return self._preprocessing.columns

    def read(self, frame: Any) -> TableRows:
        """Encode raw rows for `outputs`. Raises ConfigError for missing columns, and for a column
        in which no cell is known."""
        return self._preprocessing.read(frame)

    def read_cells(self, frame: Any) -> tuple[TableRows, TableTally]:
        """Encode raw rows, and count the unknown cells of each column. Raises ConfigError for
        missing columns."""
        return self._preprocessing.read_cells(frame)

    def outputs(self, rows: TableRows) -> npt.NDArray[np.float64]:
        """Return scores (N, C), whose softmax are probabilities, or scaled targets (N, 1)."""
        return outputs_by_threads(self._model, self.columns, rows)

    def of_heaviest(self, n: int) -> Predictor:
        """Return an ensemble of this one's `n` members with the largest weights, or of all if there
        are fewer.

        It is faster, and mostly less good. Weights are scaled to sum to 1. Raises AutoMLError for
        a model that is no mean of several.
        """
        if not isinstance(self._model, MeanModel):
            raise AutoMLError(f"{self.path}: it is one model, and has no members to choose from.")
        smaller = copy.copy(self)
        smaller._model = self._model.of_heaviest(n)
        smaller.metrics = {}  # nobody measured it
        return smaller

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


class EncodedModel:
    """A `family.TrainedModel` whose target-encoded columns have its own means in place of
    levels."""

    def __init__(self, model: TrainedModel, encoding: TargetEncoding) -> None:
        self.model, self.encoding = model, encoding

    @property
    def n_outputs(self) -> int:
        return self.model.n_outputs

    @property
    def module(self) -> Any:
        return self.model.module

    def to(self, device: str) -> None:
        self.model.to(device)

    def check_columns(self, columns: TableColumns) -> None:
        self.encoding.check(columns)
        self.model.check_columns(columns)

    def outputs(self, columns: TableColumns, rows: TableRows) -> npt.NDArray[np.float64]:
        numbers = self.encoding.encode(columns, rows.numbers)
        return self.model.outputs(columns, replace(rows, numbers=numbers))


def _read_single(
    state: Mapping[str, Any], file_bytes: int, build: NetworkBuilder | None
) -> TrainedModel:
    side = load_heavy_side(family_class(state))
    model = side.read_model(state, file_bytes=file_bytes, build=build)
    if ENCODING_KEY not in state:
        return model
    return EncodedModel(model, TargetEncoding.from_plain(state[ENCODING_KEY]))


def read_model(
    state: Mapping[str, Any], file_bytes: int, build: NetworkBuilder | None
) -> TrainedModel:
    """Return the model of a state, or the mean of its members."""
    if MEMBERS_KEY not in state:
        return _read_single(state, file_bytes, build)
    members = model_file.parse_list(
        state[MEMBERS_KEY], "no models", lambda member: isinstance(member, Mapping)
    )
    model_file.check_content(len(members) > 0, "no models", members)
    model_file.check_unpacked_size(members, file_bytes)
    shared = {name: value for name, value in state.items() if name != MEMBERS_KEY}
    models = [_read_single({**shared, **own}, file_bytes, build) for own in members]
    weights = model_file.parse_shares(state.get(MEMBER_WEIGHTS_KEY), len(models))
    sizes = model_file.parse_sizes(state.get(MEMBER_SIZES_KEY), len(models))
    sharpness = model_file.parse_sharpness(state)
    return MeanModel(models, model_file.parse_task(state), weights, sizes, sharpness)


def _export_formats(state: Mapping[str, Any]) -> tuple[ExportFormat, ...]:
    """Return the export formats that the families of all members have."""
    members = state.get(MEMBERS_KEY, [{}])
    by_member = [family_class({**state, **member}).export_formats for member in members]
    return tuple(kind for kind in by_member[0] if all(kind in formats for formats in by_member))


def _no_export_reason(state: Mapping[str, Any]) -> str:
    """Return the reason of the first member that has one."""
    members = state.get(MEMBERS_KEY, [{}])
    reasons = [family_class({**state, **member}).no_export_reason for member in members]
    return next(filter(None, reasons), "")


def family_class(state: Mapping[str, Any]) -> type[Family]:
    """Return the known family that a file names; nothing is imported because a file names it."""
    name = _family_name(state)
    known = load_families()
    what = f"of no family that this version of automl has ({', '.join(known)})"
    model_file.check_content(isinstance(name, str) and name in known, what, name)
    return known[name]


def _family_name(state: Mapping[str, Any]) -> Any:
    """Return the family that a file names, which may be anything in a file of unknown origin."""
    return _FAMILY_BY_OLD_FORMAT.get(state["format"]) or state["family"]


def load(
    path: str | PathLike[str], *, build: NetworkBuilder | None = None
) -> Predictor | ArrayPredictor:
    """Load the best model of the study in the folder `path`, or the model in a file of one, on the
    CPU.

    The best model of a study is its `refit.pt`, else its `ensemble.pt`, else the `best.pt` of its
    best trial; its own `best.pt` is a link to that file. A model of data of your own (data=python)
    takes arrays.

    `build` is for a network of your own: the function that `model.target` named. It is called with
    the arguments in the file. No code runs because the file names it, so a stranger's file can be
    opened.

    Raises AutoMLError for a file that is missing, is no checkpoint, comes from an objective of your
    own, contradicts itself, or needs `build`, and for a study without a model.
    """
    file = _model_file(Path(path))
    content = _read_content(file)
    state = content.get("state")
    if not isinstance(state, Mapping) or not is_model_state(state):
        raise AutoMLError(
            f"{file}: automl.load reads the {BEST_CHECKPOINT_FILE} of the built-in objective, "
            f"and this is not "
            f"one ({LAST_CHECKPOINT_FILE} holds no model to predict with). For an objective of "
            f"your own: automl.open_study(NAME).load(), or "
            f"torch.load({str(file)!r}, weights_only=True)['state']."
        )
    try:
        return _make_predictor(content, file, build)
    except model_file.BuilderNeededError as needs:
        raise AutoMLError(_how_to_build(path, needs.target)) from None
    except model_file.WeightsError as error:
        raise AutoMLError(f"{path}: {error}") from None
    except Exception as error:  # a file of unknown origin, or `build`, may raise anything
        raise AutoMLError(
            f"{path}: this is not a model that can be used ({type(error).__name__}: "
            f"{model_file.short_error_text(error)}). Name the {BEST_CHECKPOINT_FILE} of a trial "
            f"as automl wrote it"
            f"{', and the function that built its network' if build else ''}."
        ) from error


def load_table_model(
    path: str | PathLike[str], *, build: NetworkBuilder | None = None
) -> Predictor:
    """Load a model of a table like `load`. Raises AutoMLError for a model of arrays, too."""
    model = load(path, build=build)
    if not isinstance(model, Predictor):
        raise AutoMLError(
            f"{path}: this model takes arrays (data=python), and here it is given rows of a table: "
            "automl.load(path).predict(rows) asks it."
        )
    return model


def load_user_state(path: str | PathLike[str]) -> Any:
    """Return the state that a user's objective gave; None for a model. Raises AutoMLError."""
    state = _read_content(path).get("state")
    return None if isinstance(state, Mapping) and is_model_state(state) else state


def _make_predictor(
    content: Mapping[str, Any], path: Path, build: NetworkBuilder | None
) -> Predictor | ArrayPredictor:
    state, file_bytes = content["state"], path.stat().st_size
    if plain_checkpoint.is_plain_checkpoint(path):  # its arrays are compressed
        file_bytes = plain_checkpoint.max_array_bytes(file_bytes)
    if state["format"] != ARRAY_MODEL_FORMAT:
        return Predictor(content, path, file_bytes, build)
    from automl.models.array_predictor import ArrayPredictor  # loads torch

    model = load_heavy_side(family_class(state)).read_model(
        state, file_bytes=file_bytes, build=build
    )
    return ArrayPredictor(content, path, model)


def _model_file(path: Path) -> Path:
    """Return the model's file; `path` may be a study's folder. Raises AutoMLError."""
    if not path.is_dir():
        return path
    if not StudyFiles(path).config.is_file():
        raise AutoMLError(f"{path}: is a folder, and no study. Name a study's folder, or a file.")
    file = winner_file(path)
    if file is None:
        raise AutoMLError(
            f"{path}: none of the study's trials has left a {BEST_CHECKPOINT_FILE} yet, which "
            "automl.load reads."
        )
    return file


def _read_content(path: str | PathLike[str]) -> dict[str, Any]:
    try:
        return read_checkpoint(Path(path))
    except FileNotFoundError as error:
        raise AutoMLError(_no_file_message(Path(path))) from error
    except ValueError as error:
        raise AutoMLError(f"{error} Name the {BEST_CHECKPOINT_FILE} of a trial.") from error


def _no_file_message(path: Path) -> str:
    """Return the message for a path that is no file; for a study's name, it names the folder."""
    folder = Path(StudyConfig.dir) / path
    if StudyFiles(folder).config.is_file():
        return (
            f"{path}: there is no such file. Load the study of that name by its folder: "
            f"automl.load({str(folder)!r})."
        )
    return f"{path}: there is no such file. Name a study's folder, or a {BEST_CHECKPOINT_FILE}."


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return the content of a checkpoint of either format. Raises FileNotFoundError, ValueError."""
    if plain_checkpoint.is_plain_checkpoint(path):
        return plain_checkpoint.load(path)
    from automl.in_trial.checkpoints import torch_checkpoint  # loads torch

    return torch_checkpoint.load(path)


def is_model_state(state: Mapping[str, Any]) -> bool:
    """Return whether `load` may read a state: a built-in estimator wrote it."""
    return state.get("format") in (MODEL_FORMAT, ARRAY_MODEL_FORMAT, *_FAMILY_BY_OLD_FORMAT)


def _how_to_build(path: str | PathLike[str], target: str) -> str:
    """Return a message with the call that works."""
    name = r"[A-Za-z_]\w{0,99}(\.[A-Za-z_]\w{0,99}){0,9}"
    if re.fullmatch(f"{name}:{name}", target, re.ASCII) is None:
        target = "module:function"
    module, _, function = target.partition(":")
    return (
        f"{path}: its network was built by {target}, and no code runs because a file names it. "
        f"If you trust that function, give it: import {module}; "
        f"automl.load({str(path)!r}, build={module}.{function})"
    )
