"""Derives from a checked config what a sweep is made from. Reads only the number of cores."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from automl.admission.limits import AdmissionLimits
from automl.admission.requests import RequestMaker
from automl.config import (
    AutoSetting,
    ChooseDevice,
    Config,
    DevicesConfig,
    DevicesKind,
    ExecutionKind,
    ObjectiveKind,
)
from automl.config.checks import field_defaults, make_unset
from automl.config.study import StudyConfig, TrackingInside
from automl.data.dataset import Dataset, UserDataFacts
from automl.devices.host import usable_cores
from automl.errors import ConfigError
from automl.models.family import pack_size
from automl.objectives.function_call import CalledFunction, ObjectiveDeclaration
from automl.objectives.program.program_arguments import ProgramFlags
from automl.objectives.program.program_flags import make_command_setup
from automl.objectives.training_plan import RefitTraining, SessionSetup, TrainingPlan
from automl.record.secrets import carries_credential, mask_urls
from automl.running.prepare.identity_settings import identity_settings
from automl.running.prepare.long_training import (
    order_quick_families_first,
    seconds_by_family,
    slow_families,
)
from automl.running.prepare.purpose import SEARCH, SweepPurpose
from automl.running.prepare.resume_command import part_digests, resume_command
from automl.search.earlier_trials import EarlierTrials, read_earlier_trials
from automl.search.edited_space import edited_space
from automl.search.optuna_address import OptunaSource, parse_optuna_source
from automl.search.optuna_source import OptunaStudy, read_optuna_study
from automl.search.pruners.pruner import CombinedRungs, Pruner
from automl.search.samplers.sampler import Sampler, SamplerDecision
from automl.search.search_space import SearchSpace
from automl.search.study_identity import (
    FUNCTION_PARTS_PREFIX,
    StudyIdentity,
    StudyRules,
    read_stored_identity,
)
from automl.tracking.inside.process import InsideConfig, is_plugin_installed
from automl.tracking.tracking_uri import resolve_uri
from automl.trial import (
    ROWS_PARAM,
    PackKind,
    Params,
    ParamValue,
    ProcessEntry,
    StudyEdited,
    TrainingWork,
)

LOOKAHEAD, LOOKAHEAD_LEARNING = 16, 4
"""Number of trials asked for before the head could start. The smaller number is for samplers that
learn, which propose early trials knowing less."""
LOADER_BYTES = 256 * 2**20
"""Main memory of each process that loads rows: its unshared memory, and two waiting batches.

Unshared are 15 MiB for images of 3×32×32 and 84 MiB for 3×224×224, both in batches of 64. A waiting
batch of the latter has 38 MiB.
"""
MAX_PER_GPU = 16
"""Largest number of trials at once on one GPU, if the user sets none."""
SESSION = "automl.objectives.training_session:open_session"
INSIDE = "automl.tracking.inside.process:open_inside"
COMMAND_SESSION = "automl.objectives.program.command_session:open_session"


@dataclass(frozen=True)
class RefitInputs:
    """Says that a sweep is the final training of a winner, and on which rows."""

    plan: RefitTraining
    dataset: Dataset | None
    """The table. None for an objective of the user's, or if `facts` describe its data."""
    facts: UserDataFacts | None = None
    n_searched: int | None = None
    """Number of training rows in the search, if its trials are trained again as they were (an
    ensemble's members). A batch size of that space is then in the refit's space, too."""


@dataclass(frozen=True)
class PreparedStudy:
    """A checked config that can work, with the findings of the checks."""

    config: Config
    space: SearchSpace
    plan: TrainingPlan
    dataset: Dataset | None
    """The table. None for an objective of the user's that reads its own data, or if `facts`
    describe the data of their function."""
    declaration: ObjectiveDeclaration
    notes: tuple[str, ...]
    """Lines for people about what was taken, dropped or clipped."""
    called: CalledFunction | None = None
    """The function with which the sweep was called from Python: its objective or its metric."""
    facts: UserDataFacts | None = None
    flags: ProgramFlags = field(default_factory=ProgramFlags)
    """How a program as objective spells its params."""
    edits: tuple[StudyEdited, ...] = ()
    """The edits of the study so far."""
    from_python: bool = False
    """Whether the sweep was called from Python, and the same call with the study's name resumes
    it."""
    purpose: SweepPurpose = SEARCH

    @property
    def edited_total(self) -> int | None:
        """The total of trials that the last edit gave the study; None: it left the total."""
        changed = "study.n_trials" in self.edits[-1].after
        return self.config.study.decided_n_trials if changed else None

    def with_total(self, n_trials: int) -> PreparedStudy:
        """Return the study with a total that another sweep has raised."""
        if n_trials == self.config.study.decided_n_trials:
            return self
        study = replace(self.config.study, n_trials=n_trials)
        return replace(self, config=replace(self.config, study=study))

    @property
    def code(self) -> Mapping[str, str]:
        """Digests of the user's code by what it is: `objective.target`."""
        objective = self.config.objective
        parts = part_digests(objective.parts)
        called = {f"{name} of {objective.target}": digest for name, digest in parts.items()}
        return called or self.declaration.code

    def how_to_go_on(self, **changed: object) -> str:
        """Return the command that resumes the study with `changed` settings."""
        return resume_command(self.config, from_python=self.from_python, **changed)

    @property
    def setup(self) -> SessionSetup:
        """The input of a process that trains."""
        execution = self.config.execution
        return SessionSetup(
            self.plan,
            self.dataset,
            execution.threads_per_trial,
            facts=self.facts,
            request_bytes=self.config.admission.request_bytes,
            packs_large=execution.pack != "auto",
            redirect=mlflow_inside_entry(self.config, self.plan),
            function=self.called,
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
        """The study with the first of the models that a trial with folds trains."""
        assert self.dataset is not None, "folds are of a table"
        plan, dataset = replace(self.plan, n_models=1), self.dataset.first_fold
        return replace(self, plan=plan, dataset=dataset)

    @cached_property
    def judged_rows_digest(self) -> str:
        """The digest of the targets of the rows that judge the trials, in their order: the same for
        a frame and for a file with its rows. Empty without a table."""
        if self.dataset is None:
            return ""
        labels = f"{self.dataset.task.value} {list(self.dataset.classes)} ".encode()
        return hashlib.sha256(labels + self.dataset.judged.y.astype("f4").tobytes()).hexdigest()

    @property
    def asks_for_params(self) -> bool:
        """Whether a trial learns some of its params only while it runs."""
        return self.config.objective.asks_for_params

    @property
    def surveys(self) -> bool:
        """Whether trials that want a GPU are surveyed: those with user code and without declared
        memory. A trial that asks for its params cannot be surveyed, since no one answers it."""
        is_users = self.plan.users_target is not None
        has_one_model = self.plan.n_models_in_all == 1  # else memory is known only by running
        return self.config.may_survey and is_users and has_one_model and not self.asks_for_params

    @property
    def portfolio(self) -> Sequence[Params]:
        """The points that did well elsewhere and are tried first, as far as the space has their
        params. The study leaves out those with values that the space does not allow."""
        builtin = self.config.objective.kind is ObjectiveKind.builtin
        wanted = self.config.study.portfolio is AutoSetting.auto
        if not (builtin and wanted and self.purpose.uses_portfolio):
            return ()
        points, dataset = self.plan.family.portfolio(self.dataset), self.dataset
        if self.choice is None:
            names = set(self.space.names)
            return [{n: value for n, value in params.items() if n in names} for params in points]
        if dataset is None:
            return points
        points = [p for p in points if p[self.choice] not in self.slow_kinds]
        return order_quick_families_first(points, self.choice, self._seconds_by_family)

    @cached_property
    def _seconds_by_family(self) -> Mapping[str, float | None]:
        """The seconds of a trial of each family by arithmetic; empty without a table."""
        ends = {param.name: param.domain.ends for param in self.space.params}
        return {} if self.dataset is None else seconds_by_family(self.config, self.dataset, ends)

    @cached_property
    def slow_kinds(self) -> frozenset[str]:
        """The families that this sweep has too little time for."""
        if self.dataset is None or self.choice is None:
            return frozenset()
        return frozenset(slow_families(self.config, self.dataset, self._seconds_by_family))

    @property
    def choice(self) -> str | None:
        """Name of the param that says of which kind a trial is. None if all are alike."""
        builtin = self.config.objective.kind is ObjectiveKind.builtin
        return self.plan.family.choice if builtin else None

    @property
    def promotes_rows(self) -> bool:
        """Whether trials train on a part of the rows, and the best of them again on more. Sweeps
        that share a study would each do so."""
        has_part = self.dataset is not None and ROWS_PARAM in self.space.names
        is_fixed = has_part and not self.space[ROWS_PARAM].is_searched
        return is_fixed and self.purpose.stands_alone and not self.config.study.shared

    @property
    def keeps_stopped_trials(self) -> bool:
        """Whether a trial that runs when the sweep's time is up ends with the best that it has
        reported: of a search over families, in which a trial has one model and one metric."""
        is_search = self.choice is not None and self.purpose.stands_alone
        return is_search and self.plan.n_models_in_all == 1 and not self.plan.more_metrics

    @property
    def sampler(self) -> Sampler:
        """The sampler that proposes params."""
        return self.sampler_decision.sampler

    @property
    def sampler_decision(self) -> SamplerDecision:
        """The sampler that proposes params, and why it is that one."""
        assert isinstance(self.config.sampler, Sampler), "Hydra makes it by its schema"
        return self.config.sampler.decide(self.choice)

    @property
    def limits(self) -> AdmissionLimits:
        """The limits of admission. By default the host takes as many trials as its cores allow with
        each trial's threads."""
        admission = self.config.admission
        per_trial = self.config.execution.threads_per_trial + self.n_loaders
        per_core = max(1, usable_cores() // per_trial)
        return AdmissionLimits(
            max_concurrent_trials=admission.max_concurrent_trials,
            headroom_bytes=admission.headroom_bytes,
            max_per_gpu=admission.max_trials_per_device or MAX_PER_GPU,
            max_on_host=admission.max_concurrent_trials or per_core,
            gpus_per_trial=admission.devices_per_trial,
            helpers_bytes=self.n_loaders * LOADER_BYTES,
        )

    @property
    def n_loaders(self) -> int:
        """Number of processes that load rows, as far as known before the trial has a device."""
        if self.facts is None or self.facts.stays(self.config.admission.request_bytes):
            return 0
        return self.config.training.loader_workers

    @property
    def uses_cpu_beside_gpus(self) -> bool:
        """Whether trials may go to the CPU of a machine with GPUs."""
        choose, execution = self.config.devices.choose, self.config.execution.kind
        if self.config.admission.devices_per_trial > 1:
            return False
        if choose is not ChooseDevice.auto:
            return choose is ChooseDevice.all
        own = self.dataset is not None and self.plan.users_target is None
        by_hand = self.config.devices.kind is not DevicesKind.auto
        return own and not by_hand and execution is not ExecutionKind.inline

    def work(self, params: Params) -> TrainingWork | None:
        """Return the work of a whole trial, or None if it is unknown before the trial runs."""
        return self.plan.work(params, self.dataset)

    @property
    def n_ahead(self) -> int:
        """Number of trials looked at behind the head."""
        if self.config.admission.lookahead != "auto":
            return int(self.config.admission.lookahead)
        learns = self.sampler.n_may_pend(0) is not None
        return LOOKAHEAD_LEARNING if learns else LOOKAHEAD

    def noting(self, note: str) -> PreparedStudy:
        """Return the study with one more note, unless the note is empty."""
        return replace(self, notes=(*self.notes, note)) if note else self

    @property
    def devices(self) -> DevicesConfig:
        """The devices where trials may go. A family that makes no use of GPUs has none."""
        devices = self.config.devices
        return replace(devices, only="cpu") if self._on_cpu_alone else devices

    @property
    def _on_cpu_alone(self) -> bool:
        builtin = self.config.objective.kind is ObjectiveKind.builtin
        return builtin and not self.plan.family.uses_torch

    @property
    def pruner(self) -> Pruner:
        """The pruner of the config, with the length of a trial if it is known."""
        pruner = self.config.pruner
        assert isinstance(pruner, Pruner), "Hydra makes it by its schema"
        n_reports = self.plan.n_reports
        return pruner if n_reports is None else pruner.for_length(n_reports)

    @property
    def pruners(self) -> Mapping[ParamValue, Pruner]:
        """The pruner for each kind of trial, with its length. Empty if there is one kind."""
        assert isinstance(self.config.pruner, Pruner), "Hydra makes it by its schema"
        if self.choice is None or self.dataset is None:
            return {}
        found: dict[ParamValue, Pruner] = {}
        for name, family in self.plan.family.by_choice.items():
            training = family.with_length(self.plan.training, self.dataset.n_train)
            n_first = family.n_first_reports(training, self.dataset.n_train)
            found[name] = self.config.pruner.for_length(family.n_reports(training), n_first)
        return found

    @property
    def rungs(self) -> Callable[[int, int], Sequence[int]]:
        """The steps at which any trial may be judged."""
        pruners = self.pruners
        return CombinedRungs(tuple(pruners.values())) if pruners else self.pruner.rungs

    @property
    def identity(self) -> Mapping[str, Any]:
        """The values that may not change while the study lasts."""
        identity = identity_settings(self.config)
        if self.plan.refit is not None:
            identity["refit"] = self.plan.refit.identity()
        if (data := self.dataset or self.facts) is not None:
            identity["data"]["digest"] = data.digest
        if self.dataset is not None and self.dataset.kinds:
            identity["data"]["columns"] = {**self.dataset.kinds, **self.config.data.columns}
        if self.dataset is not None:
            combined = self.dataset.columns.combined_names(self.dataset.target)
            identity["data"] |= {"combine": combined} if combined else {}
        return identity | {"space": self.space.plain()}

    @property
    def identity_defaults(self) -> Mapping[str, Any]:
        """The `identity` of settings that were not set. The name of the family, the data's digest
        and a param's bounds have no default."""
        family = type(self.plan.family)
        identity = identity_settings(Config(model=make_unset(family)))
        model = {k: v for k, v in identity["model"].items() if k in field_defaults(family)}
        return identity | {"space": self.space.defaults(), "model": model}

    @property
    def rules(self) -> StudyRules:
        """The rules with which the study is opened."""
        may_change = FUNCTION_PARTS_PREFIX if self.called and self.called.changed else None
        return StudyRules(
            space=self.space,
            sampler=self.sampler,
            pruner=self.pruner,
            identity=StudyIdentity(
                self.identity, self.identity_defaults, may_change, edited_space(self.edits)
            ),
            asks_for_params=self.asks_for_params,
            choice=self.choice,
            slow_kinds=self.slow_kinds,
            pruners=self.pruners,
            portfolio=self.portfolio,
            read_earlier=self._read_earlier,
            edits=self.edits,
            read_imported=self._reader_of_imported(),
        )

    def _reader_of_imported(self) -> Callable[[], OptunaStudy] | None:
        """Return what reads Optuna's study with whose trials this one begins; None: none."""
        source = parse_optuna_source(self.config.study.began_with or "")
        return None if source is None else partial(read_optuna_study, source)

    def _read_earlier(self) -> EarlierTrials:
        """Return what the study takes from those of `study.warm_from`. Raises ConfigError."""
        study = self.config.study
        sources = {name: _optuna_source(study, name) for name in study.warm_from}
        folders = [Path(study.dir) / name for name, source in sources.items() if source is None]
        identities = {folder: read_stored_identity(folder) for folder in folders}
        others = [read_optuna_study(source) for source in sources.values() if source is not None]
        # Nothing says that the values of another tool compare with ours.
        rankings = [[(params, None) for params, _ in other.ranking()] for other in others]
        return read_earlier_trials(
            identities,
            self.space,
            self.identity,
            study.seed,
            rankings,
            asks_for_params=self.asks_for_params,
        )

    def make_requests(self) -> RequestMaker:
        """Return a new maker of the trials' resource requests, which has learned nothing yet."""
        return RequestMaker(
            lambda params: self.plan.request(params, self.dataset),
            self.config.admission.request_bytes,
            self.config.admission.devices_per_trial,
            self.n_loaders * LOADER_BYTES,
        )

    def pack_kind(self, params: Params, *, on_host: bool) -> PackKind | None:
        """Return the kind of the packs that a trial may join; None: it trains alone."""
        if not self.setup.may_pack(on_host=on_host):
            return None
        key = self.plan.pack_key(params, on_host=on_host)
        n_lanes = 1 if key is None else pack_size(key, self.config.execution.pack)
        n_trials = n_lanes // self.plan.n_models_in_all  # each takes a lane for each of its models
        return None if n_trials < 2 else PackKind(key, n_trials)


def _optuna_source(study: StudyConfig, name: str) -> OptunaSource | None:
    """Return the study of Optuna's that an entry of `study.warm_from` names; None: it is ours."""
    if (Path(study.dir) / name).is_dir():
        return None
    source = parse_optuna_source(name)
    return None if source is None else replace(source, key="study.warm_from")


def mlflow_inside_entry(config: Config, plan: TrainingPlan) -> ProcessEntry | None:
    """Return what stands in for MLflow in an objective. None if the objective has no code of the
    user's. Raises ConfigError."""
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
