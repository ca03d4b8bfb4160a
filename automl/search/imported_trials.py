"""Begins a study with the trials of a study that somebody made with Optuna (`optuna_source.py`).

The trials are copied once, when the study begins. A kill in between leaves fewer than the note in
the storage says, and the next sweep copies the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial

from automl.errors import ConfigError
from automl.record.texts import counted
from automl.search.optuna_source import OptunaStudy
from automl.search.optuna_trials import MLFLOW_RUN, optuna_distributions
from automl.search.search_space import SearchSpace
from automl.search.storage import FIXED_PARAMS, IMPORTED, OUTSIDE_SPACE
from automl.trial import StudyMetrics, trial_name

IMPORTED_NOTE = "automl:began_with"
"""The study's user attribute that says which trials it began with, and how many they are."""


def import_trials(
    storage: BaseStorage,
    study_id: int,
    read: Callable[[], OptunaStudy] | None,
    metrics: StudyMetrics,
    space: SearchSpace,
    *,
    asks_for_params: bool,
    enqueues: bool = False,
) -> str:
    """Copy the trials of the study that `read` returns, unless they are there. Return a line about
    them, or nothing. `asks_for_params`: trials may have params that the space lacks.

    Raises ConfigError where the other study has other metrics, or has lost trials in between, and
    where this one has trials of its own or, if `enqueues`, points to try first.
    """
    note = storage.get_study_user_attrs(study_id).get(IMPORTED_NOTE)
    n_known = len(storage.get_all_trials(study_id, deepcopy=False))
    if read is None or (note is not None and n_known >= note["n"]):
        return ""
    study = read()
    if note is None and n_known:
        raise ConfigError(
            f"from={study.where}: this study has {counted(n_known, 'trial')} of its own already, "
            "and only a new one begins with those of another: give name=NEW."
        )
    _refuse_other_metrics(study, metrics)
    if note is None and enqueues:
        raise ConfigError(
            f"study.enqueue: a study that begins with trials of another ({study.where}) tries no "
            "points before them: leave it out, and add the points once the study is there: automl "
            "enqueue NAME params='{…}'."
        )
    if note is None:
        note = {"from": study.where, "study": study.name, "n": len(study.trials)}
        storage.set_study_user_attr(study_id, IMPORTED_NOTE, note)
    elif len(study.trials) < note["n"]:
        raise ConfigError(
            f"from={study.where}: study {study.name} had {counted(note['n'], 'trial')} when this "
            f"one began with them, and has {len(study.trials)} now; delete this study, and begin "
            "it again."
        )
    for trial in study.trials[n_known : note["n"]]:
        copied = _copied_trial(trial, space, asks_for_params=asks_for_params)
        storage.create_new_trial(study_id, template_trial=copied)
    n_trials = counted(note["n"], "trial")
    told = f"began with {n_trials} of study {study.name} ({study.where}): {study.counts}"
    if n := study.n_constrained:
        told += f"; {counted(n, 'trial')} had constraints of Optuna's, which are not taken"
    return told


def _refuse_other_metrics(study: OptunaStudy, metrics: StudyMetrics) -> None:
    ours = [metric.direction for metric in metrics.metrics]
    if tuple(ours) == study.directions:
        return
    names = study.metric_names or tuple(f"value_{n}" for n in range(len(study.directions)))
    metric = ",".join(names)
    directions = ",".join(direction.value for direction in study.directions)
    if len(study.directions) > 1:
        metric, directions = f"[{metric}]", f"[{directions}]"
    raise ConfigError(
        f"from={study.where}: study {study.name} has {counted(len(study.directions), 'value')} "
        f"({directions}), and this one {counted(len(ours), 'metric')} "
        f"({', '.join(d.value for d in ours)}). Give metric={metric} direction={directions}."
    )


def _copied_trial(trial: FrozenTrial, space: SearchSpace, *, asks_for_params: bool) -> FrozenTrial:
    """Return a trial for our storage. With a written space, its params get the distributions of
    this space; samplers do not see a trial with a value outside."""
    fixed = trial.system_attrs.get(FIXED_PARAMS)
    system: dict[str, Any] = {} if fixed is None else {FIXED_PARAMS: fixed}
    if trial.state.is_finished():
        system[IMPORTED] = trial.number
    distributions: Mapping[str, BaseDistribution] = trial.distributions
    params = trial.params
    if not asks_for_params:
        params = {name: value for name, value in params.items() if name in space.names}
        known = optuna_distributions(space)
        outside = [n for n, value in params.items() if not space[n].domain.contains(value)]
        distributions = {
            name: CategoricalDistribution((params[name],)) if name in outside else known[name]
            for name in params
            if name in outside or name in known
        }
        params = {name: params[name] for name in distributions}
        if outside and trial.state.is_finished():
            system[OUTSIDE_SPACE] = ", ".join(outside)
    return FrozenTrial(
        number=trial.number,
        trial_id=-1,  # the storage gives it one
        state=trial.state,
        value=None,
        values=trial.values,
        datetime_start=trial.datetime_start,
        datetime_complete=trial.datetime_complete,
        params=params,
        distributions=dict(distributions),
        user_attrs={
            **{str(key): value for key, value in trial.user_attrs.items()},
            MLFLOW_RUN: trial_name(trial.number),
        },
        system_attrs=system,
        intermediate_values=trial.intermediate_values,
    )
