"""A world with a disk: the simulated sweep keeps a study, and dies; another goes on from the disk.

Event log, journal, checkpoints, and what takes a trial's events are the real ones. Time is the
world's, and the disk's: what a sweep wrote is flushed by itself after a while, or when it asks for
it. A process dies at a step of the disk, which is a write, a flush or a rename.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from automl.admission.accounting.ledger import Ledger
from automl.config import StudyConfig
from automl.execution.executor import InlineExecutor
from automl.in_trial.goal import StudyGoal
from automl.in_trial.reports.trial_reports import TrialReports
from automl.record.append_only import FLUSH_SECONDS
from automl.record.event_log import EventLog, read_events
from automl.running.loop.messages import PlannedTrial, UnfitTrialFinding
from automl.running.opening.recovery import restore_lost_events, take_over_trials
from automl.running.trials.carrier import TrialCarrier, _CarriedExecution
from automl.search.pruners.none import NoPruner
from automl.search.samplers.random import IndependentSampler
from automl.search.search_space import parse_space
from automl.search.study import Study
from automl.search.study_identity import StudyIdentity, StudyRules
from automl.trial import (
    UNKNOWN_REQUEST,
    Direction,
    FailedOutcome,
    FinishedOutcome,
    MetricsReported,
    OnEvents,
    ProcessEntry,
    SweepStarted,
    TrialOutcome,
    TrialSpec,
    TrialStarted,
    single_event_handler,
)
from tests.lossy_disk import LossyDisk, listen
from tests.running.loop.simulated_machine import Hosted, Lane, Plan
from tests.running.loop.simulator import World

BEGAN = 1_700_000_000.0
"""When virtual time begins, in seconds since the epoch."""
CLOCKED = ("automl.running.trials.carrier", "automl.in_trial.reports.trial_reports")
"""Modules that ask what time it is."""
SPACE = {"plan": {"low": 0, "high": 100_000}}


class KilledError(BaseException):
    """Raised where the sweep's process dies."""


@dataclass(frozen=True)
class Kill:
    """When and how a sweep dies."""

    after_steps: int
    by_power_cut: bool = False
    unflushed: float = 0.0
    """After a power cut: the share that is left of what was not flushed."""
    names_of_now: bool = False
    """After a power cut: files have the names of now, not those that were flushed."""
    stop_at: float | None = None
    """When somebody presses Ctrl-C; the sweep may die before it has ended."""


def value_of(trial: int, step: int) -> float:
    """Return what a trial reports, whichever process trains it."""
    return trial + 1 / (step + 1)


@dataclass
class Acknowledged:
    """What the sweeps of a study have said so far, and what may not be lost."""

    reports: set[tuple[int, int]] = field(default_factory=set)
    """Trial and step of each report that was taken."""
    outcomes: dict[int, TrialOutcome] = field(default_factory=dict)
    saved: defaultdict[int, int] = field(default_factory=lambda: defaultdict(lambda: -1))
    """The last step of each trial whose checkpoint was written."""

    def check(self, left: Path, kill: Kill) -> None:
        """What was acknowledged is in the event log that a dead sweep has left."""
        reports, outcomes = read_log(left)
        assert self.outcomes.items() <= outcomes.items(), "an outcome was lost"
        if kill.by_power_cut:  # a checkpoint has them, or they are made again
            self.reports &= reports
        assert self.reports <= reports, "a report was lost"


def read_log(folder: Path) -> tuple[set[tuple[int, int]], dict[int, TrialOutcome]]:
    """Return the reports and the outcomes of an event log, where nothing may stand twice."""
    events = [event for event, _ in read_events(folder / "events.log")]
    reports = [event for event in events if isinstance(event, MetricsReported)]
    ends = [e for e in events if isinstance(e, TrialOutcome) and e.state.is_final]
    steps = {(report.trial, report.step) for report in reports}
    assert len(steps) == len(reports), "a step twice"
    assert len({end.trial for end in ends}) == len(ends), "a trial ended twice"
    for report in reports:
        assert dict(report.metrics) == {"val_loss": value_of(report.trial, report.step)}
    return steps, {end.trial: end for end in ends}


@dataclass
class DurableWorld(World):
    """One sweep of a study whose directory is `folder`."""

    folder: Path = Path()
    acknowledged: Acknowledged = field(default_factory=Acknowledged)
    n_epochs: int = 3
    checkpoint_every_seconds: float = 0.0
    flush: LossyDisk | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._opened: list[Study | EventLog] = []
        self._flushed_seconds = 0.0
        self._on_events: dict[int, OnEvents] = {}
        self._reports: dict[int, TrialReports] = {}

    def resume(self) -> None:
        """Go on with what an earlier sweep left, in the order in which a sweep does."""
        self.study = open_study(self.folder, len(self.plans))
        self._opened.append(self.study)
        self.log = EventLog.open(self.folder / "events.log")
        self._opened.append(self.log)
        self.carrier = TrialCarrier(
            executor=InlineExecutor(ProcessEntry("none"), self.folder / "logs"),
            log=self.log,
            study=self.study,
            ledger=self.ledger,
            post=self._post,
        )
        restore_lost_events(self.study, self.log)
        self.log.append(SweepStarted(self.time(), "toy", self.study.uuid, {}))
        self._n_asked = self.loop.asking.n_asked = self.study.n_asked
        self.told = {trial.number: trial.outcome for trial in self.study.ended()}
        self.loop.take_over(take_over_trials(self.study, self.log.record, self.tell))

    def close(self) -> None:
        """Close what is open; a second call ends what a death within the first one left."""
        for opened in reversed(self._opened):
            opened.close()

    # --- time, of the world and of the modules that ask for it ---

    def time(self) -> float:
        return BEGAN + self.now

    def monotonic(self) -> float:
        return self.now

    def _go_on(self) -> None:
        if self._heap[0][0] - self._flushed_seconds >= FLUSH_SECONDS:
            self._flushed_seconds = self._heap[0][0]
            if self.flush is not None:
                self.flush.flush_all()
        super()._go_on()

    # --- ports ---

    def ask(self) -> PlannedTrial | None:
        planned = super().ask()
        asked = self.study.ask()
        assert planned is not None
        assert asked is not None
        assert (asked.number, asked.params) == (planned.number, planned.params)
        return planned

    def tell(self, outcome: TrialOutcome) -> None:
        super().tell(outcome)
        self.study.tell(outcome.trial, outcome)

    def fail(self, trial: PlannedTrial, cause: str) -> None:
        self._decide(trial, FailedOutcome(trial.number, self.time(), cause))

    def too_large(self, trial: PlannedTrial, found: UnfitTrialFinding) -> None:
        raise AssertionError("every trial fits")

    def _decide(self, trial: PlannedTrial, outcome: TrialOutcome) -> None:
        self.log.append(TrialStarted(trial.number, self.time(), trial.params, device="none"))
        self.log.append(outcome)
        self.acknowledged.outcomes[trial.number] = outcome
        self.tell(outcome)

    # --- trials ---

    def _begin_lane(self, execution: Hosted, lane: Lane) -> None:
        number = lane.number
        spec = TrialSpec(
            number, {"plan": number}, str(self.folder / f"checkpoints/trial-{number:05d}"), 0
        )
        self.carrier.open_feed(execution.key, [spec], execution.placement).next()
        carried = _CarriedExecution(execution.key, UNKNOWN_REQUEST, execution.placement, False)
        self._on_events[number] = self.carrier._on_events(carried)
        self._reports[number] = reports = TrialReports(
            spec,
            StudyGoal("val_loss", Direction.minimize, keeps_last=False),
            single_event_handler(self._on_events[number]),
            self.checkpoint_every_seconds,
            self.monotonic,
            without_torch=True,
        )
        execution.process.has_context = True  # what it tells again may be news to the log
        state = reports.restore()
        first = 0 if state is None else int(state["step"]) + 1
        assert first > self.acknowledged.saved[number], "an epoch is trained again"
        for n, step in enumerate(range(first, self.n_epochs), 1):
            after = n / (self.n_epochs - first + 1) * lane.plan.seconds
            self._at(after, partial(self._step, execution, lane, step))

    def _step(self, execution: Hosted, lane: Lane, step: int) -> None:
        if lane not in execution.lanes.values():
            return
        self._report(execution, lane)
        metrics = {"val_loss": value_of(lane.number, step)}
        self._reports[lane.number].report(step, metrics, partial(dict, step=step), None)
        self.acknowledged.reports.add((lane.number, step))
        if not self.checkpoint_every_seconds:
            self.acknowledged.saved[lane.number] = step

    def _pass_on(self, execution: Hosted, outcome: TrialOutcome) -> None:
        reports = self._reports.pop(outcome.trial)
        on_events = self._on_events.pop(outcome.trial)
        if isinstance(outcome, FinishedOutcome):
            reports.write()
            assert reports.best_value is not None
            outcome = FinishedOutcome(outcome.trial, self.time(), reports.best_value)
        on_events([outcome])
        if outcome.state.is_final:
            self.acknowledged.outcomes[outcome.trial] = outcome


def open_study(folder: Path, n_trials: int) -> Study:
    """Open the study whose trials have a plan each, of their own number."""
    enqueue = [{"plan": number} for number in range(n_trials)]
    config = StudyConfig(name="toy", dir=str(folder), n_trials=n_trials, enqueue=[*enqueue])
    space = parse_space(SPACE)
    rules = StudyRules(
        space=space,
        sampler=IndependentSampler(),
        pruner=NoPruner(),
        identity=StudyIdentity({"space": space.plain()}, {}),
    )
    return Study.open(config, rules, folder)


@dataclass
class Lives:
    """Sweeps of one study, one after another, each killed or stopped but the last."""

    cuts: Path
    plans: Sequence[Plan]
    n_epochs: int = 3
    checkpoint_every_seconds: float = 0.0
    acknowledged: Acknowledged = field(default_factory=Acknowledged)

    def live(self, kills: Sequence[Kill]) -> None:
        """Run the study to its end, and check all of it."""
        folder = self.cuts / "study"
        folder.mkdir()
        for kill in [*kills, None]:
            left = self._sweep(folder, kill)
            if left is None or kill is None:
                break
            self.acknowledged.check(left, kill)
            folder = left
        self._check_end(folder)

    def _sweep(self, folder: Path, kill: Kill | None) -> Path | None:
        """Run one sweep; return what it left if it was killed or stopped."""
        disk = LossyDisk(folder, self.cuts)
        disk.thread = threading.get_ident()
        dying = _Dying(disk, kill)
        world: DurableWorld | None = None
        with pytest.MonkeyPatch.context() as patch:
            listen(disk, patch, to_disk=lambda fd: None)
            disk.on_step = dying.step
            try:
                world = self._world(folder, disk, None if kill is None else kill.stop_at)
                for module in CLOCKED:
                    patch.setattr(f"{module}.time", world)
                world.resume()
                world.run()
                world.close()
            except KilledError:
                pass
            finally:
                disk.on_step = lambda: None
                if world is not None:
                    world.close()
                disk.close()
        was_stopped = world is not None and world.stopping
        return dying.left or (folder if was_stopped else None)

    def _world(self, folder: Path, disk: LossyDisk, stop_at: float | None) -> DurableWorld:
        return DurableWorld(
            {"GPU-a": 24_000_000_000},
            self.plans,
            ledger=Ledger(),
            folder=folder,
            acknowledged=self.acknowledged,
            n_epochs=self.n_epochs,
            checkpoint_every_seconds=self.checkpoint_every_seconds,
            flush=disk,
            own_processes=True,
            stop_at=stop_at,
        )

    def _check_end(self, folder: Path) -> None:
        reports, outcomes = read_log(folder)
        numbers = set(range(len(self.plans)))
        assert set(outcomes) == numbers, "exactly n trials"
        finished = {n for n, end in outcomes.items() if isinstance(end, FinishedOutcome)}
        whole = {(n, step) for n in finished for step in range(self.n_epochs)}
        assert {report for report in reports if report[0] in finished} == whole
        assert self.acknowledged.outcomes.items() <= outcomes.items(), "an outcome was lost"
        study = open_study(folder, len(self.plans))
        try:
            assert study.n_asked == len(numbers)
            ends = {trial.number: trial.outcome for trial in study.ended()}
        finally:
            study.close()
        assert {n: type(end) for n, end in ends.items()} == {
            n: type(end) for n, end in outcomes.items()
        }
        best = {n: min(value_of(n, step) for step in range(self.n_epochs)) for n in finished}
        for of_all in (ends, outcomes):
            values = {n: getattr(of_all[n], "value", None) for n in finished}
            assert values == best, "another value"


@dataclass
class _Dying:
    """Counts the steps of a sweep, which dies at one of them."""

    disk: LossyDisk
    kill: Kill | None
    left: Path | None = None
    _n: int = 0

    def step(self) -> None:
        self._n += 1
        kill = self.kill
        if kill is None or self._n < kill.after_steps:
            return
        if self.left is None:
            self.left = (
                self.disk.after_power_cut(names_of_now=kill.names_of_now, unflushed=kill.unflushed)
                if kill.by_power_cut
                else self.disk.after_kill()
            )
        raise KilledError
