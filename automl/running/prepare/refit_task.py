"""Checks the settings of a refit, and finds the trials that it repeats. No torch is imported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from automl.config import Config, DataKind, ObjectiveKind, ParallelKind, RefitArguments
from automl.data.dataset import RefitRows
from automl.errors import ConfigError
from automl.models.family import family_name, family_of
from automl.models.networks.network_family import NetworkFamily
from automl.record.study_files import StudyFiles
from automl.record.study_record import StudyRecord
from automl.record.trial_record import TrialRecord
from automl.trial import EnsembleBuilt, Params

RefitWinner: TypeAlias = TrialRecord | EnsembleBuilt
"""The trial, or the ensemble of trials, that a refit trains again."""


@dataclass(frozen=True)
class RefitTask:
    """A refit with checked settings, and the trials that it repeats."""

    config: Config
    """The config of the study that is refitted."""
    arguments: RefitArguments
    path: Path
    members: Sequence[TrialRecord]
    """The trials that are trained again: one, or the members of an ensemble, the heaviest first."""
    ensemble: EnsembleBuilt | None = None
    """The ensemble that is trained again. None if a single trial is."""
    timeout_seconds: float | None = None
    """Seconds after which the trainings are stopped. None for no limit."""

    @property
    def single_trial(self) -> int | None:
        """Number of the trial that is trained again; None if an ensemble is."""
        return self.members[0].number if self.ensemble is None else None

    @property
    def rows(self) -> RefitRows:
        """The rows that are trained on."""
        return RefitRows(self.arguments.rows, self.arguments.hold_out)


def make_refit_task(
    config: Config, arguments: RefitArguments, path: Path, record: StudyRecord, winner: RefitWinner
) -> RefitTask:
    """Return a refit of the winner, which is of the study at `path`. Raises ConfigError."""
    if isinstance(winner, TrialRecord):
        _refuse_unfit_batch(config, arguments, winner.params)
        return RefitTask(config, arguments, path, [winner])
    _refuse_parallel_members(arguments)
    members = _ensemble_trials(winner, record, config.study.name)
    return RefitTask(config, arguments, path, members, winner)


def ensemble_to_refit(record: StudyRecord, path: Path) -> EnsembleBuilt | None:
    """Return the ensemble of the study at `path` if it is the winner, or None if a trial is."""
    there = StudyFiles(path).ensemble.exists()
    return record.best_ensemble if there else None


def _ensemble_trials(
    ensemble: EnsembleBuilt, record: StudyRecord, name: str | None
) -> list[TrialRecord]:
    """Return the trials that the ensemble joins. Raises ConfigError if the study does not know one
    any more."""
    found = {number: record.trials.get(number) for number in ensemble.members}
    known = [t for t in found.values() if t is not None and t.best_step is not None]
    lost = found.keys() - {trial.number for trial in known}
    if lost:
        raise ConfigError(
            f"study.name={name}: its event log does not tell what trial {min(lost)}, a member of "
            "the ensemble, was: make the ensemble again (which=ensemble), or train the best trial "
            "again: which=best."
        )
    return known


def refuse_unfit_settings(config: Config, refit: RefitArguments) -> None:
    """Raise ConfigError for settings that cannot be refitted, or not with these arguments."""
    kind = config.objective.kind
    if kind is ObjectiveKind.outside:
        raise ConfigError(
            f"study.name={config.study.name}: its trials run elsewhere (objective=outside), and "
            "there is nothing to train here."
        )
    if kind is ObjectiveKind.called:
        raise ConfigError(
            f"study.name={config.study.name}: its function was given to automl.sweep(…) and is "
            "stored nowhere. Put it into a module and begin a study with "
            "train=module:function, which can be refitted."
        )
    if kind is ObjectiveKind.builtin:
        if config.data.kind is DataKind.python and refit.seeds > 1:
            raise ConfigError(
                f"seeds={refit.seeds}: models of rows that a function of your own "
                f"gives (data.source={config.data.source}) are not averaged. Leave it out."
            )
        return
    if refit.seeds > 1:
        raise ConfigError(
            f"seeds={refit.seeds}: what your own training makes cannot be averaged here. "
            "Leave it out, and train several in your function when trial.refit is true."
        )
    for key, value in (("hold_out", refit.hold_out), ("batch_size", refit.batch_size)):
        if value is not None:
            raise ConfigError(
                f"{key}={value}: your own training decides that; it is told by trial.refit "
                "(AUTOML_REFIT=1). Leave it out."
            )


def _refuse_parallel_members(refit: RefitArguments) -> None:
    """Raise ConfigError for arguments of one training that takes several devices."""
    settings = {
        "batch_size": refit.batch_size,
        "parallel": None if refit.parallel is ParallelKind.auto else refit.parallel.value,
    }
    for key, value in settings.items():
        if value not in (None, ParallelKind.none.value):
            raise ConfigError(
                f"{key}={value}: members of an ensemble are trained as they were, beside each "
                "other, a device for each: leave it out, or train the best trial again: which=best."
            )


def _refuse_unfit_batch(config: Config, refit: RefitArguments, params: Params) -> None:
    """Raise ConfigError if a batch size is set and the family of these params trains in no
    batches."""
    if refit.batch_size is None or config.objective.kind is not ObjectiveKind.builtin:
        return
    family, _ = family_of(config).of_trial(params)  # with `model=auto`, the trial's own family
    if not isinstance(family, NetworkFamily):
        raise ConfigError(
            f"batch_size={refit.batch_size}: model={family_name(family)} trains in "
            "no batches. Leave it out."
        )
