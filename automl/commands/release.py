"""`release`: the winner evaluated, trained again, evaluated, exported and registered in one go.

The winner is what `refit` trains again: the best trial, or the ensemble. Each step is the command
of its name. What is done is kept in `release.json`, so that the same command goes on after whatever
ended it; a refit that is worse than what it repeats stops it before anything is exported.
"""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from pathlib import Path

from automl.commands import refit
from automl.commands.evaluation.keep import deliver
from automl.commands.evaluation.rows import KnownRowsError
from automl.commands.evaluation.scoring import JudgedOnce
from automl.commands.registration.judged import metric_of, shown
from automl.commands.registration.package import (
    folder_of,
    found,
    packaged,
    refuse_unserved,
    sha256,
)
from automl.commands.releasing.again import same_again
from automl.commands.releasing.gate import GateError, pass_gate, pass_unseen
from automl.commands.releasing.ledger import Ledger, Made, key_of
from automl.commands.releasing.steps import COLUMNS, Row, Step, carry_out
from automl.commands.which_model import best_file, choose, open_model, trial_of
from automl.config import Config, WhichModel
from automl.errors import AutoMLError, ConfigError
from automl.record.directory import command_line
from automl.record.files import REFIT, StudyFiles
from automl.record.place import settle_unlocked
from automl.record.studies import read_study, study_path
from automl.running.console import open_console
from automl.running.refit.begin import ensemble_of
from automl.tracking.say import say_on_stdout
from automl.trial import ENSEMBLE_NAME, Evaluated, refit_name, trial_name


class _EndedError(Exception):
    """Raised when a sweep has ended with an exit code that says that all is not done."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def run(config: Config, stored_config: str) -> int:
    """Do the steps that are not done, and show all. Raises AutoMLError, after which the same
    command goes on."""
    _refuse_other_models(config)
    refuse_unserved(config)
    release = _Release(config, stored_config)
    rows: list[Row] = []
    begun, code = time.monotonic(), 0
    try:
        carry_out(release.steps(), release.ledger, say_on_stdout, rows.append)
    except _EndedError as ended:
        code = ended.code
    except GateError:
        release.give_to_mlflow()
        raise
    finally:
        total = time.monotonic() - begun
        open_console().table(COLUMNS, [*rows, ("", "this time", f"{total:.1f}")], n_left=2)
        if len(rows) < len(release.steps()):
            say_on_stdout(f"go on with: {same_again(config)}")
    return code


class _Release:
    """The steps for one winner."""

    def __init__(self, config: Config, stored_config: str) -> None:
        self._stored = stored_config
        self._path = study_path(config.study)
        files = StudyFiles(self._path)
        self.ledger = Ledger(files.release)
        record = read_study(self._path)
        best = trial_of(record, config.study, "refit.trial", config.refit.trial)
        joins = ensemble_of(record, config, self._path) is not None
        self._trial = None if joins else best.number
        """None: the ensemble is the winner."""
        self._own = files.ensemble if joins else best_file(self._path, best)
        self._name = ENSEMBLE_NAME if joins else trial_name(best.number)
        self._refit = files.refit
        self._config = replace(config, refit=replace(config.refit, trial=self._trial))
        self._judge = JudgedOnce()
        self._tables = [
            sha256(Path(path).expanduser())
            for path in (config.data.path, config.data.test_path)
            if path is not None and Path(path).expanduser().is_file()
        ]

    def steps(self) -> list[Step]:
        return [
            Step("evaluate", self._key_of_winner, self._is_scored, self._evaluate_winner),
            Step("refit", self._key_of_refit, self._is_refitted, self._train_again),
            Step("evaluate the refit", self._key_of_both, self._is_scored, self._evaluate_refit),
            Step("export", self._key_of_export, self._is_exported, self._export),
            Step("register", lambda: sha256(self._refit), lambda made: False, self._register),
        ]

    # --- evaluate ---

    def _key_of_winner(self) -> str:
        return key_of(trial=self._trial, best=sha256(self._own), tables=self._tables)

    def _key_of_both(self) -> str:
        return key_of(trial=self._key_of_winner(), refit=sha256(self._refit))

    def _is_scored(self, made: Made) -> bool:
        return any(_scores(event) == made for event in read_study(self._path).evaluations)

    def _evaluate_winner(self) -> tuple[str, Made]:
        event = self._evaluate(WhichModel.ensemble if self._trial is None else WhichModel.trial)
        metric = metric_of(self._config.study.metric, event.scores[self._name])
        score = shown(event.scores[self._name][metric])
        return f"{self._name}: {metric} {score} on {event.rows}", _scores(event)

    def _evaluate_refit(self) -> tuple[str, Made]:
        try:
            event = self._evaluate(WhichModel.refit)
        except KnownRowsError:
            event, metric = self._own_scores(), self._config.study.metric
            return pass_unseen(event, metric, say_on_stdout), _scores(event)
        named = "model=ensemble" if self._trial is None else f"trial={self._trial}"
        instead = f"{command_line('register', self._config.study)} register.{named}"
        return pass_gate(event, self._config.study.metric, instead), _scores(event)

    def _own_scores(self) -> Evaluated:
        """Of what is trained again, which the first step has."""
        done = self.ledger.find("evaluate", self._key_of_winner())
        assert done is not None, "the first step comes first"
        events = reversed(read_study(self._path).evaluations)
        return next(event for event in events if _scores(event) == done.made)

    def _evaluate(self, which: WhichModel) -> Evaluated:
        from automl.commands.evaluate import evaluate

        trials = [] if self._trial is None else [self._trial]
        asked = replace(self._config.evaluate, trials=trials, model=which)
        config = replace(self._config, evaluate=asked)
        return evaluate(config, say_on_stdout, show=False, to_mlflow=False, judge=self._judge)

    def give_to_mlflow(self) -> None:
        """The scores of a release that ends before `register`, which else does it."""
        place = settle_unlocked(self._path, self._config.study)
        try:
            deliver(self._path, self._config, place, lambda line: None)
        except AutoMLError as error:
            say_on_stdout(str(error))

    # --- refit ---

    def _key_of_refit(self) -> str:
        settings = {key: str(value) for key, value in asdict(self._config.refit).items()}
        return key_of(trial=self._key_of_winner(), settings=settings)

    def _is_refitted(self, made: Made) -> bool:
        return self._refit.exists() and sha256(self._refit) == made.get(REFIT)

    def _train_again(self) -> tuple[str, Made]:
        code = refit.run(self._config, self._stored)
        if code:
            raise _EndedError(code)
        settings = self._config.refit
        seeds = f", the mean of {settings.n_seeds} seeds" if settings.n_seeds > 1 else ""
        said = f"{self._name} again on {settings.rows}{seeds}: {REFIT}"
        return said, {REFIT: sha256(self._refit)}

    # --- export, register ---

    def _key_of_export(self) -> str:
        return key_of(refit=sha256(self._refit), folder=self._export_folder.absolute())

    @property
    def _export_folder(self) -> Path:
        return folder_of(self._config, refit_name(self._trial))

    def _is_exported(self, made: Made) -> bool:
        there = found(self._export_folder, self._refit)  # not what a copied ledger names
        return there is not None and there.digest == made.get("digest")

    def _export(self) -> tuple[str, Made]:
        choice = choose(self._meaning_refit(), "register")
        package = packaged(self._config, open_model(self._config, choice), choice)
        said = f"{package.folder}, which says what the model says"
        return said, {"digest": package.digest}

    def _register(self) -> tuple[str, Made]:
        from automl.commands.register import register

        done = register(self._meaning_refit(), say_on_stdout)
        said = f"version {done.version} of {done.name}, {done.standing.alias}"
        return said, {"name": done.name, "version": str(done.version), "digest": done.digest}

    def _meaning_refit(self) -> Config:
        asked = replace(self._config.register, model=WhichModel.refit)
        return replace(self._config, register=asked)


def _scores(event: Evaluated) -> Made:
    """Which scores they are: of the same rows, of the same models."""
    return {"rows": event.digest, "models": ", ".join(event.models)}


def _refuse_other_models(config: Config) -> None:
    """Raises ConfigError where a setting means another model than the refit, which is registered,
    or what it repeats."""
    for command in ("evaluate", "export", "register"):
        part = getattr(config, command)
        named = part.trials if command == "evaluate" else part.trial
        key = f"{command}.trials" if command == "evaluate" else f"{command}.trial"
        if part.model is not WhichModel.auto or named not in (None, []):
            shown_key = key if named not in (None, []) else f"{command}.model"
            raise ConfigError(
                f"{shown_key}: release evaluates a trial, or the ensemble, and its refit, and "
                f"exports and registers the refit: leave {shown_key} out, and name the trial by "
                "refit.trial=N."
            )
