"""What can be known of a training before the first trial, by arithmetic and names; no torch.

The parent process declares, checks and estimates here; `session.py` trains.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
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
from automl.config.metrics import reported_metric
from automl.data.data_facts import UserDataFacts
from automl.data.dataset import Dataset, RefitRows
from automl.models.family import Family, PackKey, family_of
from automl.objectives.function_call import (
    CalledFunction,
    ObjectiveDeclaration,
    declaration_of_function,
)
from automl.objectives.goal import StudyGoal
from automl.objectives.optuna_objective.suggestion_entries import declaration_of_optuna_objective
from automl.objectives.user_code import open_inside, resolve_loss, resolve_objective
from automl.trial import (
    UNKNOWN,
    Direction,
    Params,
    ProcessEntry,
    ResourceRequest,
    TrainingWork,
    TrialSpec,
)


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

    def own(self, training: TrainingConfig) -> TrainingConfig:
        """The study's, at its length."""
        return replace(training, epochs=self.epochs, ema_decay=self.ema_decay)


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
    """Of an ensemble, the heaviest first."""
    given: tuple[int, ...] = ()
    """Which of the `members` each trial is of, by its number."""
    repeats: tuple[int, ...] = ()
    """Numbers, in the study, of the trials that are trained again: those of the `members`, or the
    winner's. Empty for several seeds of one winner, which are told apart by their own numbers."""

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

    def repeated_trials(self) -> tuple[int, ...]:
        """Return the number in the study for each trial of the refit, by its number."""
        return tuple(self.repeats[member] for member in self.given) if self.given else self.repeats

    def training_of_trial(self, number: int, training: TrainingConfig) -> TrainingConfig:
        """The study's, at the length of the member that this trial is of."""
        return self.members[self.given[number]].own(training)

    def training_of(self, params: Params, training: TrainingConfig) -> TrainingConfig:
        """Likewise of a trial with such params; of several members that have them, the longest."""
        alike = [member for member in self.members if member.params == params]
        longest = max(alike, key=lambda member: member.epochs, default=None)
        return training if longest is None else longest.own(training)


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
        model_family = family_of(config)
        return cls(
            objective=config.objective,
            data=config.data,
            family=model_family,
            training=model_family.with_length(config.training),
            metric=config.study.metric,
            direction=config.study.towards,
            space=space,
            refit=refit,
        )

    @property
    def goal(self) -> StudyGoal:
        """What a trial is judged by."""
        keeps_last = self.refit is not None and self.refit.keeps_last
        at_end = self.n_models > 1
        return StudyGoal(
            self.metric, self.direction, self.space, keeps_last=keeps_last, at_end=at_end
        )

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
        return self.family.of_trial(params)[0].uses_torch if builtin else self.uses_torch

    def training_of(self, params: Params) -> TrainingConfig:
        """How a trial trains."""
        own = self.training
        return own if self.refit is None else self.refit.training_of(params, own)

    def request(self, params: Params, dataset: Dataset | None) -> ResourceRequest:
        """What a trial will want, as far as arithmetic tells."""
        if dataset is None or self.objective.kind is not ObjectiveKind.builtin:
            return UNKNOWN
        training = self.training_of(params)
        request = self.family.request(params, dataset.of_one_model, training)
        if request.memory_bytes is None:
            return request
        return replace(request, memory_bytes=self.n_models * request.memory_bytes)

    def work(self, params: Params, dataset: Dataset | None) -> TrainingWork | None:
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
        family, _ = self.family.of_trial(params)
        return family.n_reports(family.with_length(self.training_of(params)))

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
    facts: UserDataFacts | None = None
    """Of data that a function of the user's gives to each such process, in place of `dataset`."""
    request_bytes: int | None = None
    """What the user declared that a trial wants."""
    packs_large: bool = False
    """Whether a user's networks train together where they are too large to gain by it."""
    inside: ProcessEntry | None = None
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


def declare_objective(plan: TrainingPlan, dataset: Dataset | None) -> ObjectiveDeclaration:
    """What the plan's objective takes and reports; a user's module is imported for it.

    Raises ConfigError where that module is missing or fails, with its own message.
    """
    if plan.objective.kind is ObjectiveKind.builtin:
        if plan.training.loss_target is not None:
            resolve_loss(plan.training.loss_target)
        taken, required = plan.family.param_names()
        return ObjectiveDeclaration(taken, required, reported_metric(_task(plan, dataset)))
    if plan.objective.kind is ObjectiveKind.command:
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
    """`declare_objective` without data, to be called in a process that may import the user's
    module."""
    with open_inside(setup.inside).importing():
        return declare_objective(setup.plan, None)


def _task(plan: TrainingPlan, dataset: Dataset | None) -> Task:
    if dataset is not None:
        return dataset.task
    return plan.data.task if plan.data.kind is DataKind.csv else Task.classification
