"""What can be known of a training before the first trial, by arithmetic and names; no torch.

The parent process declares, checks and estimates here; `session.py` trains.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from automl.config import (
    LOSSES,
    Config,
    DataConfig,
    DataKind,
    ObjectiveConfig,
    ObjectiveKind,
    Task,
    TrainingConfig,
)
from automl.config.losses import METRIC_OF, OF_CLASSES, OF_VALUES, SQUARED_ERROR, ValueLoss
from automl.config.metrics import PREFIX, direction_of, metrics_of, reported
from automl.data.dataset import Dataset, RefitRows
from automl.data.facts import DataFacts
from automl.errors import ConfigError
from automl.training.called import CalledFunction
from automl.training.calling import declaration_of
from automl.training.declaration import Declaration
from automl.training.family import Family, PackKey
from automl.training.inside import open_inside
from automl.training.optuna_objective.declared import declaration_of_optunas
from automl.training.params import CLASS_WEIGHT
from automl.training.reports import Goal
from automl.training.resolve import resolve_loss, resolve_objective
from automl.trial import UNKNOWN, Direction, Entry, Params, ParamValue, Request, TrialSpec, Work


@dataclass(frozen=True)
class WarmUp:
    """The learning rate rises linearly from a share of it to all of it (Goyal et al., 2017)."""

    epochs: int
    first: float
    """The share at the first step."""

    def factor(self, epoch: int, share: float) -> float:
        """What the learning rate is multiplied by when such a share of an epoch is over."""
        return min(1.0, self.first + (1 - self.first) * (epoch + share) / self.epochs)


@dataclass(frozen=True)
class MemberPlan:
    """How one of an ensemble is trained again."""

    params: Params
    """As its study names them."""
    epochs: int
    ema_decay: float


@dataclass(frozen=True)
class RefitPlan:
    """What is otherwise in the final training of a study's winner."""

    keeps_last: bool = False
    """The last report is the best: there are no rows to tell a better one by."""
    warm_up: WarmUp | None = None
    n_ranks: int = 1
    """Processes that train together; on GPUs one for each."""
    data_parallel: bool = False
    """One process takes all GPUs of the trial."""
    own_rows: RefitRows | None = None
    """Which rows, of what a function of the user's gives (data=python)."""
    members: tuple[MemberPlan, ...] = ()
    """Of an ensemble, the heaviest first: a trial is one of them, by its params."""

    def identity(self) -> Mapping[str, Any]:
        """What may not change while a refit lasts, as JSON values; its devices may."""
        warm_up = None if self.warm_up is None else asdict(self.warm_up)
        members = {"members": [asdict(member) for member in self.members]} if self.members else {}
        return {"keeps_last": self.keeps_last, "warm_up": warm_up, **members}

    @property
    def trains_alone(self) -> bool:
        """Whether its trials are no pack: lanes of one are all of a length."""
        of_devices = self.warm_up is not None or self.n_ranks > 1 or self.data_parallel
        return of_devices or bool(self.members)

    def training_of(self, params: Params, training: TrainingConfig) -> TrainingConfig:
        """The study's, at the length of that member."""
        for member in self.members:
            if member.params == params:
                return replace(training, epochs=member.epochs, ema_decay=member.ema_decay)
        return training


@dataclass(frozen=True)
class TrainingPlan:
    """What a training process needs to know of a study. Picklable."""

    objective: ObjectiveConfig
    data: DataConfig
    family: Family
    training: TrainingConfig
    metric: str
    direction: Direction
    space: tuple[str, ...] = ()
    """Names of the params in the space, for errors to tell what is never there."""
    refit: RefitPlan | None = None
    """None: a trial of a search."""
    n_models: int = 1
    """That a trial trains: its folds."""

    @classmethod
    def of(
        cls, config: Config, space: tuple[str, ...] = (), refit: RefitPlan | None = None
    ) -> TrainingPlan:
        """What the settings say of it."""
        assert isinstance(config.model, Family), "Hydra makes it by its schema"
        return cls(
            objective=config.objective,
            data=config.data,
            family=config.model,
            training=config.model.trained(config.training),
            metric=config.study.metric,
            direction=config.study.towards,
            space=space,
            refit=refit,
        )

    @property
    def goal(self) -> Goal:
        """What a trial is judged by."""
        keeps_last = self.refit is not None and self.refit.keeps_last
        at_end = self.n_models > 1
        return Goal(self.metric, self.direction, self.space, keeps_last=keeps_last, at_end=at_end)

    @property
    def users_target(self) -> tuple[str, str] | None:
        """Key and value of the setting that names a function of the user's; None: there is none."""
        if self.objective.kind is ObjectiveKind.command:
            return None
        if self.objective.kind is not ObjectiveKind.builtin:
            return "objective.target", str(self.objective.target)
        return self.family.users_target

    @property
    def users_code(self) -> tuple[tuple[str, str], ...]:
        """Likewise of all settings that name one: a process that has no torch calls none."""
        if self.objective.kind is ObjectiveKind.command:
            return ()
        found = [] if self.users_target is None else [self.users_target]
        if self.objective.kind is ObjectiveKind.builtin:
            others = {"training.loss": self.training.loss_target, "data.source": self.data.source}
            found += [(key, target) for key, target in others.items() if target is not None]
        return tuple(found)

    @property
    def uses_torch(self) -> bool:
        """Whether a process that trains loads torch. A function of the user's may; a program loads
        itself what it wants."""
        if self.objective.kind is ObjectiveKind.builtin:
            return self.family.uses_torch
        return self.objective.kind is not ObjectiveKind.command

    def trial_uses_torch(self, params: Params) -> bool:
        """Whether this trial does, so that its checkpoints are torch's."""
        builtin = self.objective.kind is ObjectiveKind.builtin
        return self.family.of(params)[0].uses_torch if builtin else self.uses_torch

    def training_of(self, params: Params) -> TrainingConfig:
        """How a trial trains."""
        own = self.training
        return own if self.refit is None else self.refit.training_of(params, own)

    def request(self, params: Params, dataset: Dataset | None) -> Request:
        """What a trial will want, as far as arithmetic tells."""
        if dataset is None or self.objective.kind is not ObjectiveKind.builtin:
            return UNKNOWN
        training = self.training_of(params)
        request = self.family.request(params, dataset.of_one_model, training)
        if request.memory_bytes is None:
            return request
        return replace(request, memory_bytes=self.n_models * request.memory_bytes)

    def work(self, params: Params, dataset: Dataset | None) -> Work | None:
        """What a whole trial has to compute; None: arithmetic does not tell."""
        if dataset is None or self.objective.kind is not ObjectiveKind.builtin:
            return None
        work = self.family.work(params, dataset.of_one_model, self.training_of(params))
        return None if work is None else replace(work, n_steps=self.n_models * work.n_steps)

    @property
    def n_reports(self) -> int | None:
        """Of a whole trial, at most; None: only its author knows."""
        if self.objective.kind is not ObjectiveKind.builtin:
            return None
        return self.family.n_reports(self.training)

    def n_reports_of(self, params: Params) -> int | None:
        """Likewise of this one."""
        if self.objective.kind is not ObjectiveKind.builtin:
            return None
        family, _ = self.family.of(params)
        return family.n_reports(family.trained(self.training))

    def pack_key(self, params: Params, *, on_host: bool) -> PackKey | None:
        """What a trial can train together with; None: it trains alone, as a user's function does,
        and what cannot be trained at all."""
        if self.objective.kind is not ObjectiveKind.builtin:
            return None
        if self.refit is not None and self.refit.trains_alone:
            return None
        return self.family.pack_key(params, self.training, on_host=on_host)


@dataclass(frozen=True)
class SessionSetup:
    """What a process that trains is given. Picklable."""

    plan: TrainingPlan
    dataset: Dataset | None = None
    """Read once, by the parent; None for an objective of the user's, which reads its own."""
    n_threads: int = 1
    """torch's threads in a trial. Two are no faster for small networks (0.8 to 1.0 times one)."""
    facts: DataFacts | None = None
    """Of data that a function of the user's gives to each such process, in place of `dataset`."""
    request_bytes: int | None = None
    """What the user declared that a trial wants."""
    packs_large: bool = False
    """Whether a user's networks train together where they are too large to gain by it."""
    inside: Entry | None = None
    """Makes what stands in for libraries that the objective logs through (`record/inside.py`);
    None: it logs through none."""
    called: CalledFunction | None = None
    """The caller's own function (objective.kind called)."""


@dataclass(frozen=True)
class SurveySetup:
    """What a process that surveys a trial is given. Picklable."""

    session: SessionSetup
    spec: TrialSpec
    """Its checkpoint folder is one to throw away."""


def declare(plan: TrainingPlan, dataset: Dataset | None) -> Declaration:
    """What the plan's objective takes and reports; a user's module is imported for it.

    Raises ConfigError where that module is missing or fails, with its own message.
    """
    if plan.objective.kind is ObjectiveKind.builtin:
        if plan.training.loss_target is not None:
            resolve_loss(plan.training.loss_target)
        taken, required = plan.family.param_names()
        return Declaration(taken, required, reported(_task(plan, dataset)))
    if plan.objective.kind is ObjectiveKind.command:
        return Declaration(None, (), None)
    assert plan.objective.target is not None, "ObjectiveConfig refuses kind python without target"
    function = resolve_objective(plan.objective.target)
    if plan.objective.kind is ObjectiveKind.optuna:
        return declaration_of_optunas(function, f"objective.target={plan.objective.target}")
    return declaration_of(function, plan.space, f"objective.target={plan.objective.target}")


def declare_users(setup: SessionSetup) -> Declaration:
    """`declare` without data, to be called in a process that may import the user's module."""
    with open_inside(setup.inside).importing():
        return declare(setup.plan, None)


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


def check_conditions(declaration: Declaration, conditional: Iterable[str]) -> None:
    """Raise ConfigError where a param that not every trial has is one that each must be given."""
    for name in conditional:
        if name in declaration.always:
            raise ConfigError(
                f"space.{name}: a trial has it only under its condition (when), and the "
                f"objective's argument {name} must always be given. Give that a default, or take "
                "the condition out."
            )


def check_values(plan: TrainingPlan, values: Mapping[str, Iterable[ParamValue]]) -> None:
    """Raise ConfigError where the built-in objective cannot take a bound or choice of the space.

    `values` holds, for each param, the values to look at. A user's objective takes anything.
    """
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
    """Raise ConfigError where a metric of the built-in training is not one of such targets, or
    is wanted the wrong way round."""
    if metric not in reported(Task.auto):
        return  # told by `check_space`, with those that there are
    if metric not in reported(task):
        targets = "numbers" if task is Task.regression else "classes"
        suit = ", ".join(f"{PREFIX}{name}" for name in metrics_of(task, loss))
        raise ConfigError(
            f"study.metric={metric}: does not suit the targets, which are {targets} "
            f"(data.task={task.value}). Those that do: {suit}."
        )
    own = {f"{PREFIX}{name}": named for named, name in METRIC_OF.items()}
    if metric in own and own[metric] != loss.name:
        raise ConfigError(
            f"study.metric={metric}: it is that of training.loss={own[metric]}, and models here "
            f"descend {loss.name}: add training.loss={own[metric]}, or take another metric."
        )
    good = direction_of(metric)
    if direction is not good:
        size = "large" if good is Direction.maximize else "small"
        raise ConfigError(
            f"study.direction={direction.value}: of {metric} {size} values are good. Leave "
            f"study.direction out, or set it to {good.value}."
        )


def check_class_weight(names: Iterable[str], loss: str, task: Task) -> None:
    """Raise ConfigError where a space weighs classes that there are not, or in a loss that is not
    ours."""
    weighing = [n for n in names if n == CLASS_WEIGHT or n.endswith(f"_{CLASS_WEIGHT}")]
    if not weighing or (task is Task.classification and loss in LOSSES):
        return
    why = (
        f"training.loss={loss} is a loss of your own, which can weigh them itself"
        if task is Task.classification
        else f"the targets are numbers (data.task={task.value}), and have no classes"
    )
    raise ConfigError(f"space.{weighing[0]}: {why}. Take it out with ~space.{weighing[0]}.")


def check_loss(name: str, task: Task) -> None:
    """Raise ConfigError where `training.loss` is not one of such targets."""
    suits = OF_VALUES if task is Task.regression else OF_CLASSES
    if name not in (*suits, "auto") and name in LOSSES:
        targets = "numbers" if task is Task.regression else "classes"
        other = Task.classification if task is Task.regression else Task.regression
        raise ConfigError(
            f"training.loss={name}: the targets are {targets} (data.task={task.value}), whose loss "
            f"is {' or '.join(suits)}. Leave training.loss out, or set data.task={other.value} if "
            "they are meant otherwise."
        )


def check_counts(dataset: Dataset) -> None:
    """Raise ConfigError where rates are wanted of targets that are no counts."""
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
    """Raise ConfigError where even the smallest batch of a space needs more rows than there are."""
    if smallest > n_train:
        raise ConfigError(
            f"space.batch_size={smallest}: the training part of {name} has only {n_train} "
            f"rows, fewer than the smallest batch. Allow batches of {n_train} or less, or give "
            "more rows."
        )


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
