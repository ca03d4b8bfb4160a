"""Describes the training of a study before the first trial, by arithmetic and names alone.

The parent process declares, checks and estimates with these values, and sends them to the processes
that train. No torch is imported; `training_session.py` trains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from automl.config import (
    Config,
    DataConfig,
    DataKind,
    ObjectiveConfig,
    ObjectiveKind,
    Task,
    TrainingConfig,
)
from automl.config.metrics import JUDGED_PREFIX, MEASURED_ALONE, reported_metric
from automl.data.dataset import Dataset, RefitRows, UserDataFacts
from automl.data.users_metric import UsersMetric
from automl.in_trial.goal import StudyGoal
from automl.in_trial.user_code import (
    open_inside,
    resolve_loss,
    resolve_metric,
    resolve_objective,
    resolve_target,
)
from automl.models.family import EstimatorSetup, Family, PackKey, family_of
from automl.models.networks.network_family import WarmUp
from automl.objectives.code_digest import digests_by_setting
from automl.objectives.function_call import (
    CalledFunction,
    ObjectiveDeclaration,
    declaration_of_function,
)
from automl.objectives.optuna_objective.suggestion_entries import declaration_of_optuna_objective
from automl.trial import (
    UNKNOWN_REQUEST,
    Direction,
    Params,
    ProcessEntry,
    ResourceRequest,
    TrainingWork,
    TrialSpec,
)


@dataclass(frozen=True)
class MemberTraining:
    """The final training of one member of an ensemble, or of the one trial that is refitted."""

    params: Params
    """The params of the member, under the names that its study uses."""
    epochs: int
    ema_decay: float

    def at_own_length(self, training: TrainingConfig) -> TrainingConfig:
        """Return the study's training settings with the member's length."""
        return replace(training, epochs=self.epochs, ema_decay=self.ema_decay)


@dataclass(frozen=True)
class RefitTraining:
    """Says how the trials of a refit train where that differs from a trial of the search."""

    keeps_last: bool = False
    """The last report counts as the best, because no rows are left to find a better one by."""
    warm_up: WarmUp | None = None
    n_ranks: int = 1
    """Number of processes that train together; on GPUs one for each GPU."""
    data_parallel: bool = False
    """One process uses all GPUs of the trial."""
    own_rows: RefitRows | None = None
    """The rows to train on, if a user's function returns the data (data=python)."""
    members: tuple[MemberTraining, ...] = ()
    """The members of an ensemble, the heaviest first."""
    member_of_trial: tuple[int, ...] = ()
    """The place in `members` of each trial of the refit, by the trial's number."""
    repeats: tuple[int, ...] = ()
    """Numbers in the study of the trials that are trained again: the members' or the winner's.
    Empty for several seeds of one winner, which have numbers of their own."""

    def identity(self) -> Mapping[str, Any]:
        """Return what may not change during a refit, as JSON values. Its devices may change."""
        warm_up = None if self.warm_up is None else asdict(self.warm_up)
        members = {"members": [asdict(member) for member in self.members]} if self.members else {}
        return {"keeps_last": self.keeps_last, "warm_up": warm_up, **members}

    @property
    def trains_alone(self) -> bool:
        """Whether its trials cannot form a pack, whose lanes all train for the same length."""
        uses_devices_otherwise = self.warm_up is not None or self.n_ranks > 1 or self.data_parallel
        return uses_devices_otherwise or bool(self.members)

    def repeated_trials(self) -> tuple[int, ...]:
        """Return the number in the study for each trial of the refit, by its number."""
        if not self.member_of_trial:
            return self.repeats
        return tuple(self.repeats[member] for member in self.member_of_trial)

    def trainings_by_trial(self, training: TrainingConfig) -> Sequence[TrainingConfig]:
        """Return the study's training settings with the length of each trial's member."""
        return [self.members[member].at_own_length(training) for member in self.member_of_trial]

    def training_of(self, params: Params, training: TrainingConfig) -> TrainingConfig:
        """Return the training of a trial with these params; among several members, the longest."""
        alike = [member for member in self.members if member.params == params]
        longest = max(alike, key=lambda member: member.epochs, default=None)
        return training if longest is None else longest.at_own_length(training)


@dataclass(frozen=True)
class TrainingPlan:
    """The part of a study's settings that a training process needs. Picklable."""

    objective: ObjectiveConfig
    data: DataConfig
    family: Family
    training: TrainingConfig
    metric: str
    direction: Direction
    space: tuple[str, ...] = ()
    """Names of the params in the space, so that errors can list them."""
    more_directions: tuple[Direction, ...] = ()
    """The directions of the metrics that are optimised, without the first one's."""
    more_metrics: tuple[str, ...] = ()
    """The names of the study's other metrics, and of those with a limit."""
    refit: RefitTraining | None = None
    """The plan of a final training; None: the trials are those of a search."""
    n_models: int = 1
    """Number of models that a repeat of a trial trains, one for each fold."""
    n_rows: int | None = None
    """Number of training rows of the table; None: there is none, or it was not read."""
    repeats: int = 1
    """Number of repeats of a trial, each with a seed of its own."""
    users_metric: str | None = None
    """The name of the study's metric that is a function of the user's, without `val_`."""
    metric_target: str | None = None
    """`module:function` of that metric; None: it was called from Python."""

    @classmethod
    def from_config(
        cls, config: Config, space: tuple[str, ...] = (), refit: RefitTraining | None = None
    ) -> TrainingPlan:
        """Return the plan that the settings describe."""
        model_family = family_of(config)
        return cls(
            objective=config.objective,
            data=config.data,
            family=model_family,
            training=model_family.with_length(config.training),
            metric=config.study.leading_metric,
            direction=config.study.decided_direction,
            space=space,
            more_directions=tuple(m.direction for m in config.study.metrics.metrics[1:]),
            more_metrics=config.study.metrics.more_names,
            refit=refit,
            repeats=config.study.repeats,
            users_metric=config.study.users_metric,
            metric_target=None if config.study.metric_parts else config.study.metric_function,
        )

    @property
    def n_models_in_all(self) -> int:
        """Number of models that a trial trains: one for each fold of each repeat."""
        return self.n_models * self.repeats

    @property
    def goal(self) -> StudyGoal:
        """The metric, direction and rules that a trial is judged by."""
        keeps_last = self.refit is not None and self.refit.keeps_last
        value_at_end = self.n_models > 1
        return StudyGoal(
            self.metric,
            self.direction,
            self.space,
            keeps_last=keeps_last,
            more_directions=self.more_directions,
            more_metrics=self.more_metrics,
            value_at_end=value_at_end,
        )

    @property
    def users_target(self) -> tuple[str, str] | None:
        """Key and value of the setting that names the user's function; None: no setting does."""
        if self.objective.kind.has_function:
            return "objective.target", str(self.objective.target)
        return self.family.users_target if self.objective.kind is ObjectiveKind.builtin else None

    @property
    def users_code(self) -> tuple[tuple[str, str], ...]:
        """Key and value of each setting that names a user's function, for processes with torch."""
        found = [] if self.users_target is None else [self.users_target]
        if self.objective.kind is ObjectiveKind.builtin:
            others = {
                "training.loss": self.training.loss_target,
                "data.source": self.data.source,
                "study.metric": self.metric_target,
            }
            found += [(key, target) for key, target in others.items() if target is not None]
        return tuple(found)

    @property
    def uses_torch(self) -> bool:
        """Whether a training process loads torch, which a user's function may need."""
        if self.objective.kind is ObjectiveKind.builtin:
            return self.family.uses_torch
        return self.objective.kind.has_function

    def trial_uses_torch(self, params: Params) -> bool:
        """Return whether a trial uses torch, so that torch writes its checkpoints."""
        builtin = self.objective.kind is ObjectiveKind.builtin
        return self.family.of_trial(params)[0].uses_torch if builtin else self.uses_torch

    def training_of(self, params: Params) -> TrainingConfig:
        """Return the training settings of a trial with these params."""
        own = self.training
        return own if self.refit is None else self.refit.training_of(params, own)

    def request(self, params: Params, dataset: Dataset | None) -> ResourceRequest:
        """Return the resources that a trial needs, as far as arithmetic can tell."""
        if dataset is None or self.objective.kind is not ObjectiveKind.builtin:
            return UNKNOWN_REQUEST
        training = self.training_of(params)
        request = self.family.request(params, dataset.first_fold, training)
        if request.memory_bytes is None:
            return request
        return replace(request, memory_bytes=self.n_models_in_all * request.memory_bytes)

    def work(self, params: Params, dataset: Dataset | None) -> TrainingWork | None:
        """Return what a whole trial has to compute; None: arithmetic cannot tell."""
        if dataset is None or self.objective.kind is not ObjectiveKind.builtin:
            return None
        work = self.family.work(params, dataset.first_fold, self.training_of(params))
        return None if work is None else replace(work, n_steps=self.n_models_in_all * work.n_steps)

    @property
    def n_reports(self) -> int | None:
        """Largest number of reports of any trial; None: only the author of the objective knows."""
        if self.objective.kind is not ObjectiveKind.builtin:
            return None
        return self.family.n_reports(self.training)

    def n_reports_of(self, params: Params) -> int | None:
        """Return the largest number of reports of a trial; None: only the author knows it."""
        if self.objective.kind is not ObjectiveKind.builtin:
            return None
        family, _ = self.family.of_trial(params)
        return family.n_reports(family.with_length(self.training_of(params), self.n_rows))

    def pack_key(self, params: Params, *, on_host: bool) -> PackKey | None:
        """Return the key of the trials that a trial can train with; None: it trains alone."""
        if self.objective.kind is not ObjectiveKind.builtin or not self._may_pack:
            return None
        return self.family.pack_key(params, self.training, on_host=on_host)

    @property
    def _may_pack(self) -> bool:
        """Whether trials of the built-in training may train together, if their family can do it."""
        trains_alone = self.refit is not None and self.refit.trains_alone
        return not trains_alone and MEASURED_ALONE.isdisjoint(self.more_metrics)

    def estimator_setup(
        self, data: Any, *, packs_large: bool = False, n_threads: int = 1
    ) -> EstimatorSetup:
        """Return what an estimator of the family needs to train on a `Dataset` or `UserTensors`."""
        return EstimatorSetup(
            self.family,
            data,
            self.training,
            self.goal,
            may_pack=self._may_pack,
            packs_large=packs_large,
            n_threads=n_threads,
        )


@dataclass(frozen=True)
class SessionSetup:
    """The arguments of a process that trains. Picklable."""

    plan: TrainingPlan
    dataset: Dataset | None = None
    """The table, which the parent reads once; None for a user's objective, which reads its own."""
    n_threads: int = 1
    """Number of torch's threads in a trial. Two threads run small networks at 0.8 to 1.0 times the
    speed of one."""
    facts: UserDataFacts | None = None
    """Facts about the data that a user's function returns in each process, instead of `dataset`."""
    request_bytes: int | None = None
    """Memory that a trial needs, as the user declared it, in bytes."""
    packs_large: bool = False
    """A user's networks train together even if they are too large to gain by it."""
    redirect: ProcessEntry | None = None
    """Makes stand-ins for libraries that the objective logs through; None: it logs through none."""
    function: CalledFunction | None = None
    """The function that the user passed to `automl.sweep` (objective.kind called)."""

    def may_pack(self, *, on_host: bool) -> bool:
        """Return whether the data allows that trials train together: only data that stays on the
        device does.

        On a CPU, trials on tokens train alone unless packs are asked for: torch has no batched
        attention there (6 transformers took 1.1 times as long as one after another, 2 of them 1.7).
        """
        if self.facts is None:
            return True
        if on_host and not self.packs_large and self.facts.takes_integers:
            return False
        return self.facts.stays(None if on_host else self.request_bytes)


@dataclass(frozen=True)
class SurveySetup:
    """The arguments of a process that surveys a trial. Picklable."""

    session: SessionSetup
    spec: TrialSpec
    """The trial to survey, whose checkpoint folder is temporary."""


def declare_objective(plan: TrainingPlan, dataset: Dataset | None) -> ObjectiveDeclaration:
    """Return what the plan's objective takes and reports, with digests of the user's code. A user's
    module is imported for it.

    Raises ConfigError with the module's own message if it is missing or fails.
    """
    declaration = _declare(plan, dataset)
    code: dict[str, str] = {}
    for key, target in plan.users_code:
        code |= digests_by_setting(key, resolve_target(key, target))
    return replace(declaration, code=code)


def _declare(plan: TrainingPlan, dataset: Dataset | None) -> ObjectiveDeclaration:
    if plan.objective.kind is ObjectiveKind.builtin:
        if plan.training.loss_target is not None:
            resolve_loss(plan.training.loss_target)
        if dataset is not None and dataset.users_metric is not None:
            dataset.users_metric.try_on(dataset.judged.y)
        accepted, required = plan.family.param_names()
        metrics = reported_metric(_task(plan, dataset), plan.users_metric)
        return ObjectiveDeclaration(accepted, required, metrics)
    if not plan.objective.kind.has_function:
        return ObjectiveDeclaration(None, (), None)
    assert plan.objective.target is not None, "ObjectiveConfig refuses kind python without target"
    function = resolve_objective(plan.objective.target)
    if plan.objective.kind is ObjectiveKind.optuna:
        return declaration_of_optuna_objective(
            function, f"objective.target={plan.objective.target}"
        )
    return declaration_of_function(
        function, plan.space, f"objective.target={plan.objective.target}"
    )


def declare_users(setup: SessionSetup) -> ObjectiveDeclaration:
    """Call `declare_objective` in a process that may import the user's module. A data set is only
    needed for a metric of the user's, which is tried on some of its rows."""
    with open_inside(setup.redirect).importing():
        return declare_objective(setup.plan, setup.dataset)


def make_users_metric(config: Config, called: CalledFunction | None = None) -> UsersMetric | None:
    """Return the study's metric that is a function of the user's, without the table's classes.

    None: there is none, or it was `called` from Python, and this process was not given it.
    """
    study = config.study
    target, name = study.metric_function, study.users_metric
    if target is None or name is None or (study.metric_parts and called is None):
        return None
    directions = {metric.name: metric.direction for metric in study.metrics.metrics}
    larger = directions.get(f"{JUDGED_PREFIX}{name}") is Direction.maximize
    load = partial(resolve_metric, target)
    if called is not None:
        load = partial(called.load, target)
    return UsersMetric(name, f"study.metric={target}", larger, load)


def _task(plan: TrainingPlan, dataset: Dataset | None) -> Task:
    if dataset is not None:
        return dataset.task
    return plan.data.task if plan.data.kind is DataKind.csv else Task.classification
