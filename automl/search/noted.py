"""What is written into a study for those who look at it with Optuna's own tools."""

from __future__ import annotations

import optuna
from optuna.samplers import RandomSampler
from optuna.storages import BaseStorage

from automl.record.texts import fit_line
from automl.search.excess import AT_LEAST, EXCESS
from automl.search.storage import study_as_it_stands
from automl.trial import Failed, Outcome, TooLarge

MLFLOW_RUN, DEVICE, CAUSE = "mlflow_run", "device", "cause"
"""User attributes of a trial."""
MAX_CAUSE_CHARACTERS = 500


def note_end(storage: BaseStorage, trial_id: int, outcome: Outcome, device: str | None) -> None:
    """For optuna-dashboard: a line in the journal, two for a trial that failed."""
    if device is not None:
        storage.set_trial_user_attr(trial_id, DEVICE, device)
    if isinstance(outcome, Failed | TooLarge):
        cause = fit_line(outcome.cause, MAX_CAUSE_CHARACTERS)
        storage.set_trial_user_attr(trial_id, CAUSE, cause)


def name_metric(storage: BaseStorage, study_name: str, metric: str) -> None:
    """Optuna shows values under this name; written once, to studies of earlier versions too."""
    study = study_as_it_stands(RandomSampler(), storage, study_name)
    if study.metric_names != [metric]:
        study.set_metric_names([metric])


def set_excess(storage: BaseStorage, study_name: str, trial_id: int, outcome: TooLarge) -> None:
    """By how much a trial is too large, as a constraint; once."""
    key = AT_LEAST if outcome.at_least else EXCESS
    if key not in storage.get_trial(trial_id).constraints:
        study = optuna.load_study(study_name=study_name, storage=storage, sampler=RandomSampler())
        optuna.trial.Trial(study, trial_id).set_constraint(key, outcome.excess)
