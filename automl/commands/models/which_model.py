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

from automl.config import (
    Config,
    DataKind,
    ObjectiveKind,
    StudyConfig,
    WhichModel,
    check_setting,
)
from automl.errors import AutoMLError, ConfigError
from automl.models.family import NetworkBuilder, family_of
from automl.record.studies import read_study, study_path
from automl.record.study_directory import study_command
from automl.record.study_files import StudyFiles
from automl.record.study_record import StudyRecord
from automl.record.trial_record import TrialRecord
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
    def which(self) -> WhichModel:
        """The value of `export.model` and its like that means this model."""
        if self.refitted is not None:
            return WhichModel.refit
        return WhichModel.ensemble if self.is_ensemble else WhichModel.trial

    @property
    def name(self) -> str:
        """The model's name: `trial-00003`, `refit-trial-00003`, `ensemble` or `refit-ensemble`."""
        if self.refitted is not None:
            return refit_name(None if self.is_ensemble else self.trial)
        return ENSEMBLE_NAME if self.is_ensemble else trial_name(self.trial)


# --- choosing -------------------------------------------------------------------------------------


def with_named_trial(config: Config, command: str) -> Config:
    """Return the config with the trial that `which` means in the settings of the command. Raises
    ConfigError."""
    if config.which is None:
        return config
    settings, record = getattr(config, command), read_study(study_path(config.study))
    name, named = (
        ("trials", settings.trials) if command == "evaluate" else ("trial", settings.trial)
    )
    rule = f"{command}.{name}={named} names a trial, too: leave one of them out."
    check_setting(named in (None, []), "which", config.which, rule)
    number = _find_which(record, config.study, config.which, f"{command}.{name}").number
    value = [number] if command == "evaluate" else number
    return replace(config, **{"which": None, command: replace(settings, **{name: value})})


def _find_which(record: StudyRecord, study: StudyConfig, which: str, key: str) -> TrialRecord:
    """Return the trial that `which` means. Raises ConfigError, also for an empty front."""
    kind, _, name = which.partition(":")
    if kind == "trial":
        return find_model_trial(record, study, key, int(name))
    best, metrics = find_model_trial(record, study, key), record.metrics.metrics
    if kind == "knee":
        return best
    metric = next((metric for metric in metrics if metric.name == name), None)
    known = ", ".join(metric.name for metric in metrics)
    check_setting(metric is not None, "which", which, f"study.metric names no {name}: {known}.")
    assert metric is not None
    values = {t.number: t.values.get(name, t.value or 0.0) for t in record.front()}
    return min(record.front(), key=lambda trial: metric.key(values[trial.number]))


def choose_model(config: Config, command: str) -> ModelChoice:
    """Return the model that `export.model` and `export.trial`, or those of another command, mean.
    Raises ConfigError.

    If they name none it is the refit, else the ensemble, else the best trial.
    """
    _refuse_unknown_models(config, command)
    config = with_named_trial(config, command)
    settings = getattr(config, command)
    which, number = settings.model, settings.trial
    if which in (WhichModel.refit, WhichModel.ensemble) and number is not None:
        raise ConfigError(
            f"{command}.model={which.value} {command}.trial={number}: give one of them. A refit is "
            f"of what was refitted, an ensemble of several trials."
        )
    path = study_path(config.study)
    which_model = _resolve_auto(which, StudyFiles(path), named=number is not None)
    if which_model is not WhichModel.trial:
        return _choose_refit_or_ensemble(config, command, which_model)
    trial = find_model_trial(read_study(path), config.study, f"{command}.trial", number)
    return ModelChoice(best_checkpoint_file(path, trial), trial)


def choose_models(config: Config) -> list[ModelChoice]:
    """Return the models that `evaluate.model` and `evaluate.trials` mean: the refit first, then
    trials, the best of the study before the others. Raises ConfigError."""
    _refuse_unknown_models(config, "evaluate", takes_arrays=True)
    config = with_named_trial(config, "evaluate")
    path, numbers = study_path(config.study), config.evaluate.trials
    record, files = read_study(path), StudyFiles(path)
    which_model = _resolve_auto(config.evaluate.model, files, named=bool(numbers))
    is_trial = which_model is WhichModel.trial
    found = [] if is_trial else [_choose_refit_or_ensemble(config, "evaluate", which_model)]
    best = find_model_trial(record, config.study, "evaluate.trials")
    if not is_trial and not numbers:
        return found
    named_trials = [
        find_model_trial(record, config.study, "evaluate.trials", number) for number in numbers
    ]
    places = {trial.number: place for place, trial in enumerate(record.ranking())}
    named_trials.sort(key=lambda trial: places.get(trial.number, len(places)))
    return found + [
        ModelChoice(best_checkpoint_file(path, trial), trial) for trial in named_trials or [best]
    ]


def _resolve_auto(which: WhichModel, files: StudyFiles, *, named: bool) -> WhichModel:
    """Return the model that is meant, with `auto` resolved; `named` says that a trial is named."""
    if which is not WhichModel.auto:
        return which
    if not named and files.refit.exists():
        return WhichModel.refit
    if not named and files.ensemble.exists():
        return WhichModel.ensemble
    return WhichModel.trial


def find_model_trial(
    record: StudyRecord, study: StudyConfig, key: str, number: int | None = None
) -> TrialRecord:
    """Return the best trial, or the trial with the number that the setting `key` has, which must
    have a value. Raises ConfigError."""
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
            f"{key}={number}: {_why_not(found, study)}. Those with a value, best first: "
            f"{_listed(trial.number for trial in record.ranking())}; leave {key} out for trial "
            f"{best.number}, the best."
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
        f"the same: which=trial:{best.number}"
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


def _choose_refit_or_ensemble(config: Config, command: str, which_model: WhichModel) -> ModelChoice:
    """Return the choice of the refit, or of the ensemble. Raises ConfigError if its file is
    missing."""
    files = StudyFiles(study_path(config.study))
    file = files.refit if which_model is WhichModel.refit else files.ensemble
    if not file.exists():
        raise ConfigError(
            f"{command}.model={which_model.value}: {file} is not there yet; make it first: "
            f"{study_command(which_model.value, config.study)}"
        )
    return ModelChoice(file, None, is_ensemble=which_model is WhichModel.ensemble)


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
            f"it again: {study_command('refit', config.study)}, or take a trial's own: model=trial"
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
