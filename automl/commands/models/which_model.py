"""Chooses which of a study's models a command means, and opens it; no other module does.

A model is a trial's `best.pt`, `refit.pt`, the winner trained again (a trial, or each member of the
ensemble), or `ensemble.pt`, the mean of several. If the user names none, it is the refit if there
is one, else the ensemble if there is one, else the best trial. Choosing loads nothing heavy, so
that a wrong name is reported at once; the chosen model is opened later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from automl.config import Config, DataKind, ObjectiveKind, StudyConfig, check_setting
from automl.config.which_models import (
    ENSEMBLE,
    REFIT,
    WHICH_FORMS_TEXT,
    ModelKind,
    NamedModel,
    WhichModels,
    which_trials,
)
from automl.errors import AutoMLError, ConfigError
from automl.models.family import NetworkBuilder, family_of
from automl.record.studies import read_study, study_path
from automl.record.study_directory import study_command
from automl.record.study_files import StudyFiles
from automl.record.study_record import StudyRecord
from automl.record.trial_record import TrialRecord
from automl.running.prepare.refit_task import RefitWinner, ensemble_to_refit
from automl.trial import (
    ENSEMBLE_NAME,
    CheckpointKind,
    EnsembleBuilt,
    refit_name,
    trial_name,
    trial_number_of,
)

if TYPE_CHECKING:
    from automl.models.array_predictor import ArrayPredictor
    from automl.models.model_file import RefitFacts
    from automl.models.predictor import Predictor

_MAX_LISTED = 20


@dataclass(frozen=True)
class ModelChoice:
    """A model that a command means, whose file exists."""

    file: Path
    trial: TrialRecord | None
    """The trial; None for the refit, which names its trial when it is opened, and for the
    ensemble."""
    is_ensemble: bool = False
    """Whether it is the ensemble itself, and not its refit."""


@dataclass(frozen=True)
class TableModel:
    """A model of a table's rows, opened."""

    predictor: Predictor
    file: Path
    trial: int
    """Number of the model's trial: of a refit the repeated trial, of an ensemble its heaviest
    member."""
    refitted: RefitFacts | None
    """Facts about the refit; None for the trial's own model, and for the ensemble itself."""
    is_ensemble: bool = False
    """Whether it is the ensemble, or its refit."""

    @property
    def which(self) -> WhichModels:
        """The value of `which=` that means this model."""
        if self.refitted is not None:
            return REFIT
        return ENSEMBLE if self.is_ensemble else which_trials(self.trial)

    @property
    def name(self) -> str:
        """The model's name: `trial-00003`, `refit-trial-00003`, `ensemble` or `refit-ensemble`."""
        if self.refitted is not None:
            return refit_name(None if self.is_ensemble else self.trial)
        return ENSEMBLE_NAME if self.is_ensemble else trial_name(self.trial)


# --- choosing -------------------------------------------------------------------------------------


def choose_model(config: Config, which: WhichModels, command: str) -> ModelChoice:
    """Return the one model that `which` names: without it the refit, else the ensemble, else the
    best trial. An ensemble that is named and does not exist yet is made. Raises AutoMLError."""
    _refuse_unknown_models(config, command)
    named = _single(which, command) or _winner(config.study)
    return _choose_one(config, read_study(study_path(config.study)), named)


def find_model_file(study: StudyConfig, which: WhichModels) -> Path:
    """Return the file of the one model that `which` names, of a study with any objective. Raises
    ConfigError, also for an ensemble that does not exist yet."""
    named = _single(which, "load") or _winner(study)
    if named.kind is ModelKind.ENSEMBLE and not StudyFiles(study_path(study)).ensemble.exists():
        raise ConfigError(
            f"which=ensemble: study {study.name} has none yet; make it first: "
            f"{study_command('evaluate', study)} which=ensemble"
        )
    return _existing_model(study, read_study(study_path(study)), named).file


def _single(which: WhichModels, command: str) -> NamedModel | None:
    """Return the only model that `which` names; None: it names none. Raises ConfigError."""
    rule = f"{command} takes one model; evaluate compares several."
    check_setting(len(which.models) < 2, "which", which.text, rule)
    return next(iter(which.models), None)


def choose_models(config: Config, which: WhichModels) -> list[ModelChoice]:
    """Return the models that `which` names for `evaluate`: the refit first, then the ensemble, then
    trials, the best of the study before the others. Raises AutoMLError."""
    _refuse_unknown_models(config, "evaluate", takes_arrays=True)
    record = read_study(study_path(config.study))
    if not which.models:
        find_model_trial(record, config.study)  # the refit is compared with a trial
    choices = [
        _choose_one(config, record, named) for named in which.models or [_winner(config.study)]
    ]
    places = {trial.number: place for place, trial in enumerate(record.ranking())}

    def place(choice: ModelChoice) -> tuple[int, bool]:
        number = -1 if choice.trial is None else choice.trial.number
        return places.get(number, -1 if choice.trial is None else len(places)), choice.is_ensemble

    return [*{choice.file: choice for choice in sorted(choices, key=place)}.values()]


def choose_winner(
    config: Config, which: WhichModels, command: str
) -> tuple[StudyRecord, RefitWinner]:
    """Return the study's record, and the trial or the ensemble that `which` has `refit` train
    again: without it the ensemble where it is no worse than the best trial. Raises AutoMLError."""
    rule = (
        f"{command} trains one trial or the ensemble again: write best, a trial's number, ensemble,"
        " knee or a metric's name."
    )
    named = next(iter(which.models), None)
    is_trainable = len(which.models) < 2 and (named is None or named.kind is not ModelKind.REFIT)
    check_setting(is_trainable, "which", which.text, rule)
    path = study_path(config.study)
    if named is not None and named.kind is ModelKind.ENSEMBLE:
        _choose_one(config, read_study(path), named)
        record = read_study(path)
        assert record.ensemble is not None, "its file is there"
        return record, record.ensemble
    record = read_study(path)
    if named is not None:
        return record, _find_trial(record, config.study, named)
    return record, ensemble_to_refit(record, path) or find_model_trial(record, config.study)


def _winner(study: StudyConfig) -> NamedModel:
    """Return the model that is meant where none is named."""
    files = StudyFiles(study_path(study))
    if files.refit.exists():
        return NamedModel(ModelKind.REFIT)
    return NamedModel(ModelKind.ENSEMBLE if files.ensemble.exists() else ModelKind.BEST)


def _choose_one(config: Config, record: StudyRecord, named: NamedModel) -> ModelChoice:
    is_ensemble = named.kind is ModelKind.ENSEMBLE
    if is_ensemble and not StudyFiles(study_path(config.study)).ensemble.exists():
        from automl.commands.ensemble import make_study_ensemble  # loads numpy and Optuna

        make_study_ensemble(config)
    return _existing_model(config.study, record, named)


def _existing_model(study: StudyConfig, record: StudyRecord, named: NamedModel) -> ModelChoice:
    path = study_path(study)
    files = StudyFiles(path)
    if named.kind is ModelKind.ENSEMBLE:
        return ModelChoice(files.ensemble, None, is_ensemble=True)
    if named.kind is ModelKind.REFIT:
        if not files.refit.exists():
            raise ConfigError(
                f"which=refit: {files.refit} is not there yet; make it first: "
                f"{study_command('refit', study)}"
            )
        return ModelChoice(files.refit, None)
    trial = _find_trial(record, study, named)
    return ModelChoice(best_checkpoint_file(path, trial), trial)


def _find_trial(record: StudyRecord, study: StudyConfig, named: NamedModel) -> TrialRecord:
    """Return the trial that is named by its number or a metric, or the best. Raises ConfigError,
    also for an empty front."""
    found = find_model_trial(record, study, named.number)
    if named.metric is None:
        return found
    metrics, name = record.metrics.metrics, named.metric
    metric = next((metric for metric in metrics if metric.name == name), None)
    known = ", ".join(metric.name for metric in metrics)
    rule = f"study.metric names no {name}: {known}. For other models {WHICH_FORMS_TEXT}."
    check_setting(metric is not None, "which", named.word, rule)
    assert metric is not None
    values = {t.number: t.values.get(name, t.value or 0.0) for t in record.front()}
    return min(record.front(), key=lambda trial: metric.key(values[trial.number]))


def find_model_trial(
    record: StudyRecord, study: StudyConfig, number: int | None = None
) -> TrialRecord:
    """Return the best trial, or the trial with the number, which must have a value. Raises
    ConfigError."""
    best = record.best()
    if best is None:
        counts = ", ".join(f"{n} {state.value}" for state, n in record.counts().items() if n)
        raise ConfigError(
            f"study.name={study.name}: no trial of it has ended with a value yet "
            f"({counts or 'it has none'}), so that there is no model. Go on with it first: "
            f"{study_command('resume', study)}"
        )
    if number is None:
        _refuse_empty_front(record, study, best)
        return best
    found = record.trials.get(number)
    if found is None or found.value is None:
        raise ConfigError(
            f"which={number}: {_why_not(found, study)}. Those with a value, best first: "
            f"{_listed(trial.number for trial in record.ranking())}; write which=best for trial "
            f"{best.number}."
        )
    return found


def _refuse_empty_front(record: StudyRecord, study: StudyConfig, best: TrialRecord) -> None:
    """Raise ConfigError if no trial is within the limits, of which `best` is the nearest."""
    point = record.point(best)
    if point is None or point.excess == 0:
        return
    beyond = ", ".join(
        f"{limit.name} {best.values[limit.name]:g} > {limit.largest:g}"
        for limit in record.metrics.limits
        if limit.excess(best.values[limit.name]) > 0
    )
    raise ConfigError(
        f"study.name={study.name}: the front is empty, since no trial is within study.constraints; "
        f"trial {best.number} is the nearest ({beyond}). Go on with more trials, or take it all "
        f"the same: which={best.number}"
    )


def best_checkpoint_file(path: Path, trial: TrialRecord) -> Path:
    """Return the trial's `best.pt`. Raises ConfigError where it does not exist."""
    file = StudyFiles(path).checkpoint(trial.number, CheckpointKind.BEST)
    if not file.exists():
        raise ConfigError(
            f"{file}: trial {trial.number} has left no such file (it reported nothing finite, "
            "study.keep_best or somebody removed it): restore it from a copy, or choose another "
            "trial."
        )
    return file


def _refuse_unknown_models(config: Config, command: str, *, takes_arrays: bool = False) -> None:
    """Raise ConfigError for a study whose models only its author knows, or whose rows are no table
    where the command needs one."""
    kind, name = config.objective.kind, config.study.name
    if kind is not ObjectiveKind.builtin:
        raise ConfigError(
            f"study.name={name}: {command} needs a study of the built-in training "
            f"(objective=builtin), whose models are known; this one has objective={kind.name}. "
            f"What it kept of its best trial: automl.open_study({name!r}).best.load()"
        )
    if config.data.kind is DataKind.python and not takes_arrays:
        raise ConfigError(
            f"study.name={name}: {command} needs a table, and the rows of this study come from "
            f"data.source={config.data.source}. Ask its best model yourself: "
            f"automl.open_study({name!r}).best.load().predict(rows)"
        )


def _why_not(found: TrialRecord | None, study: StudyConfig) -> str:
    if found is None:
        return f"study {study.name} has no such trial"
    if not found.state.is_final:
        return f"this trial has not ended ({found.state.value})"
    return f"this trial has no value ({found.state.value}{f': {found.cause}' * bool(found.cause)})"


def _listed(numbers: Iterable[int]) -> str:
    listed = [str(number) for number in numbers]
    more = f" and {len(listed) - _MAX_LISTED} more" if len(listed) > _MAX_LISTED else ""
    return ", ".join(listed[:_MAX_LISTED]) + more


def as_searched(config: Config, record: StudyRecord) -> Config:
    """Return the config without a test table that was given after the search: it serves for scores
    only, and the rows were split when there was none."""
    own_test = record.settings.get("data.test")
    if own_test is None or config.data.test_path is None:
        return config
    return replace(config, data=replace(config.data, test=own_test))


# --- opening --------------------------------------------------------------------------------------


def open_model(config: Config, choice: ModelChoice) -> TableModel:
    """Open the model; its network is built by the study's own `model.target`, if there is one.
    Raises AutoMLError."""
    from automl.models.predictor import load_table_model

    predictor = load_table_model(choice.file, build=network_builder(config))
    if choice.trial is not None:
        return TableModel(predictor, choice.file, choice.trial.number, None)
    if choice.is_ensemble:
        heaviest = trial_number_of(next(iter(predictor.params)))
        return TableModel(predictor, choice.file, heaviest, None, is_ensemble=True)
    if predictor.refitted is None:
        raise AutoMLError(
            f"{choice.file}: does not say of which trial it is (an earlier version wrote it): make "
            f"it again: {study_command('refit', config.study)}, or take a trial's own: which=best"
        )
    refitted = predictor.refitted
    return TableModel(
        predictor, choice.file, refitted.trial, refitted, is_ensemble=bool(refitted.members)
    )


def open_array_model(config: Config, choice: ModelChoice) -> ArrayPredictor:
    """Open the model of a study of the user's own rows (`data=python`). Raises AutoMLError."""
    from automl.models.array_predictor import ArrayPredictor
    from automl.models.predictor import load

    model = load(choice.file, build=network_builder(config))
    if not isinstance(model, ArrayPredictor):
        raise AutoMLError(f"{choice.file}: takes rows of a table, and its study has none.")
    return model


def outdated_model_note(config: Config, model: TableModel) -> str:
    """Return a warning if a trial is better now than the one that the refit repeats, or than those
    that the ensemble was chosen from; empty if the model is of the best."""
    record = read_study(study_path(config.study))
    best = record.best()
    if best is None:
        return ""
    if model.is_ensemble:
        warning = _ensemble_warning(config, record.ensemble, best)
        return warning or _members_warning(config, record.ensemble, model.refitted)
    if model.refitted is None or best.number == model.trial:
        return ""
    return (
        f"the best trial is {trial_name(best.number)} by now, and the refit is of "
        f"{trial_name(model.trial)}: {study_command('refit', config.study)}"
    )


def _ensemble_warning(config: Config, ensemble: EnsembleBuilt | None, best: TrialRecord) -> str:
    if ensemble is not None and best.number in ensemble.rows_per_second:
        return ""
    return (
        f"the best trial is {trial_name(best.number)} by now, and the ensemble was made without "
        f"it: {study_command('ensemble', config.study)}"
    )


def _members_warning(
    config: Config, ensemble: EnsembleBuilt | None, refitted: RefitFacts | None
) -> str:
    if ensemble is None or refitted is None or set(refitted.members) == set(ensemble.members):
        return ""
    return (
        f"the ensemble has other members by now than the refit of it: "
        f"{study_command('refit', config.study)}"
    )


def network_builder(config: Config) -> NetworkBuilder | None:
    """Return the function that builds a user's own network; None if the model file says all."""
    from automl.in_trial.user_code import resolve_builder

    family = family_of(config)
    target = family.users_target
    return None if target is None else resolve_builder(target[1])
