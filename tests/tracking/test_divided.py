"""Sweeps of one study deliver it together: one run a trial, whoever dies, stops or wakes up."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import psycopg
import pytest

from automl.config import KeepCheckpoints, TrackingConfig
from automl.record.lease import HOLDER_LEASE_SECONDS, this_holder
from automl.record.sharing import delivery_tables, study_tables
from automl.record.sharing.database import Database
from automl.record.sharing.delivery_tables import StoreDeliverer
from automl.tracking.deliver.confirmed_offset import DeliveryConfirmations, read_delivered_runs
from automl.tracking.deliver.division import SharedDeliveryJob
from automl.tracking.deliver.mlflow_runs import MlflowRuns
from automl.tracking.deliver.shared_division import SUCCESSION_SECONDS, SharedStudyDivision
from automl.tracking.deliver.study_delivery import EventLogDelivery
from automl.tracking.mlflow_store import ValueNotTakenError, open_client
from automl.tracking.tracking_uri import resolve_uri
from automl.tracking.view.run_update import RunUpdate, StudyRef
from automl.trial import CheckpointKind, Event
from tests.postgres import database, postgres
from tests.tracking.conftest import Shown
from tests.tracking.deliveries import check_exact
from tests.tracking.scenes import (
    NAME,
    UUID,
    begin,
    finish,
    report,
    sweep_ended,
    sweep_started,
    trial,
    write,
    write_checkpoint,
)

__all__ = ["database", "postgres"]
pytestmark = pytest.mark.slow
T = TypeVar("T")


class Sweep:
    """One that delivers, on a machine of its own."""

    def __init__(
        self, name: str, study: Path, job: SharedDeliveryJob, clock: Callable[[], float]
    ) -> None:
        self.name, self.study = name, study
        uri = resolve_uri(TrackingConfig(uri=f"sqlite:///{study.parents[2] / 'mlflow.db'}"))
        self.confirmed = DeliveryConfirmations.open(study / "events.log", wait_seconds=0.0)
        self.client, self.refusals = open_client(uri), list[str]()
        runs = MlflowRuns(self.client, uri, self.refusals.append)
        self.divided = SharedStudyDivision(job, clock)
        self.delivery = EventLogDelivery(
            *(study / "events.log", self.confirmed, runs, KeepCheckpoints.all, None),
            StudyRef(UUID, NAME),
            division=self.divided,
        )

    def turn(self) -> None:
        """What its process does every 0.7 s."""
        self.delivery.read()
        self.delivery.deliver()


class Machines:
    """Sweeps with a log of the same bytes each, one database and one store of MLflow."""

    def __init__(self, folder: Path, database: str, stack: ExitStack) -> None:
        self._folder, self._url, self._stack = folder, database, stack
        self.now = 0.0
        with Database(database) as opened, opened.transaction() as cursor:
            study_tables.make_tables(cursor, "it")
            study_tables.add_study(cursor, NAME, UUID, {}, "config", 99)
        self._sweeps: dict[str, Sweep] = {}

    def __getitem__(self, name: str) -> Sweep:
        if name not in self._sweeps:
            (study := self._folder / name / "studies" / NAME).mkdir(parents=True)
            for other in self._sweeps.values():
                shutil.copy(other.study / "events.log", study)
            (study / "events.log").touch()
            job = SharedDeliveryJob(self._url, NAME, "store", name)
            sweep = self._sweeps[name] = Sweep(name, study, job, lambda: self.now)
            self._stack.callback(sweep.confirmed.close)
            self._stack.callback(sweep.divided.end)
        return self._sweeps[name]

    def both(self) -> tuple[Sweep, Sweep]:
        return self["a"], self["b"]

    def happens(self, *events: Event) -> None:
        for sweep in self._sweeps.values():
            write(sweep.study, *events)

    def hold(self, sweep: str, *numbers: int, ended: bool = False) -> None:
        with psycopg.connect(self._url) as connection:
            for number in numbers:
                connection.execute(
                    "INSERT INTO automl_trials (study, number, params, sweep, lease_until, ended) "
                    "VALUES (1, %s, '{}', %s, 'infinity', %s) ON CONFLICT (study, number) "
                    "DO UPDATE SET sweep = excluded.sweep, ended = excluded.ended",
                    (number, sweep, ended),
                )

    def lapse(self, sweep: str) -> None:
        """So much time goes by that its lease ends, as seen by everybody."""
        self.now += HOLDER_LEASE_SECONDS + 1
        with psycopg.connect(self._url) as connection:
            connection.execute(
                "UPDATE automl_deliverers SET lease_until = '-infinity' WHERE sweep = %s", (sweep,)
            )

    def turns(self, *names: str) -> None:
        """Some rounds of each, one after the other."""
        for _ in range(3):
            self.now += 2.5
            for name in names:
                self[name].turn()


@pytest.fixture
def machines(folder: Path, database: str) -> Iterator[Machines]:
    with ExitStack() as stack:
        yield Machines(folder, database, stack)


def made_by(sweep: Sweep, number: int) -> bool:
    """Whether it knows the run of that trial, having written it."""
    return number in sweep.confirmed.runs


def test_each_delivers_the_trials_that_it_holds_with_their_files(
    machines: Machines, shown: Shown
) -> None:
    a, b = machines.both()
    files = [write_checkpoint(a.study, 0, CheckpointKind.BEST)]
    files += [write_checkpoint(b.study, 1, CheckpointKind.BEST)]
    machines.hold("a", 0, ended=True)
    machines.hold("b", 1, ended=True)
    events = [trial(0), trial(1)]
    for of_trial, file in zip(events, files, strict=True):
        of_trial.insert(-1, file)
    machines.happens(sweep_started(), *events[0], *events[1], sweep_ended(2))
    b.divided.begin_round([])  # elected, though it comes second
    machines.turns("a", "b")
    check_exact(shown, 2, 3)
    assert (made_by(a, 0), made_by(a, 1)) == (True, False)
    assert (made_by(b, 0), made_by(b, 1)) == (False, True)
    assert [shown.artifacts(f"trial-0000{n}") for n in (0, 1)] == [
        {"best.pt": b"best of 0"},
        {"best.pt": b"best of 1"},
    ]
    assert a.refusals == b.refusals == []
    assert a.delivery.may_end() == b.delivery.may_end() == ""
    a.delivery.end()
    known = read_delivered_runs(a.study / "events.log")
    assert known is not None
    assert set(known.runs) == {0, 1}, "of those that others have delivered, too"


def test_who_comes_after_a_dead_deliverer_goes_on_in_the_same_runs(
    machines: Machines, shown: Shown
) -> None:
    b = machines.both()[1]
    machines.hold("a", 0, 1)
    machines.hold("b", 2)
    machines.happens(sweep_started(), *trial(0)[:-1], begin(1), begin(2), report(2, 0))
    machines.turns("a", "b")
    runs = {run.info.run_name: run.info.run_id for run in shown.runs()}
    assert set(runs) == {NAME, "trial-00000", "trial-00001", "trial-00002"}
    machines.happens(finish(0), report(1, 0))  # and nobody has delivered it
    machines.hold("a", 0, ended=True)
    machines.turns("b")
    assert shown.run("trial-00000").info.status == "RUNNING"
    machines.lapse("a")
    machines.hold("b", 1)  # it is taken over, too
    machines.happens(report(1, 1), report(1, 2), finish(1), report(2, 1), report(2, 2), finish(2))
    machines.hold("b", 1, 2, ended=True)
    machines.happens(sweep_ended(3))
    machines.turns("b")
    check_exact(shown, 3, 3)
    assert {run.info.run_name: run.info.run_id for run in shown.runs()} == runs
    assert b.delivery.may_end() == ""


def test_who_is_elected_delivers_what_was_left_to_one_that_died(
    machines: Machines, shown: Shown
) -> None:
    machines.both()
    machines.hold("b", 0)
    machines.happens(sweep_started(), *trial(0)[:-1])
    machines.turns("a", "b")
    machines.happens(finish(0), sweep_ended(1))
    machines.hold("b", 0, ended=True)
    machines.turns("a")
    assert shown.run("trial-00000").info.status == "RUNNING"
    machines.lapse("b")
    machines.turns("a")
    check_exact(shown, 1, 3)


def test_a_trial_that_changes_hands_is_delivered_whole(machines: Machines, shown: Shown) -> None:
    machines.both()
    machines.happens(sweep_started())
    machines.turns("a", "b")
    machines.hold("a", 0)
    machines.happens(begin(0), report(0, 0))
    machines.turns("b")
    machines.hold("b", 0, ended=True)
    machines.happens(report(0, 1), report(0, 2), finish(0), sweep_ended(1))
    machines.turns("b", "a")
    check_exact(shown, 1, 3)


def test_who_wakes_up_after_its_lease_writes_nothing_more(machines: Machines, shown: Shown) -> None:
    a = machines.both()[0]
    machines.hold("a", 0, 1)
    machines.happens(sweep_started(), begin(0), begin(1))
    machines.turns("a", "b")
    machines.happens(report(0, 0), report(1, 0))
    stops = Stopped(machines, "a")
    a.delivery._runs.write = stops.at(a.delivery._runs.write)  # type: ignore[method-assign]
    machines.now += 2.5
    a.delivery.read()
    with pytest.raises(ValueNotTakenError, match="lease of this delivery has ended"):
        a.delivery.deliver()
    assert stops.trials == ["trial-00000"], "the one that it was stopped in"
    machines.hold("b", 0, 1, ended=True)
    rest = [report(n, step) for n in (0, 1) for step in (1, 2)]
    machines.happens(*rest, finish(0), finish(1), sweep_ended(2))
    machines.turns("b", "a")
    check_exact(shown, 2, 3)
    assert stops.trials == ["trial-00000"]


def test_a_process_whose_sweep_is_stopped_delivers_until_its_lease_ends(
    machines: Machines, shown: Shown
) -> None:
    a, b = machines.both()
    machines.happens(sweep_started())
    machines.turns("a", "b")
    a.divided._job = replace(a.divided._job, attends=False)
    machines.hold("a", 0)
    machines.happens(begin(0))
    machines.turns("a", "b")
    assert made_by(a, 0)
    machines.lapse("a")
    machines.happens(report(0, 0), report(0, 1))
    with pytest.raises(ValueNotTakenError, match="lease of this delivery has ended"):
        machines.turns("a")
    machines.hold("b", 0, ended=True)
    machines.happens(report(0, 2), finish(0), sweep_ended(1))
    machines.turns("b")
    check_exact(shown, 1, 3)
    with b.divided._database.transaction() as cursor:  # the sweep of `a` goes on
        delivery_tables.attend_delivery(cursor, StoreDeliverer(1, "store", "a"), this_holder())
    machines.turns("a", "b")
    check_exact(shown, 1, 3)
    assert a.delivery.may_end() == ""


def test_who_was_stopped_while_it_made_a_run_makes_no_second_one(
    machines: Machines, shown: Shown
) -> None:
    a = machines.both()[0]
    machines.happens(sweep_started())
    machines.turns("a", "b")
    machines.hold("a", 0)
    machines.happens(begin(0), report(0, 0))

    def others() -> None:
        machines.lapse("a")
        machines.hold("b", 0, ended=True)
        machines.happens(report(0, 1), report(0, 2), finish(0), sweep_ended(1))
        machines.turns("b")

    stops = Stopped(machines, "a", others)
    a.delivery._runs.create = stops.at(a.delivery._runs.create)  # type: ignore[method-assign]
    a.delivery.read()
    with pytest.raises(ValueNotTakenError, match="lease of this delivery has ended"):
        a.delivery.deliver()
    assert stops.trials == ["trial-00000"]
    machines.turns("b", "a")
    check_exact(shown, 1, 3)


def test_a_run_whose_maker_died_before_it_was_noted_is_found(
    machines: Machines, shown: Shown
) -> None:
    a = machines.both()[0]
    machines.happens(sweep_started())
    machines.turns("a", "b")
    machines.hold("a", 0)
    machines.happens(*trial(0))

    def dies(trial: int, run: str) -> str:
        raise ValueNotTakenError("as by kill -9")

    a.divided.note_run = dies  # type: ignore[method-assign]
    a.delivery.read()
    with pytest.raises(ValueNotTakenError, match="kill -9"):
        a.delivery.deliver()
    made = shown.run("trial-00000").info.run_id
    machines.lapse("a")
    machines.hold("a", 0, ended=True)
    machines.happens(sweep_ended(1))
    machines.turns("b")
    check_exact(shown, 1, 3)
    assert shown.run("trial-00000").info.run_id == made


def test_what_others_have_not_delivered_is_waited_for_and_not_for_ever(machines: Machines) -> None:
    a, b = machines.both()
    machines.hold("a", 0, ended=True)
    machines.hold("b", 1)
    machines.happens(sweep_started(), *trial(0), *trial(1))
    for sweep in (b, a):
        sweep.divided.begin_round([])  # the second lives, and delivers nothing
    machines.turns("b")
    assert b.delivery.may_end() == "", "trials run, and who holds one delivers the rest"
    machines.hold("b", 1, ended=True)
    machines.turns("b")
    assert b.delivery.may_end() is None
    machines.now += SUCCESSION_SECONDS - 1
    assert b.delivery.may_end() is None
    machines.now += 1
    assert (
        b.delivery.may_end() == "1 trials are left to other sweeps, which do not deliver them now"
    )
    machines.lapse("a")
    machines.turns("b")
    assert b.delivery.may_end() == ""


class Stopped:
    """A call before which its sweep is stopped for longer than its lease, and wakes up in it."""

    def __init__(
        self, machines: Machines, name: str, meanwhile: Callable[[], None] | None = None
    ) -> None:
        self._machines, self._name, self._meanwhile = machines, name, meanwhile
        self.trials: list[str] = []
        """Whose runs were made or written, in their order."""

    def at(self, call: Callable[..., T]) -> Callable[..., T]:
        def stopped(where: str, update: RunUpdate, **named: object) -> T:
            if update.name != NAME:
                self.trials.append(update.name)
            if len(self.trials) == 1:
                self._machines.lapse(self._name)
                if self._meanwhile is not None:
                    self._meanwhile()
            return call(where, update, **named)

        return stopped
