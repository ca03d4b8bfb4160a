"""Sweeps of one study deliver it together: one run a trial, whoever dies, stops or wakes up."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from automl.config import KeepCheckpoints, TrackingConfig
from automl.record.lease import HOLDER_LEASE_SECONDS, this_holder
from automl.record.sharing import study_tables
from automl.record.sharing.database import Database
from automl.tracking.deliver.confirmed_offset import read_delivered_runs
from automl.tracking.deliver.mlflow_runs import MlflowRuns
from automl.tracking.deliver.process import SharedDeliveryJob
from automl.tracking.deliver.shared_delivery import (
    BEHIND_SECONDS,
    SUCCESSION_SECONDS,
    SharedConfirmations,
)
from automl.tracking.mlflow_store import NotDeliveredError, open_client
from automl.tracking.tracking_uri import resolve_uri
from automl.tracking.view.run_update import RunUpdate, StudyRef
from automl.trial import CheckpointKind, Event
from tests.postgres import Server, database, postgres
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
        self,
        name: str,
        study: Path,
        job: SharedDeliveryJob,
        clock: Callable[[], float],
        store: Path,
    ) -> None:
        self.name, self.study = name, study
        uri = resolve_uri(TrackingConfig(uri=f"sqlite:///{store}"))
        self.confirmed = SharedConfirmations.open(study / "events.log", wait_seconds=0.0)
        self.confirmed.connect(**vars(job), clock=clock)
        self.client, self.refusals = open_client(uri), list[str]()
        self.runs = MlflowRuns(self.client, uri, self.refusals.append)
        log, keep = study / "events.log", KeepCheckpoints.all
        self.delivery = self.confirmed.delivery(log, self.runs, keep, StudyRef(UUID, NAME))

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
        self.stores: dict[str, Path] = {}
        """The paths of MLflow's databases by sweep, where these differ."""

    def __getitem__(self, name: str) -> Sweep:
        if name not in self._sweeps:
            (study := self._folder / name / "studies" / NAME).mkdir(parents=True)
            for other in self._sweeps.values():
                shutil.copy(other.study / "events.log", study)
            (study / "events.log").touch()
            job = SharedDeliveryJob(self._url, NAME, name)
            store = self.stores.get(name, self._folder / "mlflow.db")
            sweep = self._sweeps[name] = Sweep(name, study, job, lambda: self.now, store)
            self._stack.callback(sweep.confirmed.close)
            self._stack.callback(sweep.delivery.end)
        return self._sweeps[name]

    def both(self) -> tuple[Sweep, Sweep]:
        return self["a"], self["b"]

    def happens(self, *events: Event, unseen_by: str = "") -> None:
        for sweep in self._sweeps.values():
            if sweep.name != unseen_by:
                write(sweep.study, *events)
        self.run("UPDATE automl_studies SET n_events = n_events + %s", len(events))

    def hold(self, sweep: str, *numbers: int, ended: bool = False) -> None:
        for number in numbers:
            self.run(
                "INSERT INTO automl_trials (study, number, params, sweep, lease_until, ended) "
                "VALUES (1, %s, '{}', %s, 'infinity', %s) ON CONFLICT (study, number) "
                "DO UPDATE SET sweep = excluded.sweep, ended = excluded.ended",
                *(number, sweep, ended),
            )
            self.run("UPDATE automl_studies SET n_asked = GREATEST(n_asked, %s)", number + 1)

    def lapse(self, sweep: str) -> None:
        """So much time goes by that its lease ends, as seen by everybody."""
        self.now += HOLDER_LEASE_SECONDS + 1
        self.run("UPDATE automl_stores SET lease_until = '-infinity' WHERE elected = %s", sweep)
        self.run("UPDATE automl_deliverers SET lease_until = '-infinity' WHERE sweep = %s", sweep)

    def die(self, sweep: str) -> None:
        """Its process ends, which only its own machine can see."""
        holder = replace(this_holder(), started="another process")
        self.run(
            "UPDATE automl_deliverers SET holder = %s WHERE sweep = %s",
            *(json.dumps(vars(holder)), sweep),
        )

    def run(self, statement: str, *values: object) -> None:
        """In the database."""
        with psycopg.connect(self._url) as connection:
            connection.execute(statement.encode(), values)

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


def n_runs(store: Path) -> Counter[str]:
    """The number of runs of each name in a store, in all its experiments."""
    client = open_client(resolve_uri(TrackingConfig(uri=f"sqlite:///{store}")))
    experiments = [found.experiment_id for found in client.search_experiments()]
    return Counter(run.info.run_name for run in client.search_runs(experiments))


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ways=st.lists(st.sampled_from(["path", "link", "copy"]), min_size=2, max_size=3),
    turns=st.lists(st.sampled_from("abc"), min_size=2, max_size=6),
    n_before=st.integers(0, 2),
)
def test_a_trial_has_one_run_in_each_store_whatever_path_leads_there(
    ways: list[str],
    turns: list[str],
    n_before: int,
    tmp_path_factory: pytest.TempPathFactory,
    empty_database: Path,
    postgres: Server,
) -> None:
    """A copy is made after the first sweep has delivered `n_before` trials, and is a store."""
    folder = tmp_path_factory.mktemp("stores")
    shutil.copyfile(empty_database, shared := folder / "mlflow.db")
    (folder / "link").symlink_to(folder)
    names = "abc"[: len(ways)]
    with ExitStack() as stack:
        machines = Machines(folder, postgres.url(postgres.new_database()), stack)
        machines.stores = {"a": shared}
        machines["a"].turn()
        machines.happens(sweep_started())
        for number in range(n_before):
            machines.happens(*trial(number))
            machines.hold("a", number, ended=True)
        machines.turns("a")
        for name, way in zip(names[1:], ways[1:], strict=True):
            machines.stores[name] = folder / "link" / "mlflow.db" if way == "link" else shared
            if way == "copy":
                machines.stores[name] = folder / f"{name}.db"
                shutil.copyfile(shared, machines.stores[name])
            machines[name].turn()
        for number in range(n_before, n_before + 2):
            machines.happens(begin(number))
            machines.hold(names[number % len(names)], number)
            machines.turns(*(name for name in turns if name in names))
            machines.happens(*trial(number)[1:])
            machines.hold(names[number % len(names)], number, ended=True)
        machines.happens(sweep_ended(n_before + 2))
        machines.turns(*names, *names)
        expected = {NAME: 1, **{f"trial-{n:05d}": 1 for n in range(n_before + 2)}}
        for store in {path.resolve() for path in machines.stores.values()}:
            assert n_runs(store) == expected


def test_one_writes_all_runs_and_each_uploads_the_files_of_its_trials(
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
    writes = Counted(b)
    machines.turns("a", "b")
    check_exact(shown, 2, 3)
    assert writes.names == [""], "its files alone"
    assert [shown.artifacts(f"trial-0000{n}") for n in (0, 1)] == [
        {"best.pt": b"best of 0"},
        {"best.pt": b"best of 1"},
    ]
    assert a.refusals == b.refusals == []
    assert a.delivery.may_end() == b.delivery.may_end() == ""
    b.delivery.end()
    known = read_delivered_runs(b.study / "events.log")
    assert known is not None
    assert set(known.runs) == {0, 1}, "of those that others have delivered, too"
    assert b.delivery.offset == a.delivery.offset == (a.study / "events.log").stat().st_size


def test_who_is_elected_after_a_dead_sweep_goes_on_in_the_same_runs(
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
    assert b.delivery.may_end() == "", "the files of trial 0 are with the dead one"


def test_a_dead_sweep_of_this_machine_is_not_waited_for(machines: Machines, shown: Shown) -> None:
    a, b = machines.both()
    machines.hold("a", 0, ended=True)
    machines.happens(sweep_started(), *trial(0)[:-1])
    machines.turns("a", "b")
    write_checkpoint(b.study, 0, CheckpointKind.LAST)  # their folders are on one disk
    machines.happens(finish(0), sweep_ended(1))
    machines.turns("b")
    assert shown.run("trial-00000").info.status == "RUNNING"
    machines.die("a")
    machines.turns("b")
    check_exact(shown, 1, 3)
    assert shown.artifacts("trial-00000") == {"last.pt": b"last of 0"}
    assert b.delivery.may_end() == ""
    with pytest.raises(NotDeliveredError, match="lease of this delivery has ended"):
        a.confirmed.check()


def test_who_wakes_up_after_its_lease_writes_nothing_more(machines: Machines, shown: Shown) -> None:
    a = machines.both()[0]
    machines.hold("a", 0, 1)
    machines.happens(sweep_started(), begin(0), begin(1))
    machines.turns("a", "b")
    machines.happens(report(0, 0), report(1, 0))
    stops = Stopped(machines, "a")
    a.runs.write = stops.at(a.runs.write)  # type: ignore[method-assign]
    machines.now += 2.5
    a.delivery.read()
    with pytest.raises(NotDeliveredError, match="lease of this delivery has ended"):
        a.delivery.deliver()
    assert stops.trials == ["trial-00000"], "the one that it was stopped in"
    machines.turns("b")
    machines.hold("b", 0, 1, ended=True)
    rest = [report(n, step) for n in (0, 1) for step in (1, 2)]
    machines.happens(*rest, finish(0), finish(1), sweep_ended(2))
    machines.turns("b", "a")
    check_exact(shown, 2, 3)
    assert stops.trials == ["trial-00000"]


def test_a_process_whose_sweep_is_stopped_leaves_the_runs_to_others(
    machines: Machines, shown: Shown
) -> None:
    machines.both()
    machines.happens(sweep_started())
    machines.turns("a", "b")
    machines.hold("b", 0)
    machines.happens(*trial(0)[:-1], unseen_by="a")
    machines.turns("a", "b")
    assert [run.info.run_name for run in shown.runs()] == [NAME], "it does not know the trial"
    machines.now += BEHIND_SECONDS
    machines.happens(finish(0), sweep_ended(1), unseen_by="a")
    machines.hold("b", 0, ended=True)
    machines.turns("a", "b")
    check_exact(shown, 1, 3)


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
    a.runs.create = stops.at(a.runs.create)  # type: ignore[method-assign]
    a.delivery.read()
    with pytest.raises(NotDeliveredError, match="lease of this delivery has ended"):
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

    def dies(trial: int, run_id: str) -> str:
        raise NotDeliveredError("as by kill -9")

    a.confirmed.note_run = dies  # type: ignore[method-assign]
    a.delivery.read()
    with pytest.raises(NotDeliveredError, match="kill -9"):
        a.delivery.deliver()
    made = shown.run("trial-00000").info.run_id
    machines.lapse("a")
    machines.hold("a", 0, ended=True)
    machines.happens(sweep_ended(1))
    machines.turns("b")
    check_exact(shown, 1, 3)
    assert shown.run("trial-00000").info.run_id == made


def test_a_run_that_was_purged_is_made_again(machines: Machines, shown: Shown) -> None:
    b = machines.both()[1]
    write_checkpoint(b.study, 0, CheckpointKind.BEST)
    machines.hold("b", 0, ended=True)
    machines.happens(sweep_started(), *trial(0), sweep_ended(1))
    machines["a"].turn()
    run = shown.run("trial-00000").info.run_id
    machines.run("UPDATE automl_runs SET run = 'purged'")
    with pytest.raises(NotDeliveredError, match="runs have vanished"):
        machines.turns("b")
    machines.turns("a", "b")
    check_exact(shown, 1, 3)
    assert shown.run("trial-00000").info.run_id == run, "the others are found"
    assert b.delivery.may_end() == ""


def test_what_others_have_not_delivered_is_waited_for_and_not_for_ever(machines: Machines) -> None:
    a, b = machines.both()
    machines.hold("a", 0, ended=True)
    machines.hold("b", 1)
    machines.happens(sweep_started(), *trial(0), *trial(1))
    a.delivery.read()  # elected, and delivers nothing
    machines.turns("b")
    assert b.delivery.may_end() == "", "trials run, and who is elected delivers the rest"
    machines.hold("b", 1, ended=True)
    machines.turns("b")
    assert b.delivery.may_end() is None
    machines.now += SUCCESSION_SECONDS - 1
    assert b.delivery.may_end() is None
    machines.now += 1
    assert (
        b.delivery.may_end() == "2 trials are left to other sweeps, which do not deliver them now"
    )
    machines.lapse("a")
    machines.turns("b")
    assert b.delivery.may_end() == ""


def test_files_of_a_sweep_that_delivers_are_left_to_it(machines: Machines) -> None:
    a, b = machines.both()
    machines["a"].delivery.read()
    machines.hold("b", 0, ended=True)
    machines.happens(sweep_started(), *trial(0), sweep_ended(1))
    b.delivery.read()  # it attends, and is slow
    machines.turns("a")
    assert a.delivery.may_end() is None
    machines.lapse("b")
    machines.turns("a")
    assert a.delivery.may_end() == ""


def test_a_trial_whose_end_was_taken_while_another_failed_is_done(
    machines: Machines, shown: Shown
) -> None:
    a = machines["a"]
    machines.hold("a", 0, 1, ended=True)
    machines.happens(sweep_started(), *trial(0), *trial(1), sweep_ended(2))
    write, failures = a.runs.write, ["trial-00001"]

    def fails_once(run_id: str, update: RunUpdate, *, created: bool, study: Path) -> None:
        if update.name in failures:
            failures.clear()
            raise NotDeliveredError("a dead server")
        write(run_id, update, created=created, study=study)

    a.runs.write = fails_once  # type: ignore[method-assign]
    with pytest.raises(NotDeliveredError, match="a dead server"):
        machines.turns("a")
    machines.turns("a")
    check_exact(shown, 2, 3)
    assert a.delivery.may_end() == ""


class Counted:
    """The updates that a sweep writes."""

    def __init__(self, sweep: Sweep) -> None:
        self.names: list[str] = []
        """The names of their runs, empty for one of files alone."""
        write = sweep.runs.write

        def counted(run_id: str, update: RunUpdate, *, created: bool, study: Path) -> None:
            self.names.append(update.name)
            write(run_id, update, created=created, study=study)

        sweep.runs.write = counted  # type: ignore[method-assign]


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
