"""A study that takes a week, in virtual time: sweeps are killed, the disk is nearly full at times,
MLflow is away, clocks are changed.

What a sweep keeps, reads and delivers is real; the machine, its disk space, its clock and MLflow's
store are simulated. Each hour it is written down what the process holds.
"""

from __future__ import annotations

import gc
import os
import random
import shutil
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, overload

import pytest

from automl.admission.limits import AdmissionLimits
from automl.config import KeepCheckpoints, StudyConfig
from automl.running.loop.messages import ExecutionStart
from automl.running.trials.steering import StartConditions
from automl.tracking.deliver.confirmed_offset import DeliveryConfirmations
from automl.tracking.deliver.study_delivery import EventLogDelivery
from automl.tracking.view.run_update import RunUpdate
from tests.running.loop.durable_world import (
    BEGAN,
    CLOCKED,
    Acknowledged,
    DurableWorld,
    Kill,
    KilledError,
    read_log,
)
from tests.running.loop.simulated_machine import Plan

HOUR, DAY = 3600.0, 86400.0
N_EPOCHS = 3
FREE_BYTES, FULL_BYTES = 100 * 10**9, 10**6
Span = tuple[float, float]


@dataclass(frozen=True)
class WeekPlan:
    """What happens, in seconds since the study began."""

    n_trials: int
    trial_seconds: float
    kills: Sequence[float] = ()
    disk_full: Sequence[Span] = ()
    mlflow_away: Sequence[Span] = ()
    clock_changes: Sequence[tuple[float, float]] = ()
    """When the wall clock is set forward or back, and by how much."""
    look_seconds: float = 6 * HOUR
    """Time between two notes of what the process holds, the one of the first hour aside."""


@dataclass(frozen=True)
class HeldResources:
    """What the process holds at one moment."""

    seconds: float
    n_ended: int
    memory_bytes: int
    n_files: int
    n_threads: int
    log_bytes: int
    objects: Mapping[str, int]
    """Number of objects of each of the package's classes."""


def held_resources(seconds: float, n_ended: int, log: Path) -> HeldResources:
    gc.collect()
    kinds = (type(found) for found in gc.get_objects())
    objects = Counter(k.__qualname__ for k in kinds if str(k.__module__).startswith("automl."))
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return HeldResources(
        seconds,
        n_ended,
        pages * os.sysconf("SC_PAGE_SIZE"),
        len(os.listdir("/proc/self/fd")),
        threading.active_count(),
        log.stat().st_size,
        dict(objects),
    )


class CountedRuns:
    """The runs of a store that is away at times: which there are, and the steps that each has."""

    n_writers = 1
    may_make_doubles = False

    def __init__(self) -> None:
        self.is_away = False
        self.ids: dict[tuple[tuple[str, str], ...], str] = {}
        self.steps: dict[str, set[int]] = {}

    def _ask(self) -> None:
        if self.is_away:
            raise ConnectionError("MLflow does not answer")

    def find(self, experiment: str, tags: Mapping[str, str], keep: str | None = None) -> str | None:
        self._ask()
        return self.ids.get(tuple(sorted(tags.items())))

    def create(self, experiment: str, update: RunUpdate) -> str:
        self._ask()
        key = tuple(sorted(update.key.items()))
        assert key not in self.ids, "a run was made twice"
        self.ids[key] = str(len(self.ids))
        return self.ids[key]

    def write(self, run_id: str, update: RunUpdate, *, created: bool, study: Path) -> None:
        self._ask()
        steps = {point.step for point in update.metrics if point.name == "val_loss"}
        self.steps.setdefault(run_id, set()).update(steps)

    def open_experiment(self, name: str) -> str:
        self._ask()
        return "1"

    def find_experiment_of_run(self, run_id: str, study_uuid: str) -> str | None:
        self._ask()
        return "1"

    def find_trials(self, experiment: str, study_uuid: str) -> dict[int, str]:
        self._ask()
        return {}

    def drop_known_end_metrics(self, run_id: str, update: RunUpdate) -> RunUpdate:
        return update

    def keep_experiment(self, *_: object) -> None:
        """Do nothing: the study keeps its name."""

    share_view = keep_experiment


@dataclass(frozen=True)
class EqualPlans(Sequence[Plan]):
    """The plans of trials that are all alike."""

    plan: Plan
    n: int

    def __len__(self) -> int:
        return self.n

    @overload
    def __getitem__(self, index: int) -> Plan: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Plan]: ...
    def __getitem__(self, index: int | slice) -> Plan | Sequence[Plan]:
        if isinstance(index, slice):
            raise NotImplementedError
        if not 0 <= index < self.n:
            raise IndexError(index)
        return self.plan


@dataclass
class WeekWorld(DurableWorld):
    """One sweep of the week, from `from_seconds` on."""

    week: WeekPlan = WeekPlan(0, 1.0)
    runs: CountedRuns = field(default_factory=CountedRuns)
    held: list[HeldResources] = field(default_factory=list)
    from_seconds: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.now = self.from_seconds
        self._n_handled = 0

    def resume(self) -> None:
        super().resume()
        study = StudyConfig(name="toy", dir=str(self.folder), min_free_space="1GB")
        self._conditions = StartConditions(study, self.folder, self.loop.handle)
        log = self.folder / "events.log"
        self._confirmed = DeliveryConfirmations.open(log, wait_seconds=0.0)
        self._opened.append(cast(Any, self._confirmed))
        self._delivery = EventLogDelivery(
            log, self._confirmed, cast(Any, self.runs), KeepCheckpoints.none
        )
        for kill in self.week.kills:
            if kill > self.now:
                self._at(kill - self.now, self._die)
        if not self.held:
            self._at(HOUR, self._note)
        for each, do in (
            (300.0, self._deliver),
            (60.0, self._look_at_disk),
            (self.week.look_seconds, self._note),
        ):
            self._again(each, do)

    def deliver_rest(self) -> None:
        while self._delivery.read():
            pass
        self._delivery.deliver()

    def time(self) -> float:
        return BEGAN + self.now + sum(by for at, by in self.week.clock_changes if at <= self.now)

    def statvfs(self, path: object) -> object:
        free = FULL_BYTES if self._is_in(self.week.disk_full) else FREE_BYTES
        return SimpleNamespace(f_bavail=free, f_frsize=1)

    def _is_in(self, spans: Sequence[Span]) -> bool:
        return any(begin <= self.now < end for begin, end in spans)

    def submit(self, start: ExecutionStart) -> None:
        assert self.loop._placing.hold is None, "started while the disk is nearly full"
        super().submit(start)

    def _again(self, seconds: float, do: Any) -> None:
        def act() -> None:
            do()
            self._at(seconds, act)

        self._at(seconds, act)

    def _die(self) -> None:
        raise KilledError

    def _deliver(self) -> None:
        self.runs.is_away = self._is_in(self.week.mlflow_away)
        try:
            self._delivery.read()
            self._delivery.deliver(everything=False)
        except ConnectionError:
            assert self.runs.is_away

    def _look_at_disk(self) -> None:
        self._conditions.look(self.now)

    def _note(self) -> None:
        self.held.append(held_resources(self.now, len(self.told), self.folder / "events.log"))

    def _check_books(self) -> None:
        """Check them now and then: each check passes over all trials."""
        self._n_handled += 1
        if self._n_handled % 500 == 0:
            super()._check_books()

    def _check_memory(self) -> None:
        """Nothing else holds memory here."""


def live_through(week: WeekPlan, place: Path) -> list[HeldResources]:
    """Run the study to its end, whatever happens, and check all of it."""
    plans = EqualPlans(Plan(10**9, 10**9, seconds=week.trial_seconds), week.n_trials)
    acknowledged, runs, held = Acknowledged(), CountedRuns(), list[HeldResources]()
    folder, seconds = place / "life-0", 0.0
    folder.mkdir()
    for n in range(1, len(week.kills) + 2):
        world = WeekWorld(
            {"GPU-a": 24 * 10**9},
            plans,
            limits=AdmissionLimits(4, 0, 180.0),
            own_processes=True,
            reading_seconds=60.0,
            max_events=100_000_000,
            folder=folder,
            acknowledged=acknowledged,
            n_epochs=N_EPOCHS,
            checkpoint_every_seconds=DAY,
            week=week,
            runs=runs,
            held=held,
            from_seconds=seconds,
        )
        with pytest.MonkeyPatch.context() as patch, closing(world):
            patch.setattr(os, "statvfs", world.statvfs)
            for module in (*CLOCKED, "automl.tracking.deliver.study_delivery"):
                patch.setattr(f"{module}.time", world)
            try:
                world.resume()
                world.run()
                world.deliver_rest()
                held.append(held_resources(world.now, len(world.told), folder / "events.log"))
                break
            except KilledError:
                seconds = world.now
                left = place / f"life-{n}"
                shutil.copytree(folder, left, copy_function=_link_checkpoint)
        acknowledged.check(left, Kill(0))
        shutil.rmtree(folder)
        folder = left
    reports, outcomes = read_log(folder)
    assert len(outcomes) == week.n_trials, "exactly n trials"
    assert len(reports) == week.n_trials * N_EPOCHS, "each step once"
    assert len(runs.ids) == week.n_trials + 1, "a run for each trial, and one for the study"
    assert sum(len(steps) == N_EPOCHS for steps in runs.steps.values()) >= week.n_trials
    return held


def _link_checkpoint(source: str, target: str) -> None:
    """Copy a file that is appended to; link one that is only ever replaced."""
    (os.link if "checkpoints" in source else shutil.copyfile)(source, target)


def random_times(n: int, before_seconds: float, seed: int) -> list[float]:
    chance = random.Random(seed)
    return sorted(chance.uniform(0.0, before_seconds) for _ in range(n))


def grown_objects(
    first: HeldResources, last: HeldResources, *, more_than: int
) -> Iterator[tuple[str, int, int]]:
    """Yield each class that has more objects than at first, with both counts."""
    for name, n in sorted(last.objects.items(), key=lambda item: -item[1]):
        before = first.objects.get(name, 0)
        if n - before > more_than:
            yield name, before, n
