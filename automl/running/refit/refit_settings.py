"""Checks the settings of a refit before anything heavy is loaded. The file imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from automl.config import Config, DataKind, ObjectiveKind, RefitMembers
from automl.errors import ConfigError
from automl.models.family import family_name, family_of
from automl.models.networks.network_family import NetworkFamily
from automl.record.study_files import StudyFiles
from automl.record.study_record import StudyRecord
from automl.record.trial_record import TrialRecord
from automl.trial import EnsembleBuilt, Params


@dataclass(frozen=True)
class RefitTask:
    """A refit with checked settings, and its winner."""

    config: Config
    """The config of the study that is refitted."""
    path: Path
    winner: TrialRecord
    """The best trial, or the trial that was named."""
    ensemble: EnsembleBuilt | None = None
    """The ensemble that is trained again. None if the winner is."""
    members: Sequence[TrialRecord] = ()
    """The members of the ensemble, in its order."""
    timeout_seconds: float | None = None
    """Seconds after which the trainings are stopped. None for no limit."""


def ensemble_to_refit(record: StudyRecord, config: Config, path: Path) -> EnsembleBuilt | None:
    """Return the ensemble of the study at `path` if `refit` trains it again, or None if it trains a
    trial."""
    refit = config.refit
    if refit.trial is not None or refit.members is RefitMembers.none:
        return None
    there = StudyFiles(path).ensemble.exists()
    return record.best_ensemble if there else None


def refuse_unfit_settings(config: Config) -> None:
    """Raise ConfigError for settings that cannot be refitted."""
    kind = config.objective.kind
    if kind is ObjectiveKind.called:
        raise ConfigError(
            f"study.name={config.study.name}: its function was given to automl.sweep(…) and is "
            "stored nowhere. Put it into a module and begin a study with "
            "objective=python objective.target=module:function, which can be refitted."
        )
    if kind is ObjectiveKind.builtin:
        _refuse_seeds_of_arrays(config)
        return
    what = "your own training decides that; it is told by trial.refit (AUTOML_REFIT=1)"
    refit = config.refit
    if refit.n_seeds > 1:
        raise ConfigError(
            f"refit.n_seeds={refit.n_seeds}: what your own training makes cannot be averaged here. "
            "Leave it out, and train several in your function when trial.refit is true."
        )
    for key, value in (("hold_out", refit.hold_out), ("batch_size", refit.batch_size)):
        if value is not None:
            raise ConfigError(f"refit.{key}={value}: {what}. Leave it out.")


def _refuse_seeds_of_arrays(config: Config) -> None:
    if config.data.kind is DataKind.python and config.refit.n_seeds > 1:
        raise ConfigError(
            f"refit.n_seeds={config.refit.n_seeds}: models of rows that a function of your own "
            f"gives (data.source={config.data.source}) are not averaged. Leave it out."
        )


def refuse_unfit_batch(config: Config, params: Params) -> None:
    """Raise ConfigError if a batch size is set and the family of these params trains in no
    batches."""
    if config.refit.batch_size is None or config.objective.kind is not ObjectiveKind.builtin:
        return
    model_family = family_of(config)
    family, _ = model_family.of_trial(params)  # with `model=auto`, the trial's own family
    if not isinstance(family, NetworkFamily):
        raise ConfigError(
            f"refit.batch_size={config.refit.batch_size}: model={family_name(family)} trains in "
            "no batches. Leave it out."
        )
