"""The handle of a study: what is known of it now, read from its directory at any time.

No lock is taken and nothing is kept: each question is answered from the event log as it stands, so
that a study can be watched while it runs, from this process or another. Only `evaluate`, `report`,
`ask` and `tell` write.
Command lines on behalf of Python callers, who may use several threads, are composed here, too.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from automl.api.python_values import lines_of, store_space, which_text
from automl.cli.arguments import make_command_line
from automl.cli.command_steps import compose_or_join
from automl.cli.compose import ComposedConfig
from automl.cli.optuna_begin import begin_with_optuna
from automl.config import StudyConfig, check_setting
from automl.config.command_arguments import (
    AskArguments,
    EvaluateArguments,
    TellArguments,
    TrialColumns,
)
from automl.config.which_models import parse_which
from automl.errors import AutoMLError
from automl.record.studies import is_at_work, read_study
from automl.record.study_files import BEST_CHECKPOINT_FILE, StudyFiles
from automl.record.winner_file import winner_file
from automl.trial import CheckpointKind, Params

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike

    from automl.data.tables.frames import Frame
    from automl.report_page.fragment import ReportPath, StudyPicture
    from automl.report_page.study_data import StudyData

COMPOSE_LOCK = threading.RLock()
"""Lock held while Hydra composes: Hydra has one state for a whole process."""


def compose_for_call(
    command: str, overrides: Sequence[str], application: object = None
) -> ComposedConfig:
    """Return what `python -m automl COMMAND OVERRIDES` would run; with `application`, by the
    settings that a Hydra application composed. Raises ConfigError."""
    _silence_tqdm()
    with COMPOSE_LOCK:
        line = begin_with_optuna(make_command_line(command, overrides))
        return compose_or_join(line, application)


def _silence_tqdm() -> None:
    """Ignore tqdm's advice to install ipywidgets, which it gives in a notebook when a library that
    imports it is loaded: no progress bar of tqdm is ever shown here."""
    warnings.filterwarnings("ignore", "IProgress not found", module=r"tqdm\.")


@dataclass(frozen=True)
class BestTrial:
    """The trial that ended with the best value."""

    number: int
    """Number of the trial in the study, from 0."""
    params: Params
    """The params that the sampler proposed for it."""
    value: float
    """The value of the study's metric."""
    path: Path | None
    """The trial's `best.pt`; None if the trial wrote no checkpoint."""

    def load(self, *, build: Callable[..., Any] | None = None) -> Any:
        """Return a `Predictor` for the built-in training (`automl.load` describes it, and `build`);
        for a function the state of its best report, tensors on the CPU.

        Raises AutoMLError where the trial wrote no checkpoint, or one that cannot be read.
        """
        return _load_model(self.checkpoint_file(), build)

    def checkpoint_file(self) -> Path:
        """Return `path`. Raises AutoMLError where the trial wrote no checkpoint."""
        if self.path is None:
            raise AutoMLError(
                f"trial {self.number} left no {BEST_CHECKPOINT_FILE}: give one with its reports, "
                "trial.report(step, metrics, checkpoint=lambda: {…})."
            )
        return self.path


def _load_model(file: Path, build: Callable[..., Any] | None) -> Any:
    """Return the model in a file of a study, or the state that a function gave."""
    from automl.models.predictor import load, load_user_state

    state = load_user_state(file)
    return load(file, build=build) if state is None else state


@dataclass(frozen=True)
class OutsideTrial:
    """A trial that `ask` has given out, for an experiment that no sweep runs."""

    number: int
    """Number of the trial, by which `tell` names it."""
    params: Params
    """The params to try."""
    lease_until: float
    """Time from which somebody else may get the trial, if nothing is told of it before (Unix
    seconds)."""


class StudyHandle:
    """A study as it is at each call; `automl.sweep` and `automl.open_study` return one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        """The study's directory, as an absolute path."""
        _silence_tqdm()
        read_study(path)  # or says which studies there are

    @property
    def name(self) -> str:
        """Return the study's name."""
        return self.path.name

    @property
    def best(self) -> BestTrial:
        """Return the best trial that has ended, pruned ones included. Raises AutoMLError where no
        trial has a value yet."""
        best = read_study(self.path).best()
        if best is None or best.value is None:
            raise AutoMLError(f"study {self.name}: no trial has ended with a value yet.")
        path = StudyFiles(self.path).checkpoint(best.number, CheckpointKind.BEST)
        existing_path = path if path.exists() else None
        return BestTrial(best.number, dict(best.params), best.value, existing_path)

    def load(
        self, which: str | int | None = None, *, build: Callable[..., Any] | None = None
    ) -> Any:
        """Return a model of the study: `"best"`, the number of a trial, `"refit"`, `"ensemble"`, or
        of several metrics one's name. None: the best, as `automl.load` of its folder has it: the
        refit, else the ensemble, else the best trial's. For a function it is the state of the
        trial's best report.

        Raises AutoMLError where there is none.
        """
        text = which_text(which)
        if text is None:
            return _load_model(winner_file(self.path) or self.best.checkpoint_file(), build)
        from automl.commands.models.which_model import find_model_file

        study = StudyConfig(name=self.name, dir=str(self.path.parent))
        return _load_model(find_model_file(study, parse_which(text)), build)

    def leaderboard(self) -> Frame:
        """Return a pandas DataFrame of the models, the refit and the ensemble first, then the
        trials that have a value, the best first, and the baseline at the end.

        Its index is `refit`, `ensemble`, the number of a trial, or the baseline's name. Its columns
        are `family`, `value` (of `study.metric`), the main metrics on the same rows (`loss`,
        `error`, `auc`, `rmse`, where they are known), `test` (`study.metric` on rows that no sweep
        saw, once `evaluate` has scored the model), `seconds` in which the trial ran,
        `rows_per_second` of prediction (only for models that the ensemble was chosen from),
        `size_bytes` of the file, and `weight` in the ensemble.
        """
        from automl.data.tables.trials_frame import leaderboard_frame

        return leaderboard_frame(self.path)

    def trials(self, columns: str = "automl") -> Frame:
        """Return a pandas DataFrame of all trials so far, by number: `state`, `value`,
        `params.NAME`, `tags.NAME`, `best_step`, `n_reports`, `started` and `ended` (UTC),
        `seconds` in which the trial ran, `device`, and `cause` if the trial did not finish.

        With `columns="optuna"` it is as Optuna's `trials_dataframe`: `number`, `value`,
        `datetime_start`, `params_NAME`, `user_attrs_NAME`, `state` and others.
        """
        from automl.data.tables.trials_frame import trials_frame

        is_known = columns in TrialColumns.__members__
        check_setting(is_known, "columns", columns, "must be automl or optuna.")
        frame = trials_frame(read_study(self.path), TrialColumns[columns])
        return frame.reset_index() if columns == TrialColumns.optuna.name else frame

    def evaluate(
        self,
        which: str | int | Sequence[int] | None = None,
        *,
        trials: Sequence[int] = (),
        test_path: str | PathLike[str] | None = None,
        overrides: Sequence[str] | Mapping[str, Any] = (),
    ) -> Frame:
        """Score models of the study on rows that no sweep saw: the study's own test part, or the
        table at `test_path`. Scores are kept as `python -m automl evaluate` keeps them.

        `which` names the models as on the command line: `[3, 7]`, `"refit,ensemble"`, `"best"`;
        None: the refit beside its trial where there is one, else the ensemble, else the best trial.
        `trials` is a former name for it.

        Returns a pandas DataFrame by `metric` and `model` (trials, then baselines): `score`, `low`
        and `high` of its 95 % interval; `difference` from the best trial, `difference_low`,
        `difference_high`, and its `verdict`; `rows` says which rows were scored. `overrides` are
        given as to `automl.sweep`. Raises AutoMLError.
        """
        from automl.commands.evaluate import evaluate_models, score_records
        from automl.data.tables.frames import frame_from_records

        text, settings = which_text(trials or which), {}
        if text is not None:
            settings["which"] = text
        if test_path is not None:
            settings["data.test"] = str(test_path)
        lines = [*self._place_overrides(), *lines_of(settings), *lines_of(overrides)]
        composed = compose_for_call("evaluate", lines)
        arguments = composed.typed_arguments(EvaluateArguments)
        event = evaluate_models(composed.config, arguments, lambda line: None, show=False)
        columns = ["metric", "model"]
        return frame_from_records(score_records(event), columns, index=columns)

    def report(self) -> ReportPath:
        """Write the study's page `report.html` and return its path, which a notebook shows as the
        page. Raises AutoMLError."""
        from automl.report_page.fragment import ReportPath
        from automl.running.features.report_page import make_report

        return ReportPath(make_report(self.path, is_running=is_at_work(self.path) is True))

    def ask(self, n: int = 1, *, lease_seconds: float | None = 86_400.0) -> list[OutsideTrial]:
        """Return `n` trials to try elsewhere, which the study counts as its own from now on; fewer
        if the study has fewer left.

        Whoever asks after `lease_seconds` without news of a trial gets it again (None: nobody
        does). A sweep may be at work on the study. Raises ConfigError where no trial is left.
        """
        from automl.commands.steering import ask_outside

        composed = self._composed("ask", {"n": n, "lease": lease_seconds})
        arguments = composed.typed_arguments(AskArguments)
        answer = ask_outside(composed.config, arguments, composed.stored_config)
        return [
            OutsideTrial(row["trial"], row["params"], row["lease_until"])
            for row in answer.values["trials"]
        ]

    def tell(
        self,
        trial: OutsideTrial | int,
        value: float | None = None,
        *,
        metrics: Mapping[str, float] | None = None,
        state: str | None = None,
        reason: str = "",
    ) -> str:
        """Record the result of a trial that `ask` has given out, and return the trial's state.

        `state` is finished, pruned, failed or interrupted (given to whoever asks next); None:
        finished. A finished trial without `value` has the best value that its steps were told to
        have. A value that is no number fails the trial. The same may be told again. Raises
        ConfigError for another result of a trial that has ended, and for a trial that nobody was
        given.
        """
        given = {"value": value, "metrics": metrics, "reason": reason}
        answer = self._tell(trial, {**given, "state": state or "finished"})
        return str(answer["state"])

    def tell_step(
        self,
        trial: OutsideTrial | int,
        step: int,
        value: float | None = None,
        *,
        metrics: Mapping[str, float] | None = None,
    ) -> bool:
        """Record the metric of one step of a trial that goes on, which renews its lease.

        Returns whether the trial should stop: the pruner, or somebody else, has ended it. Tell
        `state="pruned"` then. Raises ConfigError as `tell` does.
        """
        given = {"step": step, "value": value, "metrics": metrics}
        return bool(self._tell(trial, given)["prune"])

    def _tell(self, trial: OutsideTrial | int, given: Mapping[str, Any]) -> Mapping[str, Any]:
        from automl.commands.steering import tell_outside

        number = trial.number if isinstance(trial, OutsideTrial) else int(trial)
        composed = self._composed("tell", {"trial": number, **given})
        arguments = composed.typed_arguments(TellArguments)
        return tell_outside(composed.config, arguments, composed.stored_config).values

    def _composed(self, command: str, given: Mapping[str, Any]) -> ComposedConfig:
        return compose_for_call(command, [*self._place_overrides(), *lines_of(given)])

    def plot(self, name: str) -> StudyPicture:
        """Return a picture of the report, which a notebook shows as the value of a cell:
        `progress`, `importances`, `path`, `parallel`, `curves`, `timeline` or `front`.

        Raises ConfigError for another name.
        """
        from automl.report_page.fragment import study_picture

        return study_picture(self._report_data(), name)

    def _repr_html_(self) -> str:
        from automl.report_page.fragment import summary_fragment

        return summary_fragment(self._report_data())

    def _report_data(self) -> StudyData:
        from automl.running.features.report_page import read_report_data

        return read_report_data(self.path, is_running=is_at_work(self.path) is True)

    def _place_overrides(self) -> list[str]:
        """Return the overrides that name this study to a command."""
        return lines_of({"study.name": self.name, "study.dir": self.path.parent})

    def __repr__(self) -> str:
        from automl.terminal.rendering import best_text
        from automl.terminal.study_view import StudyStatus, look_at
        from automl.terminal.view import best_row

        status, record = look_at(self.path), read_study(self.path)
        counts = ", ".join(f"{n} {state.value}" for state, n in record.counts().items() if n)
        best, best_words = record.best(), ""
        if best is not None and best.value is not None:
            metric = record.metric.name
            best_words = f"; best {best_text(metric, best_row(best, metric))}"
        state, note = status, None
        if isinstance(status, StudyStatus):
            state, note = status.state, status.copy_note
        notes = f"; {note}" if note else ""
        return f"<study {self.name}, {state}: {counts or 'no trials'}{best_words}{notes}>"


def open_study(
    name: str,
    *,
    dir: str = StudyConfig.dir,  # noqa: A002 - as study.dir
    space: Mapping[str, Any] | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
) -> StudyHandle:
    """Return the handle of study `name` in the folder `dir`, also while a sweep works on it.

    With a `space` (as for `automl.sweep`), a study that does not exist is begun for experiments
    that no sweep runs, to `ask` and to `tell`; `overrides` are its other settings, such as
    `["study.metric=yield", "study.direction=maximize"]`. Raises ConfigError where there is no study
    and no space.
    """
    path = Path(dir).absolute() / name
    if space is not None and not path.exists():
        begin_study(name, dir, space, overrides)
    return StudyHandle(path)


def begin_study(
    name: str,
    folder: str,
    space: Mapping[str, Any],
    overrides: Sequence[str] | Mapping[str, Any],
) -> None:
    """Begin a study for experiments that no sweep runs. Raises ConfigError."""
    from automl.running.opening.outside_study import begin_here

    with COMPOSE_LOCK:
        lines = [*lines_of({"study.name": name, "study.dir": folder}), store_space(space)]
        composed = compose_for_call("ask", [*lines, *lines_of(overrides)])
    begin_here(composed.config, composed.stored_config)
