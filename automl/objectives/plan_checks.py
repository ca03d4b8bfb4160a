"""Checks that a plan, a space and a table fit each other, before the first trial.

The functions are pure: each raises ConfigError or returns notes. A single setting is checked in
`automl.config`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from automl.config import LOSSES, ObjectiveKind, Task
from automl.config.checks import check_known_name
from automl.config.metrics import (
    CLASS_LOSSES,
    JUDGED_PREFIX,
    METRIC_OF_LOSS,
    RMSLE,
    SQUARED_ERROR,
    VALUE_LOSSES,
    ValueLoss,
    check_reported,
    metric_direction,
    prediction_metrics,
    reported_metric,
)
from automl.data.dataset import Dataset
from automl.data.scoring.label_thresholds import MAX_CLASSES
from automl.errors import ConfigError
from automl.models.judged_rows import TRIAL_THRESHOLD_METRICS
from automl.models.networks.network_family import CLASS_WEIGHT_PARAM
from automl.objectives.function_call import ObjectiveDeclaration
from automl.objectives.training_plan import TrainingPlan
from automl.record.texts import counted
from automl.trial import Direction, ParamValue


def check_space(
    declaration: ObjectiveDeclaration,
    names: Iterable[str],
    metric: str,
    more_metrics: Sequence[str] = (),
) -> None:
    """Raise ConfigError if the space or a metric of the study's does not fit the objective."""
    space = tuple(names)
    if declaration.params is not None:
        for name in space:
            hint, rule = _space_hint(name, space), "the objective takes"
            check_known_name(f"space.{name}", name, declaration.params, rule, hint)
    missing = [name for name in declaration.required if name not in space]
    if missing:
        raise ConfigError(
            f"space: {', '.join(missing)} not there, which the objective requires. "
            f"The space has: {', '.join(space) or 'nothing'}. Add space.{missing[0]}=…"
        )
    if declaration.metrics is not None:
        check_reported(metric, more_metrics, declaration.metrics)


def check_conditions(declaration: ObjectiveDeclaration, conditional: Iterable[str]) -> None:
    """Raise ConfigError if a conditional param is one that the objective needs in every trial."""
    for name in conditional:
        if name in declaration.always:
            raise ConfigError(
                f"space.{name}: a trial has it only under its condition (when), and the "
                f"objective's argument {name} must always be given. Give that a default, or take "
                "the condition out."
            )


def check_values(plan: TrainingPlan, values: Mapping[str, Iterable[ParamValue]]) -> None:
    """Raise ConfigError if the built-in objective cannot take one of a param's `values`."""
    if plan.objective.kind is not ObjectiveKind.builtin:
        return
    for name, candidates in values.items():
        for value in candidates:
            try:
                plan.family.check_value(name, value)
            except ValueError as error:
                raise ConfigError(f"space.{error} Change space.{name}.") from error


def check_metric(
    metric: str, direction: Direction, task: Task, loss: ValueLoss = SQUARED_ERROR
) -> None:
    """Raise ConfigError if a built-in metric does not suit the targets, loss or direction."""
    if metric not in reported_metric(Task.auto):
        return  # `check_space` refuses it, and lists the known ones
    if metric not in reported_metric(task):
        targets = "numbers" if task is Task.regression else "classes"
        suit = ", ".join(f"{JUDGED_PREFIX}{name}" for name in prediction_metrics(task, loss))
        raise ConfigError(
            f"study.metric={metric}: does not suit the targets, which are {targets} "
            f"(data.task={task.value}). Those that do: {suit}."
        )
    own = {f"{JUDGED_PREFIX}{name}": named for named, name in METRIC_OF_LOSS.items()}
    if metric in own and own[metric] != loss.name:
        raise ConfigError(
            f"study.metric={metric}: it is that of training.loss={own[metric]}, and models here "
            f"descend {loss.name}: add training.loss={own[metric]}, or take another metric."
        )
    good = metric_direction(metric)
    if direction is not good:
        size = "large" if good is Direction.maximize else "small"
        raise ConfigError(
            f"study.direction={direction.value}: of {metric} {size} values are good. Leave "
            f"study.direction out, or set it to {good.value}."
        )


def check_class_weight(names: Iterable[str], loss: str, task: Task) -> None:
    """Raise ConfigError if a space weighs classes but there are none, or the loss is the user's."""
    weighing = [n for n in names if n == CLASS_WEIGHT_PARAM or n.endswith(f"_{CLASS_WEIGHT_PARAM}")]
    if not weighing or (task is Task.classification and loss in LOSSES):
        return
    why = (
        f"training.loss={loss} is a loss of your own, which can weigh them itself"
        if task is Task.classification
        else f"the targets are numbers (data.task={task.value}), and have no classes"
    )
    raise ConfigError(f"space.{weighing[0]}: {why}. Take it out with ~space.{weighing[0]}.")


def check_loss(name: str, task: Task) -> None:
    """Raise ConfigError if `training.loss` does not suit the targets of the task."""
    suits = VALUE_LOSSES if task is Task.regression else CLASS_LOSSES
    if name not in (*suits, "auto") and name in LOSSES:
        targets = "numbers" if task is Task.regression else "classes"
        other = Task.classification if task is Task.regression else Task.regression
        raise ConfigError(
            f"training.loss={name}: the targets are {targets} (data.task={task.value}), whose loss "
            f"is {' or '.join(suits)}. Leave training.loss out, or set data.task={other.value} if "
            "they are meant otherwise."
        )


def threshold_notes(metric: str, dataset: Dataset) -> tuple[str, ...]:
    """Return a note if labels follow no threshold as the metric wants, for too many classes."""
    n_classes = len(dataset.classes)
    is_wanted = metric.removeprefix(JUDGED_PREFIX) in TRIAL_THRESHOLD_METRICS
    if not is_wanted or n_classes <= MAX_CLASSES:
        return ()
    return (
        f"study.metric={metric}: of {n_classes} classes a row is said to be of the likeliest; a "
        f"threshold of their own is found for up to {MAX_CLASSES}. Where rare ones matter, "
        "space.class_weight=none,balanced tries both.",
    )


def check_log_targets(metric: str, dataset: Dataset) -> None:
    """Raise ConfigError if the metric is RMSLE and some target is below 0."""
    if metric != f"{JUDGED_PREFIX}{RMSLE}":
        return
    n_below = sum(int((part.y < 0).sum()) for part in (dataset.train, dataset.validation))
    if n_below:
        raise ConfigError(
            f"study.metric={metric}: it is of targets from 0 on, and {counted(n_below, 'row')} of "
            f"those that train and judge {'is' if n_below == 1 else 'are'} below 0: take val_rmse "
            "or val_mae, or leave those rows out."
        )


def check_counts(dataset: Dataset) -> None:
    """Raise ConfigError if the Poisson loss is set and the targets are no counts."""
    if dataset.loss.name != "poisson":
        return
    parts = dataset.train, dataset.validation
    n_below = sum(int((part.y < 0).sum()) for part in parts)
    if n_below or not any((part.y > 0).any() for part in parts):
        what = f"{n_below:,} rows are below 0" if n_below else "all are 0"
        raise ConfigError(
            f"training.loss=poisson: targets are counts, or other amounts from 0 on, and {what} in "
            "what trains and judges: take squared_error, or leave those rows out."
        )


def check_batch(name: str, n_train: int, smallest: int) -> None:
    """Raise ConfigError if even the smallest batch of a space exceeds the training part."""
    if smallest > n_train:
        raise ConfigError(
            f"space.batch_size={smallest}: the training part of {name} has only {n_train} "
            f"rows, fewer than the smallest batch. Allow batches of {n_train} or less, or give "
            "more rows."
        )


_DEFAULT_SPACE = frozenset(("depth", "width", "lr", "batch_size"))
"""The params of conf/space/mlp.yaml, which a command line has that names no space."""


def _space_hint(name: str, space: tuple[str, ...]) -> str:
    """Return the remedy for a param that comes from the default space; empty for others."""
    if name not in _DEFAULT_SPACE.intersection(space) or not _DEFAULT_SPACE.issubset(space):
        return ""
    return (
        " It is a param of the built-in network's space, the default, to which space.NAME=… "
        "adds. Give the space whole: space='{NAME: …}'"
    )
