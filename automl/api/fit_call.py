"""`automl.fit`, called from Python: a table becomes a study, and the caller gets its best model.

Arguments become overrides here. Composing and running is the same as for `automl.sweep`
(`sweep_call.py`); training, ensembles and prediction are not done here.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from automl.api.pickled_function import function_name, part_settings
from automl.api.python_values import lines_of, lines_of_settings, take_former
from automl.api.study_handle import COMPOSE_LOCK, StudyHandle, compose_for_call
from automl.api.sweep_call import run_composed_sweep, study_exists
from automl.cli.base import find_studies_folder
from automl.config.metrics import JUDGED_PREFIX
from automl.config.study import metric_function_name
from automl.errors import ConfigError
from automl.record.output_file import open_output
from automl.record.studies import read_study
from automl.record.study_directory import make_study_name
from automl.record.study_files import StudyFiles
from automl.record.texts import Say, say_on_stdout
from automl.record.winner_file import winner_file
from automl.tracking.long_step import WORTH_SAYING_SECONDS, long_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from automl.data.scoring.evaluation import EvaluationRows
    from automl.data.tables.frames import Frame
    from automl.models.predictor import Predictor

OWN_ROWS = 2_000
"""Number of the study's own rows that `explain` uses without a `frame`. The loss on so many rows is
good to a few hundredths; on more rows an ensemble takes minutes."""
OWN_ROWS_NOTE = (
    "these rows trained or chose the model, so that columns may look more important than they are; "
    "explain(frame, y) takes others"
)


def fit(
    table: Frame | str | PathLike[str],
    target: str,
    *,
    timeout: float | str | None = None,
    n_trials: int | None = None,
    metric: str | Callable[[Any, Any], float] | None = None,
    direction: str | None = None,
    seed: int | None = None,
    epochs: int | None = None,
    sampler: str | None = None,
    pruner: str | None = None,
    name: str | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    verbose: bool = True,
    **others: object,
) -> FittedStudy:
    """Search the best model for the column `target` of a table, of any family, in the time given.

    `table` is the path of a CSV or Parquet file, or a pandas DataFrame, which is written into the
    study. With the `name` of an existing study the call resumes it. The number of trials is
    `n_trials` (20), or as many as there is time for: `timeout` is seconds, or a text such as
    "10min". All rows train and judge: a trial trains folds, and its value is out-of-fold. A table
    of more than 20,000 rows judges a trial by a tenth of them, at most 50,000. `metric` names the
    optimised value, such as "val_auc" or "val_r2" (val_loss), or is a function
    `my_cost(y_true, y_predicted)`, of which small values are good unless `direction="maximize"`;
    the arguments after it are those of `automl.sweep`.
    All other settings are `overrides`, as on the command line, `["model.families=[trees]"]`, or as
    a dict, `{"model.families": ["trees"]}`. With `verbose=False` nothing is printed.

    Raises AutoMLError, as `automl.sweep` does.
    """
    called_seconds = time.monotonic()
    arguments: dict[str, object] = {
        "timeout": timeout,
        "metric": metric,
        "direction": direction,
        "seed": seed,
        "epochs": epochs,
        "sampler": sampler,
        "pruner": pruner,
    }
    arguments = take_former(fit, arguments, others)
    study_name, typed_overrides = name or make_study_name(), lines_of(overrides)
    function = None
    if callable(metric):
        function, arguments["metric"] = metric, None
    with COMPOSE_LOCK:
        folder = find_studies_folder(typed_overrides) / study_name
    with _remove_unused_folder(folder):
        path = _path_of(table, folder)
        with _name_as_frame(None if isinstance(table, str | PathLike) else path):
            with COMPOSE_LOCK:
                exists = name is not None and study_exists(name, typed_overrides)
                # An existing study has its own target, and another is refused.
                settings = {"study.name": study_name, "data.path": path, "data.target": target}
                if n_trials is not None or arguments["timeout"] not in (None, "none"):
                    settings["study.n_trials"] = n_trials
                if not exists:
                    settings["data"] = "csv"
                settings |= {} if function is None else metric_settings(function)
                lines = [*lines_of(settings), *lines_of_settings(arguments), *typed_overrides]
                composed = compose_for_call("resume" if exists else "sweep", lines)
            study = run_composed_sweep(
                composed, function, resume=exists, called_seconds=called_seconds, verbose=verbose
            )
            return FittedStudy(study.path)


def metric_settings(function: Callable[[Any, Any], float]) -> dict[str, Any]:
    """Return the settings of a study whose metric is this function."""
    name = function_name(function)
    return {
        "study.metric": f"{JUDGED_PREFIX}{metric_function_name(name)}",
        "study.metric_function": name,
        "study.metric_parts": part_settings(function),
    }


@contextlib.contextmanager
def _remove_unused_folder(folder: Path) -> Iterator[None]:
    """Remove the study's folder again if the block created it and fails before a study is in it."""
    existed_before = folder.exists()
    try:
        yield
    except BaseException:
        if not existed_before and not StudyFiles(folder).config.exists():
            # Nothing else is removed: another call may be creating its study there.
            for table in folder.glob("table-*.parquet"):
                table.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


@contextlib.contextmanager
def _name_as_frame(path: Path | None) -> Iterator[None]:
    """Rename `path` to "the frame" in errors of the block: the frame was written to that file,
    which may be gone. With None, the caller named a file, and errors stay as they are."""
    try:
        yield
    except ConfigError as error:
        if path is None:
            raise
        message = re.sub(rf"(data\.path=)?{re.escape(str(path))}", "the frame", str(error))
        raise ConfigError(message.replace("data.target=", "target=")) from error


def _path_of(table: Any, folder: Path) -> Path:
    if isinstance(table, str | PathLike):
        return Path(table)
    from automl.data.tables.frames import write_frame

    return write_frame(table, folder)


def explain_aloud(
    model: Predictor, frame: Any, y: Any, *, timeout: float | None, verbose: bool
) -> Frame:
    """Return what `model.explain` does. A call that takes long says how far it is."""
    say: Say = say_on_stdout if verbose else str
    with long_step("shuffling columns", say, silent_seconds=WORTH_SAYING_SECONDS) as step:
        return model.explain(frame, y, timeout=timeout, on_progress=step.at)


class FittedStudy(StudyHandle):
    """A study of a table, with its best model: the refit on all rows, the ensemble, or the best
    trial's model. `automl.fit` returns it."""

    @cached_property
    def model(self) -> Predictor:
        """Load the best model, as `automl.load` does; the model is kept for later calls."""
        from automl.models.predictor import load_table_model

        return load_table_model(self._file)

    @property
    def _file(self) -> Path:
        return winner_file(self.path) or self.best.checkpoint_file()

    def predict(self, frame: Frame) -> Any:
        """Return (N,) labels, or values in the target's unit."""
        return self.model.predict(frame)

    def predict_probabilities(self, frame: Frame) -> Any:
        """Return (N, C) probabilities, columns as in `model.classes`. Raises AutoMLError for
        numbers."""
        return self.model.predict_probabilities(frame)

    predict_proba = predict_probabilities
    """The name of it in scikit-learn and AutoGluon."""

    def explain(
        self,
        frame: Frame | None = None,
        y: Any = None,
        *,
        timeout: float | None = 20.0,
        verbose: bool = True,
    ) -> Frame:
        """Return how much each column matters, as the model's own `explain` does (`automl.load`).

        It takes about `timeout` seconds at most; None takes all rows, five times. What takes more
        than some seconds says how far it is, except with `verbose=False`.

        Without a `frame`, up to 2,000 of the study's own rows are used: its test part if it keeps
        one, else the rows that judged its trials. A model that was trained on these rows, such as a
        refit or the model of another fold, makes columns look important that it only memorised, and
        a line says so.
        """
        if frame is None and y is not None:
            raise ConfigError(
                "explain(y=…): targets without their rows. Give both, explain(frame, y), or "
                "neither, for the study's own rows."
            )
        if frame is None:
            rows = self._own_rows()
            frame, y = rows.sample(OWN_ROWS)
            if verbose and (not rows.kind.unseen or StudyFiles(self.path).refit.exists()):
                say_on_stdout(OWN_ROWS_NOTE)
        return explain_aloud(self.model, frame, y, timeout=timeout, verbose=verbose)

    def _own_rows(self) -> EvaluationRows:
        from automl.data.scoring.evaluation import open_evaluation

        data = compose_for_call("evaluate", self._place_overrides()).config.data
        return open_evaluation(data, read_study(self.path).settings.get("data.test"))

    def score(self, frame: Frame, y: Any = None) -> dict[str, float]:
        """Return every metric of the task on these rows, as the model's own `score` does
        (`automl.load`)."""
        return self.model.score(frame, y)

    def save(self, path: str | PathLike[str]) -> Path:
        """Copy the model to a file that `automl.load` reads; returns where it is."""
        with open_output("path", path) as file, self._file.open("rb") as own:
            shutil.copyfileobj(own, file)
        return Path(path).expanduser()
