"""`release`: evaluates, refits, evaluates again, exports and registers a study's winner.

The winner is what `refit` trains again: the best trial, or the ensemble. Each step is the command
of its name. A refit that is worse than the model it repeats stops the release before anything is
exported.

The steps that are done are kept in `release.json`, so that the same command goes on after any
interruption:

    {"refit": {"key": "3f…", "result": "…", "seconds": 12.3, "made": {"refit.pt": "9a…"}}, …}

A step counts as done while the digest of its inputs, its key, is the same, and its products are
unchanged. The file is replaced whole after each step: a killed release loses one step at most, and
each step itself resumes where it was.
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
from automl.commands.command_call import CommandCall
from automl.commands.models.champion import judged_metric, shown_score
from automl.commands.models.evaluation_scores import JudgedRowsCache, KnownRowsError
from automl.commands.models.served_package import (
    file_sha256,
    find_package,
    make_package,
    package_folder,
)
from automl.commands.models.study_opening import deliver_evaluation
from automl.commands.models.which_model import (
    best_checkpoint_file,
    choose_model,
    choose_winner,
    open_model,
)
from automl.config import Config, ExportFormat, StudyConfig
from automl.config.command_arguments import (
    EvaluateArguments,
    RegisterArguments,
    ReleaseArguments,
    argument_fields,
)
from automl.config.which_models import REFIT, parse_which
from automl.errors import AutoMLError
from automl.record.disk import write_durably
from automl.record.studies import read_study, study_path
from automl.record.study_directory import settle_place_unlocked, study_command
from automl.record.study_files import REFIT_MODEL_FILE, StudyFiles
from automl.record.texts import parse_json, say_on_stdout
from automl.record.trial_record import TrialRecord
from automl.terminal.console import open_console
from automl.terminal.machine_output import write_answer
from automl.trial import ENSEMBLE_NAME, ModelsEvaluated, refit_name, trial_name


def release_command(study: StudyConfig, arguments: ReleaseArguments) -> str:
    """Return the command that resumes the release, with all arguments that are not the default:
    other seeds or rows would be another refit, and another name another registered model."""
    words = [study_command("release", study)]
    for word, name in argument_fields(ReleaseArguments).items():
        value = getattr(arguments, name)
        if value != getattr(ReleaseArguments, name):
            text = value.name if isinstance(value, Enum) else value
            words.append(shlex.quote(f"{word}={text}"))
    return " ".join(words)


BETTER = "better"


class ReleaseRefusedError(AutoMLError):
    """Raised when a release is stopped by a result, and not by a failure."""


def check_refit_gate(event: ModelsEvaluated, study_metric: str, register: str) -> str:
    """Return a sentence that compares the refit, the first model of the event, with the trial or
    the ensemble that it repeats, the second. Raises ReleaseRefusedError where the refit is worse by
    more than chance; `register_model` is the command that registers the second model instead."""
    refit, repeated = event.models[:2]
    repeated_words = "the ensemble" if repeated == ENSEMBLE_NAME else "the trial"
    metric = judged_metric(study_metric, event.scores[refit])
    difference = event.differences[repeated][metric]
    comparison = (
        f"{metric} {shown_score(event.scores[refit][metric])}, {-difference.value:+.4g} "
        f"({-difference.high:+.4g} to {-difference.low:+.4g}) from that of {repeated}"
    )
    if difference.verdict != BETTER:
        return f"{refit}: {comparison}"
    raise ReleaseRefusedError(
        f"the refit is worse than {repeated_words} by more than chance: {comparison}, on "
        f"{event.rows}. Nothing was exported or registered. Several seeds do better "
        "(seeds=8), or rows to stop by "
        f"(hold_out=0.05); or register {repeated_words} itself: {register}"
    )


def uncompared_refit_text(
    event: ModelsEvaluated, study_metric: str, say: Callable[[str], object]
) -> str:
    """Return a sentence for a refit that has seen all rows there are: the scores of the model that
    it repeats, the first of the event, on the rows that judged it. `say` gets the comparison with
    the baselines."""
    repeated = event.models[0]
    metric = judged_metric(study_metric, event.scores[repeated])
    baselines = ", ".join(
        f"{name} is {found[metric].verdict}"
        for name, found in event.differences.items()
        if name not in event.models
    )
    say(
        f"the refit has seen all rows, and cannot be compared with {repeated}; beside "
        f"that, on {event.rows}, {baselines}. Rows that came later compare them: "
        "data.test=FILE"
    )
    score = shown_score(event.scores[repeated][metric])
    return f"not compared: {repeated}'s {metric} stands for it, {score}"


StepProducts = Mapping[str, str]
"""The products of a step by name, as texts that tell whether they are unchanged."""


@dataclass(frozen=True)
class StepDone:
    """A step that is done, as `release.json` stores it."""

    key: str
    result: str
    """The result, in words for the user."""
    seconds: float
    made: StepProducts


class ReleaseLedger:
    """The file `release.json`, which one release at a time reads and writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._steps = _read(path)

    def find(self, step: str, key: str) -> StepDone | None:
        """Return the step, if it was done with this key."""
        done = self._steps.get(step)
        return done if done is not None and done.key == key else None

    def keep(self, step: str, done: StepDone) -> None:
        """Store the step; it is on disk when this returns. Raises OSError."""
        self._steps[step] = done
        text = json.dumps({name: asdict(each) for name, each in self._steps.items()}, indent=1)
        write_durably(self._path, text + "\n")


def step_key(**decides: Any) -> str:
    """Return one digest of all that decides a step."""
    text = json.dumps(decides, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _read(path: Path) -> dict[str, StepDone]:
    """Return the steps of the file; an unreadable file has none."""
    try:
        steps = parse_json(path.read_bytes())
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
"""A row of the final table: step, result, seconds."""
STEP_COLUMNS = ("step", "result", "seconds")


@dataclass(frozen=True)
class ReleaseStep:
    """A step of a release: how it is done, and how it is known to be done."""

    name: str
    """The step's name in the ledger and in the table."""
    key: Callable[[], str]
    """Returns the digest of what decides the step; called once the steps before it are done."""
    is_unchanged: Callable[[StepProducts], bool]
    """Returns whether the step's products still exist unchanged."""
    do: Callable[[], tuple[str, StepProducts]]
    """Does the step; returns the result, in words, and its products. Raises AutoMLError."""


def carry_out_steps(
    steps: Sequence[ReleaseStep],
    ledger: ReleaseLedger,
    say: Callable[[str], object],
    ended: Callable[[Row], object],
) -> None:
    """Do the steps that are not done; `ended` gets the row of each step as it ends. Raises the
    steps' errors."""
    for place, step in enumerate(steps, 1):
        key = step.key()
        done = ledger.find(step.name, key)
        if done is not None and step.is_unchanged(done.made):
            ended((step.name, f"{done.result} (done before)", f"{done.seconds:.1f}"))
            continue
        say(f"{place} of {len(steps)}: {step.name}")
        start_seconds = time.monotonic()
        result, made = step.do()
        seconds = time.monotonic() - start_seconds
        ledger.keep(step.name, StepDone(key, result, seconds, made))
        ended((step.name, result, f"{seconds:.1f}"))


class _SweepUnfinishedError(Exception):
    """Raised when a sweep ends with an exit code that says that not all is done."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def run(call: CommandCall) -> int:
    """Do the steps that are not done, and print all. Raises AutoMLError, after which the same
    command goes on."""
    config, arguments = call.config, call.typed_arguments(ReleaseArguments)
    release = _WinnerRelease(config, arguments, call.stored_config)
    release.check_export()
    rows: list[Row] = []
    start_seconds, code = time.monotonic(), 0
    try:
        carry_out_steps(release.steps(), release.ledger, say_on_stdout, rows.append)
    except _SweepUnfinishedError as ended:
        code = ended.code
    except ReleaseRefusedError:
        release.give_to_mlflow()
        raise
    finally:
        total = time.monotonic() - start_seconds
        open_console().table(STEP_COLUMNS, [*rows, ("", "this time", f"{total:.1f}")], n_left=2)
        if len(rows) < len(release.steps()):
            say_on_stdout(f"go on with: {release_command(config.study, arguments)}")
    return code


class _WinnerRelease:
    """The steps of a release for one winner, as `ReleaseStep` values."""

    def __init__(self, config: Config, arguments: ReleaseArguments, stored_config: str) -> None:
        self._config, self._stored = config, stored_config
        self._path = study_path(config.study)
        files = StudyFiles(self._path)
        self.ledger = ReleaseLedger(files.release)
        _, winner = choose_winner(config, parse_which(arguments.which), "release")
        trial = winner if isinstance(winner, TrialRecord) else None
        self._trial = None if trial is None else trial.number
        """Number of the winning trial; None: the ensemble is the winner."""
        self._name = ENSEMBLE_NAME if trial is None else trial_name(trial.number)
        self._winner_file = files.ensemble
        if trial is not None:
            self._winner_file = best_checkpoint_file(self._path, trial)
        self._refit = files.refit
        self._winner = "ensemble" if trial is None else str(trial.number)
        """The value of `which=` that means the winner."""
        self._arguments = replace(arguments, which=self._winner)
        self._judge = JudgedRowsCache()
        self._tables = [
            file_sha256(Path(path).expanduser())
            for path in (config.data.path, config.data.test_path)
            if path is not None and Path(path).expanduser().is_file()
        ]

    def check_export(self) -> None:
        """Raise ConfigError for a winner that no ONNX file can hold, before anything is done."""
        from automl.commands.export import check_format

        choice = choose_model(self._config, parse_which(self._winner), "release")
        predictor = open_model(self._config, choice).predictor
        check_format(self._config, ExportFormat.onnx, predictor)

    def steps(self) -> list[ReleaseStep]:
        return [
            ReleaseStep("evaluate", self._key_of_winner, self._has_scores, self._evaluate_winner),
            ReleaseStep("refit", self._key_of_refit, self._is_refitted, self._train_winner_again),
            ReleaseStep(
                "evaluate the refit", self._key_of_both, self._has_scores, self._evaluate_refit
            ),
            ReleaseStep("export", self._key_of_export, self._is_exported, self._export),
            ReleaseStep(
                "register", lambda: file_sha256(self._refit), lambda made: False, self._register
            ),
        ]

    # --- evaluate ---

    def _key_of_winner(self) -> str:
        return step_key(trial=self._trial, best=file_sha256(self._winner_file), tables=self._tables)

    def _key_of_both(self) -> str:
        return step_key(trial=self._key_of_winner(), refit=file_sha256(self._refit))

    def _has_scores(self, made: StepProducts) -> bool:
        return any(_scores(event) == made for event in read_study(self._path).evaluations)

    def _evaluate_winner(self) -> tuple[str, StepProducts]:
        event = self._evaluate(self._winner)
        metric = judged_metric(self._config.study.leading_metric, event.scores[self._name])
        score = shown_score(event.scores[self._name][metric])
        return f"{self._name}: {metric} {score} on {event.rows}", _scores(event)

    def _evaluate_refit(self) -> tuple[str, StepProducts]:
        try:
            event = self._evaluate(f"refit,{self._winner}")
        except KnownRowsError:
            event, metric = self._winner_scores(), self._config.study.leading_metric
            return uncompared_refit_text(event, metric, say_on_stdout), _scores(event)
        instead = (
            f"{study_command('export', self._config.study)} format=registry which={self._winner}"
        )
        return check_refit_gate(event, self._config.study.leading_metric, instead), _scores(event)

    def _winner_scores(self) -> ModelsEvaluated:
        """Return the scores of the winner, which the first step stored."""
        done = self.ledger.find("evaluate", self._key_of_winner())
        assert done is not None, "the first step comes first"
        events = reversed(read_study(self._path).evaluations)
        return next(event for event in events if _scores(event) == done.made)

    def _evaluate(self, which: str) -> ModelsEvaluated:
        from automl.commands.evaluate import evaluate_models

        arguments = EvaluateArguments(which=which)
        return evaluate_models(
            self._config, arguments, say_on_stdout, show=False, to_mlflow=False, judge=self._judge
        )

    def give_to_mlflow(self) -> None:
        """Deliver the scores of a release that ends before `register_model`, which would deliver
        them."""
        place = settle_place_unlocked(self._path, self._config.study)
        try:
            deliver_evaluation(self._path, self._config, place, lambda line: None)
        except AutoMLError as error:
            say_on_stdout(str(error))

    # --- refit ---

    def _key_of_refit(self) -> str:
        names = ("rows", "hold_out", "seeds", "batch_size", "check", "parallel")
        settings = {name: str(getattr(self._arguments, name)) for name in names}
        return step_key(trial=self._key_of_winner(), settings=settings)

    def _is_refitted(self, made: StepProducts) -> bool:
        return self._refit.exists() and file_sha256(self._refit) == made.get(REFIT_MODEL_FILE)

    def _train_winner_again(self) -> tuple[str, StepProducts]:
        code = refit.run(CommandCall(self._config, self._stored, arguments=self._arguments))
        if code:
            raise _SweepUnfinishedError(code)
        n, rows = self._arguments.seeds, self._arguments.rows
        seeds = f", the mean of {n} seeds" if n > 1 else ""
        result = f"{self._name} again on {rows}{seeds}: {REFIT_MODEL_FILE}"
        return result, {REFIT_MODEL_FILE: file_sha256(self._refit)}

    # --- export, register ---

    def _key_of_export(self) -> str:
        return step_key(refit=file_sha256(self._refit), folder=self._export_folder.absolute())

    @property
    def _export_folder(self) -> Path:
        return package_folder(self._config, refit_name(self._trial), self._arguments.to)

    def _is_exported(self, made: StepProducts) -> bool:
        package = find_package(self._export_folder, self._refit)  # a copied ledger may name another
        return package is not None and package.digest == made.get("digest")

    def _export(self) -> tuple[str, StepProducts]:
        choice = choose_model(self._config, REFIT, "release")
        package = make_package(self._config, open_model(self._config, choice), self._arguments.to)
        result = f"{package.folder}, which says what the model says"
        return result, {"digest": package.digest}

    def _register(self) -> tuple[str, StepProducts]:
        from automl.commands.register import register_model

        own = self._arguments
        arguments = RegisterArguments(which="refit", as_=own.as_, to=own.to)
        registered = register_model(self._config, arguments, say_on_stdout)
        write_answer(registered.answer)
        result = (
            f"version {registered.version} of {registered.name}, {registered.model_alias.alias}"
        )
        return result, {
            "name": registered.name,
            "version": str(registered.version),
            "digest": registered.digest,
        }


def _scores(event: ModelsEvaluated) -> StepProducts:
    """Return what identifies scores: the digest of the rows, and the models."""
    return {"rows": event.digest, "models": ", ".join(event.models)}
