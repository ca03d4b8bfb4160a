"""A config that was checked, and what a sweep is made from by it. Reads nothing but the machine."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from automl.admission.limits import AdmissionLimits
from automl.admission.requests import RequestMaker
from automl.config import (
    ChooseDevice,
    Config,
    DevicesConfig,
    DevicesKind,
    ExecutionKind,
    ObjectiveKind,
    PortfolioSetting,
)
from automl.config.checks import defaults_of, unset
from automl.config.tracking import TrackingInside
from automl.data.data_facts import UserDataFacts
from automl.data.dataset import Dataset
from automl.devices.host import usable_cores
from automl.errors import ConfigError
from automl.models.family import pack_size
from automl.objectives.function_call import CalledFunction, ObjectiveDeclaration
from automl.objectives.program.program_arguments import ProgramFlags
from automl.objectives.program.program_flags import make_command_setup
from automl.objectives.training_plan import RefitPlan, SessionSetup, TrainingPlan
from automl.record.secrets import carries_credential, mask_urls
from automl.running.setup.identity_settings import identity_settings
from automl.running.setup.long_training import order_quick_families_first, seconds_by_family
from automl.running.setup.resume_command import resume_command
from automl.search.pruners.pruner import CombinedRungs, Pruner
from automl.search.samplers.sampler import Sampler
from automl.search.search_space import SearchSpace
from automl.search.study_identity import FUNCTION_PARTS_PREFIX, StudyIdentity, StudyRules
from automl.tracking.inside.process import InsideConfig, is_plugin_installed
from automl.tracking.tracking_uri import resolve_uri
from automl.trial import Params, ParamValue, ProcessEntry, TrainingWork

LOOKAHEAD, LOOKAHEAD_LEARNING = 16, 4
"""Trials asked for before the head could start: what a sampler that learns knows no better for."""
LOADER_BYTES = 256 * 2**20
"""Of main memory, for each process that loads rows: what it does not share with the one that it
was forked from (15 MiB for images of 3×32×32, 84 for 3×224×224, both in batches of 64), and two
batches that wait (38 MiB each of the latter)."""
MAX_PER_GPU = 16
"""Trials at once on one GPU, where nobody says a number."""
SESSION = "automl.objectives.training_session:open_session"
INSIDE = "automl.tracking.inside.process:open_inside"
COMMAND_SESSION = "automl.objectives.program.command_session:open_session"


@dataclass(frozen=True)
class RefitInputs:
    """That it is the final training of a winner, and on which rows."""

    plan: RefitPlan
    dataset: Dataset | None
    """None for an objective of the user's, and where `facts` tell of what a function of theirs
    gives."""
    facts: UserDataFacts | None = None
    n_searched: int | None = None
    """Rows that trained in the search, where what it tried is trained again as it was (an
    ensemble's members): a batch size that was in its space is in that of the refit."""


@dataclass(frozen=True)
class PreparedStudy:
    """A config that can work, with what was learned while checking it."""

    config: Config
    space: SearchSpace
    plan: TrainingPlan
    dataset: Dataset | None
    """None for an objective of the user's, which reads its own data, and where `facts` tell of
    what a function of theirs gives."""
    declaration: ObjectiveDeclaration
    notes: tuple[str, ...]
    """What was taken, dropped or clipped: lines for people."""
    called: CalledFunction | None = None
    """The function that the sweep was called with, from Python."""
    facts: UserDataFacts | None = None
    flags: ProgramFlags = field(default_factory=ProgramFlags)
    """Of a program as objective: how it spells params."""
    from_python: bool = False
    """The sweep was called from Python, and the same call with the study's name goes on with it."""

    def how_to_go_on(self, **changed: object) -> str:
        """See `going_on.resume_command`."""
        return resume_command(self.config, from_python=self.from_python, **changed)

    @property
    def setup(self) -> SessionSetup:
        """What a process that trains is given."""
        execution = self.config.execution
        return SessionSetup(
            self.plan,
            self.dataset,
            execution.threads_per_trial,
            facts=self.facts,
            request_bytes=self.config.admission.request_bytes,
            packs_large=execution.pack != "auto",
            inside=mlflow_inside_entry(self.config, self.plan),
            called=self.called,
        )

    @property
    def entry(self) -> ProcessEntry:
        """What a process needs to train the study's trials."""
        if self.config.objective.kind is ObjectiveKind.command:
            inside = mlflow_inside_entry(self.config, self.plan)
            return ProcessEntry(
                COMMAND_SESSION, make_command_setup(self.config, self.flags, inside)
            )
        return ProcessEntry(SESSION, self.setup)

    @property
    def of_one_model(self) -> PreparedStudy:
        """Of a trial with folds the first of its models."""
        assert self.dataset is not None, "folds are of a table"
        plan, dataset = replace(self.plan, n_models=1), self.dataset.of_one_model
        return replace(self, plan=plan, dataset=dataset)

    @property
    def asks_for_params(self) -> bool:
        """Whether a trial learns its params, or some, while it runs."""
        return self.config.objective.kind is ObjectiveKind.optuna

    @property
    def surveys(self) -> bool:
        """Whether trials are surveyed that want a GPU: what is the user's, and not declared. One
        that asks for its params cannot be: nobody answers a survey."""
        is_users = self.plan.users_target is not None
        is_one = self.plan.n_models == 1  # of folds what is seen is known, and not before
        return self.config.may_survey and is_users and is_one and not self.asks_for_params

    @property
    def portfolio(self) -> Sequence[Params]:
        """What is tried first of what did well elsewhere."""
        wanted = self.config.study.portfolio is PortfolioSetting.auto
        if self.choice is None or not wanted or self.plan.refit is not None:
            return ()
        points, dataset = self.plan.family.portfolio(self.dataset), self.dataset
        if dataset is None:
            return points
        ends = {param.name: param.domain.ends for param in self.space.params}
        return order_quick_families_first(
            points, self.choice, seconds_by_family(self.config, dataset, ends)
        )

    @property
    def choice(self) -> str | None:
        """The param that says what kind a trial is of; None: all are alike."""
        builtin = self.config.objective.kind is ObjectiveKind.builtin
        return self.plan.family.choice if builtin else None

    @property
    def sampler(self) -> Sampler:
        """What proposes params."""
        assert isinstance(self.config.sampler, Sampler), "Hydra makes it by its schema"
        return self.config.sampler

    @property
    def limits(self) -> AdmissionLimits:
        """What admission is held to: on the host by default as many trials as the cores allow with
        each one's threads."""
        admission = self.config.admission
        per_trial = self.config.execution.threads_per_trial + self.n_loaders
        per_core = max(1, usable_cores() // per_trial)
        return AdmissionLimits(
            max_concurrent_trials=admission.max_concurrent_trials,
            headroom_bytes=admission.headroom_bytes,
            stale_seconds=admission.stale_seconds,
            max_per_gpu=admission.max_trials_per_device or MAX_PER_GPU,
            max_on_host=admission.max_concurrent_trials or per_core,
            gpus_per_trial=admission.devices_per_trial,
            helpers_bytes=self.n_loaders * LOADER_BYTES,
        )

    @property
    def n_loaders(self) -> int:
        """Processes that load the rows of a trial, as far as is known before it has a device."""
        if self.facts is None or self.facts.stays(self.config.admission.request_bytes):
            return 0
        return self.config.training.loader_workers

    @property
    def uses_cpu_beside_gpus(self) -> bool:
        """Whether trials may go to the CPU where there are GPUs."""
        choose, execution = self.config.devices.choose, self.config.execution.kind
        if self.config.admission.devices_per_trial > 1:
            return False
        if choose is not ChooseDevice.auto:
            return choose is ChooseDevice.all
        own = self.dataset is not None and self.plan.users_target is None
        by_hand = self.config.devices.kind is not DevicesKind.auto
        return own and not by_hand and execution is not ExecutionKind.inline

    def work(self, params: Params) -> TrainingWork | None:
        """What a whole trial has to compute; None: nobody knows before it runs."""
        return self.plan.work(params, self.dataset)

    @property
    def n_ahead(self) -> int:
        """How many trials behind the head are looked at."""
        if self.config.admission.lookahead != "auto":
            return int(self.config.admission.lookahead)
        learns = self.sampler.n_may_pend(0) is not None
        return LOOKAHEAD_LEARNING if learns else LOOKAHEAD

    @property
    def devices(self) -> DevicesConfig:
        """Where trials may go: of a family that has no GPU's use none is looked at."""
        kind = DevicesKind.host if self._on_cpu_alone else self.config.devices.kind
        return replace(self.config.devices, kind=kind)

    @property
    def _on_cpu_alone(self) -> bool:
        builtin = self.config.objective.kind is ObjectiveKind.builtin
        return builtin and not self.plan.family.uses_torch

    @property
    def pruner(self) -> Pruner:
        """As the config says, with the length of a trial where it is known."""
        pruner = self.config.pruner
        assert isinstance(pruner, Pruner), "Hydra makes it by its schema"
        n_reports = self.plan.n_reports
        return pruner if n_reports is None else pruner.for_length(n_reports)

    @property
    def pruners(self) -> Mapping[ParamValue, Pruner]:
        """That of each kind of trials, where there are several: with the length of such a one."""
        assert isinstance(self.config.pruner, Pruner), "Hydra makes it by its schema"
        if self.choice is None or self.dataset is None:
            return {}
        found: dict[ParamValue, Pruner] = {}
        for name, family in self.plan.family.by_choice.items():
            training = family.trained(self.plan.training)
            n_first = family.n_first_reports(training, self.dataset.n_train)
            found[name] = self.config.pruner.for_length(family.n_reports(training), n_first)
        return found

    @property
    def rungs(self) -> Callable[[int, int], Sequence[int]]:
        """Where any trial may be judged."""
        pruners = self.pruners
        return CombinedRungs(tuple(pruners.values())) if pruners else self.pruner.rungs

    @property
    def identity(self) -> Mapping[str, Any]:
        """What may not change while the study lasts."""
        identity = identity_settings(self.config)
        if self.plan.refit is not None:
            identity["refit"] = self.plan.refit.identity()
        if (data := self.dataset or self.facts) is not None:
            identity["data"]["digest"] = data.digest
        if self.dataset is not None and self.dataset.kinds:
            identity["data"]["columns"] = {**self.dataset.kinds, **self.config.data.columns}
        return identity | {"space": self.space.plain()}

    @property
    def identity_defaults(self) -> Mapping[str, Any]:
        """What `identity` says of settings that nobody sets; what the family is called, the data's
        digest and a param's bounds have no default."""
        family = type(self.plan.family)
        identity = identity_settings(Config(model=unset(family)))
        model = {k: v for k, v in identity["model"].items() if k in defaults_of(family)}
        return identity | {"space": self.space.defaults(), "model": model}

    @property
    def rules(self) -> StudyRules:
        """What the study is opened with."""
        may_change = FUNCTION_PARTS_PREFIX if self.called and self.called.changed else None
        return StudyRules(
            space=self.space,
            sampler=self.sampler,
            pruner=self.pruner,
            identity=StudyIdentity(self.identity, self.identity_defaults, may_change),
            asks_for_params=self.asks_for_params,
            choice=self.choice,
            pruners=self.pruners,
            portfolio=self.portfolio,
        )

    @property
    def requests(self) -> RequestMaker:
        """What trials ask for."""
        return RequestMaker(
            lambda params: self.plan.request(params, self.dataset),
            self.config.admission.request_bytes,
            self.config.admission.devices_per_trial,
            self.n_loaders * LOADER_BYTES,
        )

    def pack_of(self, params: Params, *, on_host: bool) -> tuple[Hashable, int] | None:
        """What a trial can be packed with, and how many at most; None: it trains alone."""
        if self.facts is not None and not self._may_pack(self.facts, on_host=on_host):
            return None
        key = self.plan.pack_key(params, on_host=on_host)
        n_lanes = 1 if key is None else pack_size(key, self.config.execution.pack)
        n_trials = n_lanes // self.plan.n_models  # each takes a lane for each of its folds
        return None if n_trials < 2 else (key, n_trials)

    def _may_pack(self, facts: UserDataFacts, *, on_host: bool) -> bool:
        """Only what stays on the device trains together; on a CPU, unless it is asked for, not on
        tokens: torch has no batched attention there (6 transformers took 1.1 times as long as one
        after another, 2 of them 1.7)."""
        if on_host and self.config.execution.pack == "auto" and facts.takes_integers:
            return False
        return facts.stays(None if on_host else self.config.admission.request_bytes)


def mlflow_inside_entry(config: Config, plan: TrainingPlan) -> ProcessEntry | None:
    """What stands in for MLflow in an objective; None: nothing of it is the user's. Raises
    ConfigError."""
    users = plan.users_code or plan.objective.kind is ObjectiveKind.command
    if not (users and is_plugin_installed()):
        return None
    if config.tracking.inside is not TrackingInside.redirect:
        return ProcessEntry(INSIDE, InsideConfig())
    uri = resolve_uri(config.tracking).absolute.text
    if config.execution.kind is ExecutionKind.ray and carries_credential(uri):
        raise ConfigError(
            "tracking.inside=redirect tells each node where MLflow is, and the password of that "
            f"address ({mask_urls(uri)}) would lie in the Ray cluster for all to see. Leave it out "
            "of tracking.uri, and give it here and on every node by MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD, or to a database by ~/.pgpass."
        )
    return ProcessEntry(INSIDE, InsideConfig(redirect=True, uri=uri))
