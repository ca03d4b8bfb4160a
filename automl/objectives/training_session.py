"""Makes an objective ready once in a process, and runs one trial after another with it.

torch is imported only if the plan uses it, so a process that fits trees never loads it. Programs
as objectives have a session of their own, in `program/command_session.py`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from automl.config import DataKind, ObjectiveKind
from automl.errors import StorageError
from automl.in_trial.goal import FinalReport
from automl.in_trial.reports import outcomes, step_counter
from automl.in_trial.reports.logged_values import TrialLogReceiver
from automl.in_trial.reports.memory_peaks import MemoryPeakMeter, PeakReporter
from automl.in_trial.reports.trial_reports import TrialReports
from automl.in_trial.seeds import trial_seed
from automl.in_trial.trial_context import TrialContext
from automl.in_trial.user_code import open_inside, resolve_builder, resolve_objective
from automl.models.family import PackKey, TrialEstimator
from automl.models.networks.folds.fold_estimator import MembersEstimator, open_trial_estimator
from automl.models.networks.parallel.launcher import RankLauncher
from automl.objectives.function_call import objective_call
from automl.objectives.optuna_objective.optuna_trial import OptunaObjective
from automl.objectives.repeats.repeated_trial import RepeatSettings
from automl.objectives.repeats.repeats_session import RepeatsSession
from automl.objectives.training_plan import SessionSetup, TrainingPlan
from automl.record.texts import fit_line
from automl.trial import (
    DeviceShare,
    ObjectiveSession,
    OnEvent,
    OnEvents,
    OutOfMemoryOutcome,
    Placement,
    ProcessEntry,
    SweepChannel,
    TrialIsolation,
    TrialOutcome,
    TrialSource,
    TrialSpec,
    Verdict,
    single_event_handler,
)
from automl.trial.session_protocols import LoggingRedirect, NoLoggingRedirect, NoTrialIsolation

if TYPE_CHECKING:
    from automl.models.networks.network_estimator import NetworkEstimator
    from automl.models.networks.packs.pack import PackSetup

logger = logging.getLogger(__name__)

OPEN_OBJECTIVE = "automl.objectives.training_session:open_objective"
"""`open_objective`, by name for the processes of a training in several."""


def open_session(setup: SessionSetup) -> ObjectiveSession:
    """Make the objective ready: import a user's function, or take the data. Raises ConfigError."""
    if setup.plan.uses_torch:
        _prepare_torch(setup.n_threads)
    inside = open_inside(setup.redirect)
    with inside.importing():
        objective = open_objective(setup)
    plan, session = setup.plan, TrainingSession(setup.plan, objective, inside)
    if plan.repeats == 1:
        return session

    def train_together(feed: TrialSource, placement: Placement, on_events: OnEvents) -> bool:
        may_pack = setup.may_pack(on_host=placement.on_host)
        return may_pack and session.train_together(feed, placement, on_events)

    rules = RepeatSettings(plan.repeats, plan.metric, plan.direction)
    isolates = plan.users_target is not None
    return RepeatsSession(session, rules, train_together, isolates=isolates)


def _prepare_torch(n_threads: int) -> None:
    import torch

    torch.set_num_threads(n_threads)
    step_counter.count_optimizer_steps()


def open_objective(setup: SessionSetup) -> Callable[[TrialContext], object]:
    """Return what runs each trial: a user's function, or an estimator. Raises ConfigError."""
    plan = setup.plan
    if plan.objective.kind is ObjectiveKind.builtin:
        if plan.refit is not None and plan.refit.n_ranks > 1:
            one_process = replace(plan, refit=replace(plan.refit, n_ranks=1))
            return RankLauncher(
                ProcessEntry(OPEN_OBJECTIVE, replace(setup, plan=one_process)),
                n_threads=setup.n_threads,
                n_ranks=plan.refit.n_ranks,
            )
        data: Any = setup.dataset
        if plan.data.kind is DataKind.python:
            from automl.objectives.user_data.source import open_data

            data = open_data(setup)
        assert data is not None, "the built-in objective is given its data"
        if plan.users_target is not None:  # its module's top level runs outside of any trial
            resolve_builder(plan.users_target[1])
        estimator_setup = plan.estimator_setup(
            data, packs_large=setup.packs_large, n_threads=setup.n_threads
        )
        if plan.refit is not None and plan.refit.members:
            trainings = plan.refit.trainings_by_trial(plan.training)
            return MembersEstimator(replace(estimator_setup, packs_large=False), trainings)
        estimator = open_trial_estimator(estimator_setup)
        if plan.refit is not None and plan.refit.trains_alone:
            networks = cast("NetworkEstimator", estimator)
            networks.warm_up = plan.refit.warm_up
            networks.data_parallel = plan.refit.data_parallel
        return estimator
    assert plan.objective.target is not None, "ObjectiveConfig refuses such a kind without target"
    called, target = setup.function, plan.objective.target
    function = resolve_objective(target) if called is None else called.load(target)
    if plan.objective.asks_for_params:
        return OptunaObjective(function)
    return partial(objective_call(function, plan.space, target), function)


class TrainingSession:
    """An `ObjectiveSession` for Python objectives and the built-in training."""

    def __init__(
        self,
        plan: TrainingPlan,
        objective: Callable[[TrialContext], object],
        inside: LoggingRedirect | None = None,
    ) -> None:
        self._plan, self._objective = plan, objective
        self._inside = inside or NoLoggingRedirect()
        self._devices = _TorchDevices()
        self._peaks = MemoryPeakMeter()
        self._caps = MemoryCaps()
        self._isolation: TrialIsolation = NoTrialIsolation()
        self._unpackable_keys: set[PackKey] = set()
        """Keys of trials that could not train together."""
        self._warned_metrics: set[str] = set()

    def run(
        self,
        spec: TrialSpec,
        placement: Placement,
        on_event: OnEvent,
        line: SweepChannel | None = None,
    ) -> None:
        """Carry out one trial; its last event is its outcome.

        Raises only what `on_event` raised, and StorageError if a checkpoint or the trial's folder
        cannot be written.
        """
        devices = self._devices.names(placement)
        with self._peaks.watching(devices, on_host=placement.on_host) as get_peak:
            peak_reporter = PeakReporter(get_peak)
            on_gpu = not placement.on_host
            trial, record = self._open_trial(devices, spec, on_event, peak_reporter, on_gpu=on_gpu)
            record.line = line
            with self._isolation():
                outcome = self._carry_out(trial, record)
            peaks = [*peak_reporter.last(spec.number)]
        if isinstance(outcome, OutOfMemoryOutcome):
            self.give_back_memory()
        if record.broken is not None:
            raise record.broken
        for event in (*peaks, outcome):
            on_event(event)

    def run_pack(self, feed: TrialSource, placement: Placement, on_events: OnEvents) -> None:
        """Train the feed's trials together, with `automl.models.networks.packs.pack`.

        Trials that cannot train together run one after another: a user's objective, or a network
        that torch cannot stack.
        """
        peeked = _PeekedFeed(feed)
        if not self.train_together(peeked, placement, on_events):
            self._run_singly(peeked, placement, on_events)

    def train_together(self, feed: TrialSource, placement: Placement, on_events: OnEvents) -> bool:
        """Train the feed's trials as a pack, if they can; return whether that was done."""
        peeked = feed if isinstance(feed, _PeekedFeed) else _PeekedFeed(feed)
        first = peeked.first
        if first is None:
            return True
        key = self._plan.pack_key(first.params, on_host=placement.on_host)
        return key is not None and self._run_together(key, peeked, placement, on_events)

    def _run_singly(self, feed: TrialSource, placement: Placement, on_events: OnEvents) -> None:
        spec = feed.next()
        while spec is not None:
            self.run(spec, placement, single_event_handler(on_events))
            spec = feed.next() if self._isolation.process_is_reusable else None

    def _run_together(
        self, key: PackKey, feed: TrialSource, placement: Placement, on_events: OnEvents
    ) -> bool:
        """Train the feed's trials together if possible; return whether that was done."""
        devices = self._devices.names(placement)
        key_of = partial(self._plan.pack_key, on_host=placement.on_host)
        with self._isolation():
            if (pack := self._open_pack(key, devices[0])) is None:
                return False
            from automl.models.networks.packs.pack import PackRunner

            with self._peaks.watching(devices, on_host=placement.on_host) as get_peak:
                PackRunner(
                    pack,
                    can_join=lambda params: key_of(params) == key,
                    open_trial=partial(self._open_trial, devices, on_gpu=not placement.on_host),
                    on_events=on_events,
                    peak_reporter=PeakReporter(get_peak),
                ).run(feed)
        return True

    def _open_pack(self, key: PackKey, device: str) -> PackSetup | None:
        """Return a pack for trials of this key; None: they train alone."""
        if key in self._unpackable_keys:
            return None
        try:
            pack: PackSetup = cast(TrialEstimator, self._objective).open_pack(key, device)
            return pack
        except Exception as error:  # noqa: BLE001  each trial alone will tell what is wrong
            self._unpackable_keys.add(key)
            reason = next(iter(str(error).splitlines()), "")
            reason = fit_line(f"{type(error).__name__}: {reason}")
            logger.warning("trials train one by one: %s", reason)
            return None

    def held_bytes(self) -> Sequence[int]:
        """Return the bytes that torch holds on each device, with caches; any thread may call."""
        if not self._uses_cuda():
            return ()
        import torch

        return [torch.cuda.memory_reserved(n) for n in range(torch.cuda.device_count())]

    @property
    def n_steps(self) -> int:
        """Number of optimizer steps of all trials; reports count instead if no steps are seen."""
        return step_counter.n_steps_taken()

    @property
    def programs_bytes(self) -> int:
        """Main memory of programs, which this session never starts: 0 bytes."""
        return 0

    def cap_memory(self, caps_bytes: Sequence[int]) -> None:
        """Limit the memory that torch may take on each device; any thread may call."""
        if self._uses_cuda():
            import torch

            self._caps.apply(caps_bytes[: torch.cuda.device_count()])

    def keep_apart(self, apart: TrialIsolation) -> None:
        """Use `apart` to isolate trials of user code; the built-in training needs no isolation."""
        if self._plan.users_target is not None:
            self._isolation = apart

    def give_back_memory(self) -> None:
        """Empty torch's caches on the devices."""
        if self._uses_cuda():
            import torch

            torch.cuda.empty_cache()

    def close(self) -> None:
        """Do nothing: this session has no process that must end."""

    def _uses_cuda(self) -> bool:
        """Return whether this process has used a GPU through torch, without touching one."""
        if not self._plan.uses_torch:
            return False
        import torch

        used: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        return used

    def _open_trial(
        self,
        devices: tuple[str, ...],
        spec: TrialSpec,
        on_event: OnEvent,
        peak_reporter: PeakReporter | None = None,
        *,
        on_gpu: bool,
    ) -> tuple[TrialContext, TrialReports]:
        """Return a trial's context for the objective, and the reports behind the context."""
        record = TrialReports(
            spec=spec,
            goal=self._plan.goal,
            on_event=on_event,
            checkpoint_every_seconds=self._plan.training.checkpoint_every_seconds,
            peak_reporter=peak_reporter or PeakReporter(),
            on_gpu=on_gpu,
            without_torch=not self._plan.trial_uses_torch(spec.params),
        )
        seed = trial_seed(spec.study_seed, spec.number)
        refit = self._plan.refit is not None
        return TrialContext(spec, devices=devices, seed=seed, record=record, refit=refit), record

    def _carry_out(self, trial: TrialContext, record: TrialReports) -> TrialOutcome:
        """Call the objective, and return the trial's outcome, whatever the objective raises."""
        try:
            return outcomes.outcome_of_return(self._train(trial, record), record)
        except BaseException as error:  # noqa: BLE001  SystemExit and KeyboardInterrupt included
            if isinstance(error, StorageError):  # the disk's fault, and not the trial's
                record.broken = error
            return outcomes.outcome_of_exception(error, record)

    def _train(self, trial: TrialContext, record: TrialReports) -> object:
        """Call the objective and return its result; write `last.pt` and `best.pt` at the end."""
        try:
            with self._inside.trial(TrialLogReceiver(record)):
                returned = self._objective(trial)
        except BaseException as error:
            if outcomes.is_pruning(error):  # the best report of a pruned trial can be the study's
                record.write()
            raise
        names = record.goal.several
        if names and isinstance(returned, list | tuple) and len(returned) == len(names):
            returned = dict(zip(names, returned, strict=True))
        if isinstance(returned, Mapping) and record.verdict is Verdict.GO_ON:
            self._warn_of_returned(record.conclude(returned))
        if isinstance(returned, FinalReport):
            returned = record.take_final_report(returned)
        record.finish()
        return returned

    def _warn_of_returned(self, names: set[str]) -> None:
        """Warn once of metrics whose returned value is not kept."""
        if new := sorted(names - self._warned_metrics):
            self._warned_metrics |= names
            logger.warning(
                "the objective returns %s with another value than it reported at its last step: "
                "the report counts",
                fit_line(", ".join(new)),
            )


class _PeekedFeed:
    """A feed whose first trial can be looked at before it is handed out."""

    def __init__(self, feed: TrialSource) -> None:
        self.first = feed.next()
        """The first trial, until it is handed out."""
        self._rest, self.n_lanes = feed, feed.n_lanes

    def next(self) -> TrialSpec | None:
        first, self.first = self.first, None
        return first or self._rest.next()


class _TorchDevices:
    """Translates a placement to the names of torch's devices in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uuids: list[str] | None = None
        self._warned_uuids: set[str] = set()

    def names(self, placement: Placement) -> tuple[str, ...]:
        """Return `cuda:0` and so on, or `cpu` with one warning if torch cannot use those GPUs."""
        if placement.on_host:
            return ("cpu",)
        with self._lock:
            if self._uuids is None:
                from automl.models.cuda_uuids import cuda_uuids

                self._uuids = cuda_uuids()
            missing = [s for s in placement.shares if s.device.uuid not in self._uuids]
            if not missing:
                return tuple(f"cuda:{self._uuids.index(d.uuid)}" for d in placement.devices)
            for share in missing:
                self._warn(share)
        return ("cpu",)

    def _warn(self, share: DeviceShare) -> None:
        if share.device.uuid not in self._warned_uuids:
            import torch

            self._warned_uuids.add(share.device.uuid)
            logger.warning(
                "torch %s cannot use %s (%s): its trials train on the CPU.",
                torch.__version__,
                share.device_name,
                share.device.uuid,
            )


def _set_fraction(share: float, device: int) -> None:
    import torch  # a process with a GPU to cap has loaded it

    torch.cuda.set_per_process_memory_fraction(share, device)


def _total_bytes(device: int) -> int:
    import torch

    total: int = torch.cuda.get_device_properties(device).total_memory
    return total


class MemoryCaps:
    """Sets torch's own limit on each device; a trial beyond it gets torch's out-of-memory error."""

    def __init__(
        self,
        set_fraction: Callable[[float, int], None] = _set_fraction,
        total_bytes: Callable[[int], int] = _total_bytes,
    ) -> None:
        self._set_fraction, self._total_bytes = set_fraction, total_bytes
        self._set: dict[int, int] = {}

    def apply(self, caps_bytes: Sequence[int]) -> None:
        """Set the caps of the devices, in their order; 0 means no cap. An unchanged cap is free."""
        for device, cap in enumerate(caps_bytes):
            if cap != self._set.get(device, 0):
                share = cap / self._total_bytes(device) if cap else 1.0
                self._set_fraction(min(1.0, share), device)
                self._set[device] = cap
