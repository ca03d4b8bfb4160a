"""`automl.fit`: from a table to the best model of any family, called from Python."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from automl.api.python_values import lines_of, lines_of_settings, refuse_unknown
from automl.api.study_handle import StudyHandle, compose_for_call, composing
from automl.api.sweep_call import carry_out_composed, is_there
from automl.cli.compose import folder_of_studies
from automl.cli.space_overrides import override_text
from automl.errors import ConfigError
from automl.record.disk import open_replacing
from automl.record.studies import model_files, read_study
from automl.record.study_directory import make_name
from automl.record.study_files import StudyFiles
from automl.trial import trial_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from automl.data.scoring.evaluation import EvaluationRows
    from automl.data.tables.frames import Frame
    from automl.models.predictor import Predictor

OWN_ROWS = 2_000
"""Of a study that are asked what columns matter: the loss on so many is good to a few hundredths,
and on more an ensemble takes minutes."""


def fit(
    table: Frame | str | PathLike[str],
    target: str,
    *,
    timeout_seconds: float | None = None,
    n_trials: int | None = None,
    metric: str | None = None,
    name: str | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    **unknown: object,
) -> FittedStudy:
    """The best model for the column `target` of a table, of any family, in the time given.

    `table` is the path of a CSV or Parquet file, or a pandas DataFrame, which is written into the
    study. With the `name` of a study that is there it goes on. As many trials as `n_trials` says
    (20), or as there is time for. All rows train and judge: a trial trains folds, and its value is
    out-of-fold; above 20,000 rows it is judged by a tenth of them. `metric` names what is
    optimised, such as "val_auc" or "val_r2" (val_loss). All other settings are `overrides`, as on
    the command line, `["model.families=[trees]"]`, or as a dict, `{"model.families": ["trees"]}`.

    Raises AutoMLError, as `automl.sweep` does.
    """
    called_seconds = time.monotonic()
    refuse_unknown(fit, unknown)
    called, typed = name or make_name(), lines_of(overrides)
    with composing:
        folder = folder_of_studies(typed) / called
    with _nothing_left(folder):
        path = _path_of(table, folder)
        with _called_a_frame(None if isinstance(table, str | PathLike) else path):
            with composing:
                exists = name is not None and is_there(name, typed)
                lines = [f"study.name={override_text(called)}", *_limits(n_trials, timeout_seconds)]
                lines += lines_of_settings({"metric": metric})
                lines += [f"data.path={override_text(str(path))}"]
                lines += [f"data.target={override_text(target)}"]  # the study's own, or refused
                if not exists:
                    lines.append("data=csv")
                made = compose_for_call("resume" if exists else "sweep", [*lines, *typed])
            study = carry_out_composed(made, resume=exists, called_seconds=called_seconds)
            return FittedStudy(study.path)


def _limits(n_trials: int | None, timeout_seconds: float | None) -> Iterator[str]:
    if n_trials is not None or timeout_seconds is not None:
        yield f"study.n_trials={override_text(n_trials)}"
    if timeout_seconds is not None:
        yield f"study.timeout_seconds={timeout_seconds}"


@contextlib.contextmanager
def _nothing_left(folder: Path) -> Iterator[None]:
    """A study's folder that is made within goes again where no study came to be in it."""
    before = folder.exists()
    try:
        yield
    except BaseException:
        if not before and not StudyFiles(folder).config.exists():
            for table in folder.glob("table-*.parquet"):  # no more: another call may begin there
                table.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


@contextlib.contextmanager
def _called_a_frame(path: Path | None) -> Iterator[None]:
    """Within: a refusal of the table at `path` speaks of the frame that was written there, and may
    be gone. None: the caller named a file."""
    try:
        yield
    except ConfigError as error:
        if path is None:
            raise
        said = re.sub(rf"(data\.path=)?{re.escape(str(path))}", "the frame", str(error))
        raise ConfigError(said.replace("data.target=", "target=")) from error


def _path_of(table: Any, folder: Path) -> Path:
    if isinstance(table, str | PathLike):
        return Path(table)
    from automl.data.tables.frames import write_frame

    return write_frame(table, folder)


class FittedStudy(StudyHandle):
    """A study of a table, with its best model: the refit on all rows, the ensemble, or the best
    trial's."""

    @cached_property
    def model(self) -> Predictor:
        """See `automl.load`."""
        from automl.models.predictor import load_table_model

        return load_table_model(self._file)

    @property
    def _file(self) -> Path:
        files = model_files(self.path)
        return files[0] if files else self.best.checkpoint_file()

    def predict(self, frame: Frame) -> Any:
        """(N,) labels, or values in the target's unit."""
        return self.model.predict(frame)

    def predict_probabilities(self, frame: Frame) -> Any:
        """(N, C) probabilities, columns as in `model.classes`. Raises AutoMLError for numbers."""
        return self.model.predict_probabilities(frame)

    def explain(self, frame: Frame | None = None, y: Any = None) -> Frame:
        """How much each column matters: see `automl.load`.

        Without a `frame` on up to 2,000 of the study's own rows: of its test part, where it keeps
        one, else of those that judged its trials. What a model has trained on, as a refit and the
        models of other folds have, lets columns seem to matter that it only learned by heart.
        """
        if frame is not None:
            return self.model.explain(frame, y)
        if y is not None:
            raise ConfigError(
                "explain(y=…): targets without their rows. Give both, explain(frame, y), or "
                "neither, for the study's own rows."
            )
        return self.model.explain(*self._own_rows().sample(OWN_ROWS))

    def _own_rows(self) -> EvaluationRows:
        from automl.data.scoring.evaluation import open_evaluation

        lines = [f"study.name={override_text(self.name)}"]
        lines.append(f"study.dir={override_text(str(self.path.parent))}")
        data = compose_for_call("evaluate", lines).config.data
        return open_evaluation(data, read_study(self.path).settings.get("data.test_path"))

    def save(self, path: str | PathLike[str]) -> Path:
        """Copy the model to a file that `automl.load` reads; returns where it is."""
        with open_replacing(Path(path)) as file, self._file.open("rb") as own:
            shutil.copyfileobj(own, file)
        return Path(path)

    def leaderboard(self) -> Frame:
        """A pandas DataFrame of the trials that have a value, by number, the best first: `family`,
        `value` (of `study.metric`), `test` (loss on rows that no sweep saw, once `evaluate` has
        scored it), `seconds` from its start to its end, `rows_per_second` that it predicts (of
        those that the ensemble was chosen from) and `weight` in the ensemble."""
        from automl.data.tables.frames import frame_of

        record = read_study(self.path)
        made = record.ensemble
        unseen = [event for event in record.evaluations if event.kind.unseen]
        rows = [
            {
                "trial": trial.number,
                "family": trial.params.get("family"),
                "value": trial.value,
                "test": _loss(unseen, trial_name(trial.number)),
                "seconds": None if trial.ended is None else trial.ended - trial.started,
                "rows_per_second": made and made.rows_per_second.get(trial.number),
                "weight": made and made.members.get(trial.number, 0.0),
            }
            for trial in record.ranking()
        ]
        columns = ("trial", "family", "value", "test", "seconds", "rows_per_second", "weight")
        return frame_of(rows, columns, index="trial")


def _loss(evaluations: Sequence[Any], name: str) -> float | None:
    """On the rows that were used last."""
    found = [event.scores[name]["loss"].value for event in evaluations if name in event.scores]
    return found[-1] if found else None
