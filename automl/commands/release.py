"""`release`: the winner evaluated, trained again, evaluated, exported and registered in one go.

The winner is what `refit` trains again: the best trial, or the ensemble. Each step is the command
of its name. What is done is kept in `release.json`, so that the same command goes on after whatever
ended it; a refit that is worse than what it repeats stops it before anything is exported.

The command that goes on with a release. Pure.

What stops a release: a refit that is worse than the trial or ensemble that it repeats. Pure.

Which steps of a release are done: `release.json` in the study.

    {"refit": {"key": "3f…", "result": "…", "seconds": 12.3, "made": {"refit.pt": "9a…"}}, …}

A step counts as done while what decides it has the same digest, its key, and what it made is still
there as it was. The file is replaced whole after each step, so that who is killed has lost one step
at most, and each goes on where it was by itself.

One step after another, each done once.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from automl.commands import refit
from automl.commands.models.champion import judged_metric, shown_score
from automl.commands.models.evaluation_scores import JudgedRowsCache, KnownRowsError
from automl.commands.models.model_package import (
    find_package,
    make_package,
    package_folder,
    refuse_unserved,
    sha256,
)
from automl.commands.models.study_opening import deliver_evaluation
from automl.commands.models.which_model import best_file, choose_model, open_model, trial_of
from automl.config import Config, WhichModel
from automl.errors import AutoMLError, ConfigError
from automl.record.disk import write_durably
from automl.record.studies import read_study, study_path
from automl.record.study_directory import command_line
from automl.record.study_files import REFIT, StudyFiles
from automl.record.study_place import settle_place_unlocked
from automl.record.texts import say_on_stdout
from automl.running.display.console import open_console
from automl.running.refit.refit_settings import ensemble_to_refit
from automl.trial import ENSEMBLE_NAME, ModelsEvaluated, refit_name, trial_name


def release_command(config: Config) -> str:
    """What to type, with all settings of the steps that are not the default: other seeds or rows
    would be another refit, and another name another registered model."""
    words = [command_line("release", config.study)]
    for group in ("evaluate", "refit", "export", "register"):
        part = getattr(config, group)
        default = type(part)()
        for key, value in vars(part).items():
            if value != getattr(default, key):
                text = value.name if isinstance(value, Enum) else value
                words.append(shlex.quote(f"{group}.{key}={text}"))
    return " ".join(words)


BETTER = "better"


class GateError(AutoMLError):
    """Raised when a release is stopped by a result, and not by a failure."""


def pass_gate(event: ModelsEvaluated, study_metric: str, register: str) -> str:
    """What the rows say of the refit, the first model, beside what it repeats, the second: a trial,
    or the ensemble. Raises GateError where the refit is worse by more than chance; `register` is
    how what it repeats is registered itself."""
    refit, own = event.models[:2]
    what = "the ensemble" if own == ENSEMBLE_NAME else "the trial"
    metric = judged_metric(study_metric, event.scores[refit])
    found = event.differences[own][metric]
    said = (
        f"{metric} {shown_score(event.scores[refit][metric])}, {-found.value:+.4g} "
        f"({-found.high:+.4g} to {-found.low:+.4g}) from that of {own}"
    )
    if found.verdict != BETTER:
        return f"{refit}: {said}"
    raise GateError(
        f"the refit is worse than {what} by more than chance: {said}, on {event.rows}. Nothing "
        "was exported or registered. Several seeds do better (refit.n_seeds=8), or rows to stop by "
        f"(refit.hold_out=0.05); or register {what} itself: {register}"
    )


def pass_unseen(event: ModelsEvaluated, study_metric: str, say: Callable[[str], object]) -> str:
    """What is said where a refit has seen all rows that there are: the scores of what it repeats,
    the first model, on those that judged it, beside the baselines."""
    own = event.models[0]
    metric = judged_metric(study_metric, event.scores[own])
    beside = ", ".join(
        f"{name} is {found[metric].verdict}"
        for name, found in event.differences.items()
        if name not in event.models
    )
    say(
        f"the refit has seen all rows, and cannot be compared with {own}; beside "
        f"that, on {event.rows}, {beside}. Rows that came later compare them: data.test_path=FILE"
    )
    return f"not compared: {own}'s {metric} stands for it, {shown_score(event.scores[own][metric])}"


Made = Mapping[str, str]
"""What a step made, by name, as texts that tell whether it is still the same."""


@dataclass(frozen=True)
class StepDone:
    """A step that is done."""

    key: str
    result: str
    """For people."""
    seconds: float
    made: Made


class ReleaseLedger:
    """The file, for one release at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._steps = _read(path)

    def find(self, step: str, key: str) -> StepDone | None:
        """The step, if it was done with this key."""
        done = self._steps.get(step)
        return done if done is not None and done.key == key else None

    def keep(self, step: str, done: StepDone) -> None:
        """Write it down; on disk when this returns. Raises OSError."""
        self._steps[step] = done
        text = json.dumps({name: asdict(each) for name, each in self._steps.items()}, indent=1)
        write_durably(self._path, text + "\n")


def key_of(**decides: Any) -> str:
    """One digest of all that decides a step."""
    text = json.dumps(decides, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _read(path: Path) -> dict[str, StepDone]:
    """What cannot be read is not done."""
    try:
        steps = json.loads(path.read_bytes())
        return {
            str(name): StepDone(
                str(step["key"]),
                str(step["result"]),
                float(step["seconds"]),
                {str(k): str(v) for k, v in step["made"].items()},
            )
            for name, step in steps.items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


Row = tuple[str, str, str]
"""Step, result, seconds."""
COLUMNS = ("step", "result", "seconds")


@dataclass(frozen=True)
class ReleaseStep:
    """One of a release."""

    name: str
    """In the ledger and in the table."""
    key: Callable[[], str]
    """Digest of what decides it; asked for once the steps before it are done."""
    stands: Callable[[Made], bool]
    """Whether what it made is still there, as it was."""
    do: Callable[[], tuple[str, Made]]
    """The result, for people, and what was made. Raises AutoMLError."""


def carry_out_steps(
    steps: Sequence[ReleaseStep],
    ledger: ReleaseLedger,
    say: Callable[[str], object],
    ended: Callable[[Row], object],
) -> None:
    """Do what is not done; `ended` gets the row of each step as it ends. Raises what they raise."""
    for place, step in enumerate(steps, 1):
        key = step.key()
        done = ledger.find(step.name, key)
        if done is not None and step.stands(done.made):
            ended((step.name, f"{done.result} (done before)", f"{done.seconds:.1f}"))
            continue
        say(f"{place} of {len(steps)}: {step.name}")
        begun = time.monotonic()
        result, made = step.do()
        seconds = time.monotonic() - begun
        ledger.keep(step.name, StepDone(key, result, seconds, made))
        ended((step.name, result, f"{seconds:.1f}"))


class _SweepUnfinishedError(Exception):
    """Raised when a sweep has ended with an exit code that says that all is not done."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def run(config: Config, stored_config: str) -> int:
    """Do the steps that are not done, and show all. Raises AutoMLError, after which the same
    command goes on."""
    _refuse_other_models(config)
    refuse_unserved(config)
    release = _WinnerRelease(config, stored_config)
    rows: list[Row] = []
    begun, code = time.monotonic(), 0
    try:
        carry_out_steps(release.steps(), release.ledger, say_on_stdout, rows.append)
    except _SweepUnfinishedError as ended:
        code = ended.code
    except GateError:
        release.give_to_mlflow()
        raise
    finally:
        total = time.monotonic() - begun
        open_console().table(COLUMNS, [*rows, ("", "this time", f"{total:.1f}")], n_left=2)
        if len(rows) < len(release.steps()):
            say_on_stdout(f"go on with: {release_command(config)}")
    return code


class _WinnerRelease:
    """The steps for one winner."""

    def __init__(self, config: Config, stored_config: str) -> None:
        self._stored = stored_config
        self._path = study_path(config.study)
        files = StudyFiles(self._path)
        self.ledger = ReleaseLedger(files.release)
        record = read_study(self._path)
        best = trial_of(record, config.study, "refit.trial", config.refit.trial)
        joins = ensemble_to_refit(record, config, self._path) is not None
        self._trial = None if joins else best.number
        """None: the ensemble is the winner."""
        self._own = files.ensemble if joins else best_file(self._path, best)
        self._name = ENSEMBLE_NAME if joins else trial_name(best.number)
        self._refit = files.refit
        self._config = replace(config, refit=replace(config.refit, trial=self._trial))
        self._judge = JudgedRowsCache()
        self._tables = [
            sha256(Path(path).expanduser())
            for path in (config.data.path, config.data.test_path)
            if path is not None and Path(path).expanduser().is_file()
        ]

    def steps(self) -> list[ReleaseStep]:
        return [
            ReleaseStep("evaluate", self._key_of_winner, self._is_scored, self._evaluate_winner),
            ReleaseStep("refit", self._key_of_refit, self._is_refitted, self._train_again),
            ReleaseStep(
                "evaluate the refit", self._key_of_both, self._is_scored, self._evaluate_refit
            ),
            ReleaseStep("export", self._key_of_export, self._is_exported, self._export),
            ReleaseStep(
                "register", lambda: sha256(self._refit), lambda made: False, self._register
            ),
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
        metric = judged_metric(self._config.study.metric, event.scores[self._name])
        score = shown_score(event.scores[self._name][metric])
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

    def _own_scores(self) -> ModelsEvaluated:
        """Of what is trained again, which the first step has."""
        done = self.ledger.find("evaluate", self._key_of_winner())
        assert done is not None, "the first step comes first"
        events = reversed(read_study(self._path).evaluations)
        return next(event for event in events if _scores(event) == done.made)

    def _evaluate(self, which: WhichModel) -> ModelsEvaluated:
        from automl.commands.evaluate import evaluate

        trials = [] if self._trial is None else [self._trial]
        asked = replace(self._config.evaluate, trials=trials, model=which)
        config = replace(self._config, evaluate=asked)
        return evaluate(config, say_on_stdout, show=False, to_mlflow=False, judge=self._judge)

    def give_to_mlflow(self) -> None:
        """The scores of a release that ends before `register`, which else does it."""
        place = settle_place_unlocked(self._path, self._config.study)
        try:
            deliver_evaluation(self._path, self._config, place, lambda line: None)
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
            raise _SweepUnfinishedError(code)
        settings = self._config.refit
        seeds = f", the mean of {settings.n_seeds} seeds" if settings.n_seeds > 1 else ""
        said = f"{self._name} again on {settings.rows}{seeds}: {REFIT}"
        return said, {REFIT: sha256(self._refit)}

    # --- export, register ---

    def _key_of_export(self) -> str:
        return key_of(refit=sha256(self._refit), folder=self._export_folder.absolute())

    @property
    def _export_folder(self) -> Path:
        return package_folder(self._config, refit_name(self._trial))

    def _is_exported(self, made: Made) -> bool:
        there = find_package(self._export_folder, self._refit)  # not what a copied ledger names
        return there is not None and there.digest == made.get("digest")

    def _export(self) -> tuple[str, Made]:
        choice = choose_model(self._meaning_refit(), "register")
        package = make_package(self._config, open_model(self._config, choice), choice)
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


def _scores(event: ModelsEvaluated) -> Made:
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
