"""Which of a study's models a command means, and the model: nobody else chooses or opens one.

A model is a trial's `best.pt`, `refit.pt`, the winner trained again (a trial, or each member of the
ensemble), or `ensemble.pt`, the mean of several. Where the user names none it is the refit if there
is one, else the ensemble if there is one, else the best trial. Choosing loads nothing heavy, so
that a wrong word is said at once; what was chosen is opened later.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from automl.config import Config, DataKind, ObjectiveKind, StudyConfig, WhichModel
from automl.errors import AutoMLError, ConfigError
from automl.models.family import NetworkBuilder, family_of
from automl.record.studies import read_study, study_path
from automl.record.study_directory import command_line
from automl.record.study_files import StudyFiles
from automl.record.study_record import StudyRecord
from automl.record.trial_record import TrialRecord
from automl.trial import (
    ENSEMBLE_NAME,
    CheckpointKind,
    EnsembleBuilt,
    number_of,
    refit_name,
    trial_name,
)

if TYPE_CHECKING:
    from automl.models.array_predictor import ArrayPredictor
    from automl.models.model_file import RefitFacts
    from automl.models.predictor import Predictor

_MAX_LISTED = 20


@dataclass(frozen=True)
class ModelChoice:
    """A model that is meant, and is there."""

    file: Path
    trial: TrialRecord | None
    """None: the refit, which tells its trial when it is opened, or the ensemble."""
    joined: bool = False
    """The ensemble itself, and not its refit."""


@dataclass(frozen=True)
class TableModel:
    """A model of a table's rows, opened."""

    predictor: Predictor
    file: Path
    trial: int
    """Whose it is; of a refit the one that was trained again, of an ensemble the heaviest."""
    refitted: RefitFacts | None
    """None: it is the trial's own, or the ensemble itself."""
    joined: bool = False
    """The ensemble, or its refit."""

    @property
    def which(self) -> WhichModel:
        """What `export.model` and the like mean it by."""
        if self.refitted is not None:
            return WhichModel.refit
        return WhichModel.ensemble if self.joined else WhichModel.trial

    @property
    def name(self) -> str:
        """`trial-00003`, `refit-trial-00003`, `ensemble` or `refit-ensemble`."""
        if self.refitted is not None:
            return refit_name(None if self.joined else self.trial)
        return ENSEMBLE_NAME if self.joined else trial_name(self.trial)


# --- choosing -------------------------------------------------------------------------------------


def choose_model(config: Config, command: str) -> ModelChoice:
    """What `export.model` and `export.trial` mean, or those of another command. Raises ConfigError.

    Where they name nothing it is the refit, else the ensemble, else the best trial.
    """
    _refuse_unknown_models(config, command)
    settings = getattr(config, command)
    which, number = settings.model, settings.trial
    if which in (WhichModel.refit, WhichModel.ensemble) and number is not None:
        raise ConfigError(
            f"{command}.model={which.value} {command}.trial={number}: give one of them. A refit is "
            f"of what was refitted, an ensemble of several trials."
        )
    path = study_path(config.study)
    meant = _meant(which, StudyFiles(path), named=number is not None)
    if meant is not WhichModel.trial:
        return _without_trial(config, command, meant)
    trial = trial_of(read_study(path), config.study, f"{command}.trial", number)
    return ModelChoice(best_file(path, trial), trial)


def choose_models(config: Config) -> list[ModelChoice]:
    """What `evaluate.model` and `evaluate.trials` mean: the refit first, then trials, the best of
    the study before the others. Raises ConfigError."""
    _refuse_unknown_models(config, "evaluate", takes_arrays=True)
    path, numbers = study_path(config.study), config.evaluate.trials
    record, files = read_study(path), StudyFiles(path)
    meant = _meant(config.evaluate.model, files, named=bool(numbers))
    own = meant is WhichModel.trial
    found = [] if own else [_without_trial(config, "evaluate", meant)]
    best = trial_of(record, config.study, "evaluate.trials")
    if not own and not numbers:
        return found
    named = [trial_of(record, config.study, "evaluate.trials", number) for number in numbers]
    places = {trial.number: place for place, trial in enumerate(record.ranking())}
    named.sort(key=lambda trial: places.get(trial.number, len(places)))
    return found + [ModelChoice(best_file(path, trial), trial) for trial in named or [best]]


def _meant(which: WhichModel, files: StudyFiles, *, named: bool) -> WhichModel:
    """What is meant, which is not `auto`; a trial may be `named`."""
    if which is not WhichModel.auto:
        return which
    if not named and files.refit.exists():
        return WhichModel.refit
    if not named and files.ensemble.exists():
        return WhichModel.ensemble
    return WhichModel.trial


def trial_of(
    record: StudyRecord, study: StudyConfig, key: str, number: int | None = None
) -> TrialRecord:
    """The best trial, or the one that the setting `key` numbers, which has a value. Raises
    ConfigError."""
    best = record.best()
    if best is None:
        counted = ", ".join(f"{n} {state.value}" for state, n in record.counts().items() if n)
        raise ConfigError(
            f"study.name={study.name}: no trial of it has ended with a value yet "
            f"({counted or 'it has none'}), so that there is no model. Go on with it first: "
            f"{command_line('resume', study)}"
        )
    if number is None:
        return best
    found = record.trials.get(number)
    if found is None or found.value is None:
        raise ConfigError(
            f"{key}={number}: {_why_not(found, study)}. Those with a value, best first: "
            f"{_listed(trial.number for trial in record.ranking())}; leave {key} out for trial "
            f"{best.number}, the best."
        )
    return found


def best_file(path: Path, trial: TrialRecord) -> Path:
    """Its `best.pt`. Raises ConfigError where it has none."""
    file = StudyFiles(path).checkpoint(trial.number, CheckpointKind.BEST)
    if not file.exists():
        raise ConfigError(
            f"{file}: trial {trial.number} has left no such file (it reported nothing finite, or "
            "somebody removed it): restore it from a copy, or choose another trial."
        )
    return file


def _without_trial(config: Config, command: str, meant: WhichModel) -> ModelChoice:
    """The refit, or the ensemble."""
    files = StudyFiles(study_path(config.study))
    file = files.refit if meant is WhichModel.refit else files.ensemble
    if not file.exists():
        raise ConfigError(
            f"{command}.model={meant.value}: {file} is not there yet; make it first: "
            f"{command_line(meant.value, config.study)}"
        )
    return ModelChoice(file, None, joined=meant is WhichModel.ensemble)


def _refuse_unknown_models(config: Config, command: str, *, takes_arrays: bool = False) -> None:
    """Raises ConfigError for a study of whose models only its author knows what they are, or whose
    rows are no table where the command needs one."""
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
    """The model, whose network the study's own `model.target` builds where there is one. Raises
    AutoMLError."""
    from automl.models.predictor import load_table_model

    predictor = load_table_model(choice.file, build=network_builder(config))
    if choice.trial is not None:
        return TableModel(predictor, choice.file, choice.trial.number, None)
    if choice.joined:
        heaviest = number_of(next(iter(predictor.params)))
        return TableModel(predictor, choice.file, heaviest, None, joined=True)
    if predictor.refitted is None:
        raise AutoMLError(
            f"{choice.file}: does not say of which trial it is (an earlier version wrote it): make "
            f"it again: {command_line('refit', config.study)}, or take a trial's own: model=trial"
        )
    of = predictor.refitted
    return TableModel(predictor, choice.file, of.trial, of, joined=bool(of.members))


def open_array_model(config: Config, choice: ModelChoice) -> ArrayPredictor:
    """That of a study of the user's own rows (`data=python`). Raises AutoMLError."""
    from automl.models.array_predictor import ArrayPredictor
    from automl.models.predictor import load

    model = load(choice.file, build=network_builder(config))
    if not isinstance(model, ArrayPredictor):
        raise AutoMLError(f"{choice.file}: takes rows of a table, and its study has none.")
    return model


def outdated(config: Config, model: TableModel) -> str:
    """What to say where a trial has become better than the one that the refit is of, or than those
    that the ensemble was chosen from; empty: it is of the best."""
    record = read_study(study_path(config.study))
    best = record.best()
    if best is None:
        return ""
    if model.joined:
        late = _late_ensemble(config, record.ensemble, best)
        return late or _late_members(config, record.ensemble, model.refitted)
    if model.refitted is None or best.number == model.trial:
        return ""
    return (
        f"the best trial is {trial_name(best.number)} by now, and the refit is of "
        f"{trial_name(model.trial)}: {command_line('refit', config.study)}"
    )


def _late_ensemble(config: Config, made: EnsembleBuilt | None, best: TrialRecord) -> str:
    if made is not None and best.number in made.rows_per_second:
        return ""
    return (
        f"the best trial is {trial_name(best.number)} by now, and the ensemble was made without "
        f"it: {command_line('ensemble', config.study)}"
    )


def _late_members(config: Config, made: EnsembleBuilt | None, refitted: RefitFacts | None) -> str:
    if made is None or refitted is None or set(refitted.members) == set(made.members):
        return ""
    return (
        f"the ensemble has other members by now than the refit of it: "
        f"{command_line('refit', config.study)}"
    )


def network_builder(config: Config) -> NetworkBuilder | None:
    """What builds a network of the user's own; None: the model file tells all."""
    from automl.objectives.user_code import resolve_builder

    family = family_of(config)
    target = family.users_target
    return None if target is None else resolve_builder(target[1])
