"""Refuses a sweep for what can be known before libraries are loaded: settings, the space, and the
files that they name.

The file stands alone because it must import neither numpy nor Optuna, which take seconds to load.
What needs the data or the user's code is refused by `preparation.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from automl.config import Config, DataKind, ExecutionKind, ObjectiveKind, Task
from automl.config.metrics import check_reported, reported_metric
from automl.data.tables.named_file import NamedFile
from automl.in_trial.user_code import refuse_missing_target
from automl.models.family import family_of
from automl.running.prepare.purpose import SEARCH, SweepPurpose
from automl.running.prepare.resume_command import refuse_missing_function
from automl.running.prepare.several_metrics import refuse_several_metrics
from automl.search.search_space import parse_space

if TYPE_CHECKING:
    from automl.objectives.function_call import CalledFunction


def refuse_early(
    config: Config,
    called: CalledFunction | None = None,
    *,
    purpose: SweepPurpose = SEARCH,
    trains: bool = True,
) -> None:
    """Raise ConfigError for a sweep that cannot begin, as far as its settings and the disk tell.

    Unless it `trains`, extras that train may be missing.
    """
    refuse_missing_function(config, called)
    refuse_several_metrics(config)
    space = parse_space(family_of(config).searched_space(config.space))
    if config.objective.kind is ObjectiveKind.builtin:
        family = family_of(config)
        if trains:
            family.check_ready()
        family.check_space(space.names)
        family.check_training(config.training)
        _refuse_unknown_metrics(config)
    if purpose.checks_choices:
        _refuse_missing_files(config)
    if config.execution.kind is ExecutionKind.ray:
        from automl.execution.cluster.ray_cluster import refuse_missing_ray

        refuse_missing_ray()


def _refuse_unknown_metrics(config: Config) -> None:
    """Raise ConfigError for a metric that no training on a table reports."""
    data, metrics = config.data, config.study.metrics
    if data.kind is not DataKind.python:  # its function may name others
        task = data.task if data.kind is DataKind.csv else Task.classification
        known = reported_metric(task, config.study.users_metric)
        check_reported(metrics.leading.name, metrics.more_names, known)


def _refuse_missing_files(config: Config) -> None:
    """Raise ConfigError for a table, a file of a function or a program that is not there."""
    data, objective, study = config.data, config.objective, config.study
    if objective.kind is ObjectiveKind.builtin:
        tables = {"data.path": data.path, "data.test": data.test_path}
        for key, path in tables.items() if data.kind is DataKind.csv else ():
            if path is not None:
                NamedFile.at(key, path)
        targets = {
            "model.target": getattr(config.model, "target", None),
            "data.source": data.source,
            "training.loss": config.training.loss_target,
            "study.metric": None if study.metric_parts else study.metric_function,
        }
    else:
        targets = {"objective.target": objective.target}
    for key, target in targets.items():
        if target is not None and objective.kind is not ObjectiveKind.called:
            refuse_missing_target(key, target)
    if objective.kind is ObjectiveKind.command:
        from automl.objectives.program.program_flags import refuse_missing_program

        refuse_missing_program(str(objective.command))
