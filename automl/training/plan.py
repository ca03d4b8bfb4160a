"""What can be known of a training before the first trial, by arithmetic and names; no torch.

The parent process declares, checks and estimates here; `session.py` trains.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from automl.config import (
    DataConfig,
    DataKind,
    ModelConfig,
    ModelKind,
    ObjectiveConfig,
    ObjectiveKind,
    Precision,
    Task,
    TrainingConfig,
)
from automl.data.dataset import Dataset
from automl.data.one_hot import n_features
from automl.errors import ConfigError
from automl.training import params as builtin
from automl.training.objective import declared_by
from automl.training.resolve import builder_params, resolve_objective
from automl.trial import Direction, Params, ParamValue

_METRICS = {
    Task.classification: ("train_loss", "val_loss", "val_error"),
    Task.regression: ("train_loss", "val_loss", "val_rmse"),
    Task.auto: ("train_loss", "val_loss", "val_error", "val_rmse"),  # not known yet
}
_EVALUATION_ROWS = 8192  # as in trainer.py, which imports torch
_BASE_BYTES = 32 * 2**20  # libraries' workspaces (cuBLAS keeps 8 to 32 MiB) and small change


@dataclass(frozen=True)
class TrainingPlan:
    """What a training process needs to know of a study. Picklable."""

    objective: ObjectiveConfig
    data: DataConfig
    model: ModelConfig
    training: TrainingConfig
    metric: str
    direction: Direction
    space: tuple[str, ...] = ()
    """Names of the params in the space, for errors to tell what is never there."""

    @property
    def users_target(self) -> tuple[str, str] | None:
        """Key and value of the setting that names a function of the user's; None: there is none."""
        if self.objective.kind is ObjectiveKind.python:
            return "objective.target", str(self.objective.target)
        if self.model.kind is ModelKind.python:
            return "model.target", str(self.model.target)
        return None


@dataclass(frozen=True)
class SessionSetup:
    """What a process that trains is given. Picklable."""

    plan: TrainingPlan
    dataset: Dataset | None = None
    """Read once, by the parent; None for an objective of the user's, which reads its own."""
    n_threads: int = 1
    """torch's threads in a trial. Two are no faster for small networks (0.8 to 1.0 times one)."""
    packs_large: bool = False
    """Whether a user's networks train together where they are too large to gain by it."""


@dataclass(frozen=True)
class Declaration:
    """What an objective takes and reports; None where it did not say."""

    params: tuple[str, ...] | None
    required: tuple[str, ...]
    """Those of `params` that must be in the space."""
    metrics: tuple[str, ...] | None


def metrics_of(task: Task) -> tuple[str, ...]:
    """What the built-in objective reports."""
    return _METRICS[task]


def declare(plan: TrainingPlan, dataset: Dataset | None) -> Declaration:
    """What the plan's objective takes and reports; a user's module is imported for it.

    Raises ConfigError where that module is missing or fails, with its own message.
    """
    if plan.objective.kind is ObjectiveKind.builtin:
        return _declare_builtin(plan.model, metrics_of(_task(plan, dataset)))
    assert plan.objective.target is not None, "ObjectiveConfig refuses kind python without target"
    declared = declared_by(resolve_objective(plan.objective.target))
    taken = None if declared.params is None else (*declared.params, *declared.optional)
    return Declaration(taken, declared.params or (), declared.metrics)


def _declare_builtin(model: ModelConfig, metrics: tuple[str, ...]) -> Declaration:
    if model.kind is ModelKind.mlp:
        return Declaration(builtin.names(model.growth), (), metrics)
    assert model.target is not None, "ModelConfig refuses kind python without target"
    own, required = builder_params(model.target)
    taken = None if own is None else (*own, *builtin.TRAINING_NAMES)
    return Declaration(taken, required, metrics)


def declare_users(plan: TrainingPlan) -> Declaration:
    """`declare` without data, to be called in a process that may import the user's module."""
    return declare(plan, None)


def check_space(declaration: Declaration, names: Iterable[str], metric: str) -> None:
    """Raise ConfigError where a space or the study's metric does not fit the objective."""
    space = tuple(names)
    if declaration.params is not None:
        for name in space:
            _check_known(f"space.{name}", name, declaration.params, "the objective takes")
    missing = [name for name in declaration.required if name not in space]
    if missing:
        raise ConfigError(
            f"space: {', '.join(missing)} not there, which the objective requires. "
            f"The space has: {', '.join(space) or 'nothing'}. Add space.{missing[0]}=…"
        )
    if declaration.metrics is not None:
        _check_known(f"study.metric={metric}", metric, declaration.metrics, "the objective reports")


def check_values(plan: TrainingPlan, values: Mapping[str, Iterable[ParamValue]]) -> None:
    """Raise ConfigError where the built-in objective cannot take a bound or choice of the space.

    `values` holds, for each param, the values to look at. A user's objective takes anything.
    """
    if plan.objective.kind is not ObjectiveKind.builtin:
        return
    for name, candidates in values.items():
        if plan.model.kind is ModelKind.python and name not in builtin.TRAINING_NAMES:
            continue
        for value in candidates:
            try:
                builtin.check_value(name, value)
            except ValueError as error:
                raise ConfigError(f"space.{error} Change space.{name}.") from error


def check_batch(dataset: Dataset, smallest: int) -> None:
    """Raise ConfigError where even the smallest batch of a space needs more rows than there are."""
    n_train = len(dataset.train)
    if smallest > n_train:
        raise ConfigError(
            f"space.batch_size={smallest}: the training part of {dataset.name} has only {n_train} "
            f"rows, fewer than the smallest batch. Allow batches of {n_train} or less, or give "
            "more rows."
        )


def request_bytes(plan: TrainingPlan, params: Params, dataset: Dataset | None) -> int | None:
    """Memory that a trial of the built-in network will want on its device; None: not known.

    The data, weights with gradient and optimizer state, the activations of a batch and their
    gradients, and those of a look at the validation part. Rather too much than too little.
    """
    if plan.objective.kind is not ObjectiveKind.builtin or dataset is None:
        return None
    if plan.model.kind is not ModelKind.mlp:
        return None
    try:
        mlp = builtin.MLPParams.of(params)
    except (TypeError, ValueError):  # the trial will fail with this message
        return None
    item_bytes = 8 if plan.training.precision is Precision.float64 else 4
    width = n_features(dataset.columns)
    widths = (
        width,
        *mlp.hidden_widths(plan.model.growth),
        dataset.n_outputs,
    )
    n_weights = sum((a + 1) * b for a, b in pairwise(widths))
    n_rows = len(dataset.train) + len(dataset.validation)
    n_copies = 3 if mlp.optimizer == "sgd" else 4  # weights, gradient, one or two moments
    # Per layer: input, linear output, ReLU, mask, product, and gradients of two of them.
    n_activations = min(mlp.batch_size, len(dataset.train)) * sum(widths) * 7
    n_evaluation = min(_EVALUATION_ROWS, len(dataset.validation)) * max(widths) * 3
    n_items = n_rows * (width + 2) + n_weights * n_copies + n_activations + n_evaluation
    return _BASE_BYTES + n_items * item_bytes


def _task(plan: TrainingPlan, dataset: Dataset | None) -> Task:
    if dataset is not None:
        return dataset.task
    return plan.data.task if plan.data.kind is DataKind.csv else Task.classification


def _check_known(what: str, name: str, known: tuple[str, ...], rule: str) -> None:
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=1)
    guess = f" Did you mean {near[0]}?" if near else ""
    raise ConfigError(f"{what}: unknown here; {rule}: {', '.join(known) or 'nothing'}.{guess}")
