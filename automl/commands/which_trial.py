"""Which trial's model a command means, and the model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from automl.config import Config, ObjectiveKind
from automl.errors import ConfigError
from automl.record.directory import command_line
from automl.record.files import StudyFiles
from automl.record.studies import read_study
from automl.record.study import StudyRecord
from automl.record.trial_record import TrialRecord
from automl.training.family import Family
from automl.trial import CheckpointKind

if TYPE_CHECKING:
    from automl.training.predictor import Predictor


def chosen_trial(config: Config, path: Path, key: str, number: int | None) -> TrialRecord:
    """The trial that the setting `key` numbers, or the best. Raises ConfigError.

    Only those of the built-in objective leave a model that we know.
    """
    if config.objective.kind is not ObjectiveKind.builtin:
        raise ConfigError(
            f"study.name={path.name}: its trials are of objective={config.objective.kind.name}, "
            f"and only the built-in objective's models are known; what yours wrote is in {path}."
        )
    record = read_study(path)
    trial = record.best() if number is None else record.trials.get(number)
    if trial is None:
        raise _no_trial(config, record, key, number)
    return trial


def best_file(path: Path, trial: TrialRecord) -> Path:
    """Its `best.pt`. Raises ConfigError where it has none."""
    file = StudyFiles(path).checkpoint(trial.number, CheckpointKind.BEST)
    if not file.exists():
        raise ConfigError(
            f"{file}: trial {trial.number} has no such file (it reported nothing finite, or "
            "tracking.checkpoints=none); choose another trial."
        )
    return file


def load_model(config: Config, file: Path) -> Predictor:
    """The model, whose network the study's own `model.target` builds where there is one. Raises
    AutoMLError."""
    from automl.training.predictor import load_of_table
    from automl.training.resolve import resolve_builder

    target = family_of(config).users_target
    return load_of_table(file, build=None if target is None else resolve_builder(target[1]))


def family_of(config: Config) -> Family:
    assert isinstance(config.model, Family), "Hydra makes it by its schema"
    return config.model


def _no_trial(config: Config, record: StudyRecord, key: str, number: int | None) -> ConfigError:
    if number is not None and record.trials:
        return ConfigError(
            f"{key}={number}: study {record.name} has the trials {min(record.trials)} to "
            f"{max(record.trials)}; choose one of them, or leave {key} out for the best."
        )
    return ConfigError(
        f"study.name={record.name}: no trial of it has ended with a value yet, so that there is no "
        f"model; go on with: {command_line('resume', config.study)}"
    )
