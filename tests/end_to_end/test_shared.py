"""Sweeps of one study in PostgreSQL, each in a folder of its own as on machines of their own."""

from __future__ import annotations

import shutil
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from omegaconf import OmegaConf

from automl.record.event_log import read_events
from automl.trial import CheckpointKind, CheckpointWritten
from tests.end_to_end.objectives import N_EPOCHS
from tests.end_to_end.program import OBJECTIVES, Program, Running, objective_words, wait_until
from tests.end_to_end.records import Records
from tests.postgres import Server, database, postgres
from tests.record.sharing.history import trained_at_once, violations
from tests.record.sharing.recorder import (
    deaths_of_sweeps,
    read_history,
    read_trainings,
    record_history,
)

__all__ = ["database", "postgres"]

METRICS = ["train_loss", "val_loss"]


class Machines:
    """Folders that share a database and MLflow's store, and nothing else."""

    def __init__(self, folder: Path, database: str, mlflow: Path) -> None:
        self._folder, self._database, self._mlflow = folder, database, mlflow
        self._programs: dict[str, Program] = {}
        self._deaths: dict[int, float] = {}
        self._are_leases_true = True
        record_history(database)

    def __getitem__(self, name: str) -> Program:
        if name not in self._programs:
            (folder := self._folder / name).mkdir()
            self._programs[name] = Program(folder)
        return self._programs[name]

    def words(self, n_trials: int, *more: str) -> tuple[str, ...]:
        return (*self.shared(n_trials), *objective_words("counts"), *more)

    def shared(self, n_trials: int) -> tuple[str, ...]:
        """Of any objective."""
        return (
            "study.name=shared",
            f"study.n_trials={n_trials}",
            f"study.storage='{self._database}'",
            f"tracking.uri=sqlite:///{self._mlflow}",
            "pruner=none",
            "devices.only=cpu",
            "admission.max_concurrent_trials=2",
        )

    def records(self, name: str) -> Records:
        return Records(self[name].folder, "shared", f"sqlite:///{self._mlflow}")

    def held(self, by_trial: str = "NOT ended") -> list[int]:
        with psycopg.connect(self._database) as connection:
            found = connection.execute(
                f"SELECT number FROM automl_trials WHERE {by_trial}".encode()
            )
            return [number for (number,) in found]

    def lapse(self) -> None:
        """All leases end, by the database's clock."""
        self._are_leases_true = False
        self.run("UPDATE automl_trials SET lease_until = '-infinity' WHERE NOT ended")
        self.run("UPDATE automl_stores SET lease_until = '-infinity'")

    def run(self, statement: str) -> None:
        """In the database."""
        with psycopg.connect(self._database) as connection:
            connection.execute(statement.encode())

    def kill(self, sweep: Running) -> None:
        """`kill -9` of a sweep, whose trials may be taken over from then on."""
        self._deaths[sweep.process.pid] = time.time()
        sweep.kill()

    def check_exact(self, name: str, n_trials: int) -> None:
        """No operation on the study broke a promise, no trial trained in two places at once, and
        one machine's copy of the record is whole, as is MLflow."""
        check_exact(self.records(name), n_trials)
        deaths = deaths_of_sweeps(self._database, self._deaths)
        assert violations(read_history(self._database), n_trials, deaths) == []
        if self._are_leases_true:
            trained = self._folder.glob("*/studies/**/checkpoints/trial-*/when")
            assert trained_at_once(read_trainings(*trained)) == []

    def end_all(self) -> None:
        for program in self._programs.values():
            program.end_all()


@pytest.fixture
def machines(tmp_path: Path, database: str, empty_database: Path) -> Iterator[Machines]:
    shutil.copyfile(empty_database, mlflow := tmp_path / "mlflow.db")
    machines = Machines(tmp_path, database, mlflow)
    yield machines
    machines.end_all()


def check_exact(records: Records, n_trials: int) -> None:
    """Nothing missing, nothing twice, nothing more: in the copy of the record and in MLflow."""
    assert set(records.outcomes()) == set(range(n_trials))
    steps = {(n, step) for n in range(n_trials) for step in range(N_EPOCHS)}
    assert set(records.losses()) == steps
    runs = records.trial_runs()
    assert set(runs) == set(range(n_trials))
    for number, run in runs.items():
        assert run.info.status == "FINISHED", f"trial {number}"
        for metric in METRICS:
            assert records.steps(run, metric) == list(range(N_EPOCHS)), f"trial {number}"


def values(records: Records) -> dict[tuple[int, int], float]:
    return {key: metrics["val_loss"] for key, metrics in records.losses().items()}


@pytest.mark.slow
def test_three_sweeps_are_one_study_and_one_of_them_is_killed(machines: Machines) -> None:
    n_trials = 16
    sweeps = {name: machines[name].start(*machines.words(n_trials)) for name in "abc"}
    records = {name: machines.records(name) for name in "abc"}
    sweeps["b"].wait_until(lambda: len(records["b"].outcomes()) > 3, "four trials have ended")
    machines.kill(sweeps["b"])
    for name in "ac":
        done = sweeps[name].wait()
        assert (done.code, done.stderr) == (0, "")
        assert f"shared: {n_trials} finished" in done.stdout
        assert len(records[name].outcomes()) == n_trials
    machines.check_exact("a", n_trials)
    again = machines["b"].call("resume", "study.name=shared", f"study.n_trials={n_trials}")
    assert (again.code, again.stderr) == (0, ""), again.stderr
    assert values(records["b"]) == values(records["a"])
    assert not [*(records["b"].path / "outbox").iterdir()], "all was shipped"


@pytest.mark.slow
def test_two_sweeps_at_once_try_each_point_of_a_grid_once(machines: Machines) -> None:
    """Those enqueued first; both end, though the study would take more trials."""
    xs, enqueued = [*range(16)], [7, 3]
    words = (
        *(*machines.shared(100), "sampler=grid", "objective=python"),
        f"objective.target={OBJECTIVES}:counts",
        f"space={{x: {{choices: {xs}}}}}",
        f"study.enqueue=[{', '.join(f'{{x: {x}}}' for x in enqueued)}]",
    )
    first = machines["a"].start(*words)
    first.wait_until(lambda: len(machines.records("a").losses()) >= 1, "it reports")
    first.signal(signal.SIGSTOP)
    second = machines["b"].start(*words)
    second.wait_until(lambda: len(machines.records("b").losses()) >= 1, "so does the other")
    first.signal(signal.SIGCONT)
    for done in (first.wait(), second.wait()):
        assert (done.code, done.stderr) == (0, "")
        assert f"shared: {len(xs)} finished" in done.stdout
    machines.check_exact("a", len(xs))
    tried = [params["x"] for _, params in sorted(machines.records("a").params().items())]
    assert tried[: len(enqueued)] == enqueued
    assert sorted(map(str, tried)) == sorted(map(str, xs))


@pytest.mark.slow
def test_who_was_stopped_for_longer_than_its_lease_writes_nothing_more(machines: Machines) -> None:
    n_trials = 40
    stopped = machines["a"].start(*machines.words(n_trials))
    records = machines.records("a")
    stopped.wait_until(lambda: len(records.outcomes()) >= 1, "a trial has ended")
    stopped.signal(signal.SIGSTOP)
    assert machines.held(), "it holds trials"
    machines.lapse()
    other = machines["b"].start(*machines.words(n_trials))
    done = other.wait()
    assert (done.code, done.stderr) == (0, "")
    machines.check_exact("b", n_trials)
    stopped.signal(signal.SIGCONT)
    late = stopped.wait()
    assert (late.code, late.stderr) == (0, "")
    machines.check_exact("b", n_trials)
    assert values(records) == values(machines.records("b"))


@pytest.mark.slow
def test_trials_of_a_sweep_that_is_stopped_end_before_its_lease_does(machines: Machines) -> None:
    """By themselves: nobody sees to them. Woken, it goes on with the trial that nobody took."""
    sweep = machines["a"].start(*machines.shared(1), *objective_words("never_returns"))
    records = machines.records("a")
    hangs = records.path / "checkpoints" / "trial-00000" / "hangs"
    sweep.wait_until(hangs.exists, "a trial that hangs")
    sweep.signal(signal.SIGSTOP)
    (worker,) = workers_of(psutil.Process(sweep.process.pid))
    lasts = "NOT ended AND lease_until > clock_timestamp()"
    wait_until(lambda: not worker.is_running(), "its worker ended")
    assert machines.held(lasts) == [0], "and the lease had not"
    wait_until(lambda: not machines.held(lasts), "the lease ends")
    sweep.signal(signal.SIGCONT)
    sweep.wait_until(lambda: len(hangs.read_text().split()) == 2, "it goes on")
    assert [e.lease_ended for e in records.interrupted()] == [True]
    assert machines.held("attempt = 1") == [0], "no other has had it"


@pytest.mark.slow
def test_a_running_trial_says_on_which_machine_and_ends_if_it_is_lost(
    machines: Machines, database: str
) -> None:
    """It is shown in `status`, there and in an empty folder, and in MLflow. That it is lost, it is
    told by the renewal of its lease; the sweep itself takes it over again then, which it does not
    while the trial runs."""
    sweep = machines["a"].start(*machines.shared(1), *objective_words("never_returns"))
    records, here = machines.records("a"), f"cpu of {socket.gethostname()}"
    known = ("study.name=shared", f"study.storage='{database}'")
    shown = records.path / "status.json"
    sweep.wait_until(lambda: bool(shown.exists() and records.losses()), "it reports")
    sweep.wait_until(lambda: here in machines["a"].call("status").stdout, "it is shown")
    for seen in (machines["a"].call("status", *known), machines["b"].call("status", *known)):
        assert (seen.code, seen.stderr) == (0, "")
        assert f"trials that run: 1 on {socket.gethostname()}" in seen.stdout
    sweep.wait_until(lambda: 0 in records.trial_runs(), "MLflow has it")
    assert records.trial_runs()[0].data.tags["automl.device"] == here

    hangs = records.path / "checkpoints" / "trial-00000" / "hangs"
    sweep.wait_until(hangs.exists, "a trial that hangs")
    machines.run("UPDATE automl_trials SET sweep = NULL, attempt = attempt + 1")
    sweep.wait_until(lambda: len(hangs.read_text().split()) == 2, "it was ended, and begun again")
    assert machines.held("attempt = 3") == [0]


@pytest.mark.slow
def test_with_a_bucket_trials_go_on_elsewhere_from_their_checkpoints(
    machines: Machines, tmp_path: Path
) -> None:
    """The machines share no folder but that."""
    n_trials, bucket = 20, f"study.checkpoint_copies=file://{tmp_path}/bucket"
    words = machines.words(n_trials, bucket, "training.checkpoint_every_seconds=0")
    killed = machines["a"].start(*words)
    records = machines.records("a")
    killed.wait_until(lambda: len(records.losses()) >= 8, "trials report")
    kept: dict[int, int] = {}

    def has_kept_some() -> bool:
        killed.signal(signal.SIGSTOP)
        kept.update(kept_of(records.path, set(machines.held())))
        if not kept:
            killed.signal(signal.SIGCONT)
        return bool(kept)

    killed.wait_until(has_kept_some, "a trial that it holds has a checkpoint")
    machines.kill(killed)
    machines.lapse()
    done = machines["b"].start(*words).wait()
    assert (done.code, done.stderr) == (0, "")
    assert "begin again" not in done.stdout
    machines.check_exact("b", n_trials)
    for number, step in kept.items():
        trained = machines.records("b").path / f"checkpoints/trial-{number:05d}/trained"
        if trained.exists():  # else all was trained, and only its end was to be told
            assert int(trained.read_text().split()[0]) > step, "what was told of as written counts"


def workers_of(sweep: psutil.Process) -> list[psutil.Process]:
    """Children of its fork server, which is that of its children that has some of its own."""
    return [child for server in sweep.children() for child in server.children()]


def kept_of(study: Path, trials: set[int]) -> dict[int, int]:
    """The last step of each of these trials of which its sweep has said that it is written."""
    (own,) = (study / "outbox").iterdir()
    return {
        event.trial: event.step
        for event, _ in read_events(own)
        if isinstance(event, CheckpointWritten)
        and event.trial in trials
        and event.kind is CheckpointKind.LAST
    }


@pytest.mark.slow
def test_who_was_stopped_for_a_while_keeps_its_trials(machines: Machines) -> None:
    n_trials = 40
    stopped = machines["a"].start(*machines.words(n_trials))
    records = machines.records("a")
    stopped.wait_until(lambda: len(records.losses()) >= 3, "it reports")
    stopped.signal(signal.SIGSTOP)
    held = machines.held()
    assert held, "it holds trials"
    other = machines["b"].start(*machines.words(n_trials))
    wait_until(lambda: len(machines.held("ended")) >= n_trials - len(held), "the rest has ended")
    assert machines.held("attempt > 1") == []
    stopped.signal(signal.SIGCONT)
    assert stopped.wait().code == 0
    assert other.wait().code == 0
    assert machines.held("attempt > 1") == []
    machines.check_exact("b", n_trials)


@pytest.mark.slow
def test_what_was_interrupted_goes_on_elsewhere(machines: Machines) -> None:
    n_trials = 16
    first = machines["a"].start(*machines.words(n_trials))
    records = machines.records("a")
    first.wait_until(lambda: len(records.outcomes()) >= 1, "a trial has ended")
    first.signal(signal.SIGINT)
    assert first.wait().code == 130
    assert machines.held("NOT ended AND sweep IS NOT NULL") == []
    done = machines["b"].call(*machines.words(n_trials))
    assert (done.code, done.stderr) == (0, "")
    machines.check_exact("b", n_trials)


@pytest.mark.slow
def test_a_raised_total_is_seen_by_who_runs(machines: Machines) -> None:
    first = machines["a"].start(*machines.words(24))
    records = machines.records("a")
    first.wait_until(lambda: len(records.losses()) >= 1, "it reports")
    first.signal(signal.SIGSTOP)
    second = machines["b"].start(*machines.words(30))
    wait_until(lambda: 29 in machines.held("true"), "the other asks for more")
    first.signal(signal.SIGCONT)
    for sweep in (first, second):
        done = sweep.wait()
        assert (done.code, done.stderr) == (0, "")
    machines.check_exact("a", 30)


def test_who_joins_searches_as_the_study_was_begun_unless_it_says_otherwise(
    machines: Machines,
) -> None:
    """Though its own config files, or another version's, would choose another sampler."""
    done = machines["a"].run(*machines.words(3, "sampler=qmc", "sampler.scramble=false"))
    assert (done.code, done.stderr) == (0, "")
    joins = machines["b"].run(*machines.words(6))
    assert (joins.code, joins.stderr) == (0, "")
    begun = "sampler=qmc sampler.qmc_type='sobol' sampler.scramble=false"
    assert f"{begun}: as study shared was begun, which this sweep joins\n" in joins.stdout
    config = machines["b"].folder / "studies" / "shared" / "config.yaml"
    assert OmegaConf.load(config).sampler.scramble is False
    says = machines["c"].run(*machines.words(7, "sampler=random"))
    assert (says.code, says.stderr) == (0, "")
    assert f"study shared was begun with {begun}; this sweep has sampler=random\n" in says.stdout


def test_other_settings_are_refused_as_in_resume(machines: Machines) -> None:
    assert machines["a"].call(*machines.words(1)).code == 0
    done = machines["b"].call(*machines.words(1, "study.seed=7"))
    assert done.code == 2
    assert "study.seed: 0 in the study, 7 now" in done.stderr
    assert not (machines["b"].folder / "studies" / "shared").exists()


@pytest.mark.slow
def test_an_empty_folder_knows_all_by_url_and_name(machines: Machines, database: str) -> None:
    assert machines["a"].call(*machines.words(3)).code == 0
    known = ("study.name=shared", f"study.storage='{database}'")
    seen = machines["b"].call("status", *known)
    assert (seen.code, seen.stderr) == (0, "")
    assert "3/3" in seen.stdout
    assert machines["c"].call("sync", *known).code == 0
    more = machines["d"].call("resume", *known, "study.n_trials=5")
    assert (more.code, more.stderr) == (0, "")
    machines.check_exact("d", 5)
    unknown = machines["e"].call("status", "study.name=other", known[1])
    assert (unknown.code, "it has: shared" in unknown.stderr) == (2, True)


@pytest.mark.slow
def test_a_database_that_is_away_delays_and_loses_nothing(
    machines: Machines, postgres: Server
) -> None:
    n_trials = 16
    sweep = machines["a"].start(*machines.words(n_trials))
    records = machines.records("a")
    sweep.wait_until(lambda: len(records.losses()) >= 3, "it reports")
    postgres.stop()
    try:
        trained = [*records.path.glob("checkpoints/*/trained")]
        whole = lambda: all(t.read_text().count("\n") == N_EPOCHS for t in trained)  # noqa: E731
        sweep.wait_until(whole, "running trials go on")
    finally:
        postgres.start()
    done = sweep.wait()
    assert f"shared: {n_trials} finished" in done.stdout, done
    assert done.code == 0
    machines.check_exact("a", n_trials)


@pytest.mark.slow
def test_a_database_that_is_stopped_keeps_no_sweep_from_its_end(
    machines: Machines, postgres: Server
) -> None:
    """It still has its connections, and never answers."""
    words = machines.words(60, "study.grace_seconds=5", "tracking.uri=none")
    sweep = machines["a"].start(*words)
    records = machines.records("a")
    sweep.wait_until(lambda: len(records.losses()) >= 3, "it reports")
    with postgres.suspended():
        sweep.signal(signal.SIGINT)
        done = sweep.wait()
    assert done.code == 130
    assert "the database has not taken all that this sweep did" in done.stdout
    again = machines["a"].call("resume", "study.name=shared")
    assert (again.code, again.stderr) == (0, ""), again.stderr
    assert "shared: 60 finished" in again.stdout


@pytest.mark.parametrize("url", ["postgresql://nobody@127.0.0.1:1/x", "postgresql:///x?host=/no"])
def test_a_database_that_refuses_is_one_message(machines: Machines, url: str) -> None:
    done = machines["a"].call(*machines.words(1), f"study.storage='{url}'")
    assert done.code == 2
    assert "cannot be used" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (machines["a"].folder / "studies" / "shared").exists()


@pytest.mark.slow
def test_the_same_command_in_one_folder_joins_and_goes_on_from_checkpoints(
    machines: Machines,
) -> None:
    n_trials, words = 16, machines.words(16, "training.checkpoint_every_seconds=0")
    first = machines["a"].start(*words)
    records = machines.records("a")
    first.wait_until(lambda: len(records.outcomes()) >= 1, "a trial has ended")
    first.signal(signal.SIGSTOP)
    second = machines["a"].start(*words)
    (joined,) = wait_for_joined(records.path, second)
    machines.kill(first)
    done = second.wait()
    assert (done.code, done.stderr) == (0, ""), done.stderr
    assert "this one joins it" in done.stdout
    again = machines["a"].call("resume", "study.name=shared")
    assert (again.code, again.stderr) == (0, ""), again.stderr
    machines.check_exact("a", n_trials)
    for trained in joined.glob("checkpoints/*/trained"):
        epochs = [int(line) for line in trained.read_text().splitlines()]
        assert len(epochs) <= N_EPOCHS + 1, f"{trained} began again"


@pytest.mark.slow
def test_in_one_folder_who_was_stopped_leaves_the_files_of_who_has_its_trials_now(
    machines: Machines,
) -> None:
    """Its leases end by the database's clock alone, as where a virtual machine was paused: by its
    own clock its workers may still train as they wake."""
    words = machines.words(30, "training.checkpoint_every_seconds=0")
    stopped = machines["a"].start(*words)
    records = machines.records("a")
    stopped.wait_until(lambda: len(records.outcomes()) >= 1, "a trial has ended")
    processes = psutil.Process(stopped.process.pid).children(recursive=True)
    stopped.signal(signal.SIGSTOP)
    for process in processes:
        process.suspend()
    held = machines.held()
    assert held, "it holds trials"
    machines.lapse()
    other = machines["a"].start(*words)
    wait_for_joined(records.path, other)
    done = other.wait()
    assert (done.code, done.stderr) == (0, "")
    files = [path for n in held for path in records.path.glob(f"checkpoints/trial-{n:05d}/*.pt")]
    assert files
    before = {path: path.read_bytes() for path in files}
    stopped.signal(signal.SIGCONT)
    for process in processes:
        process.resume()
    late = stopped.wait()
    assert (late.code, late.stderr) == (0, "")
    assert {path: path.read_bytes() for path in files} == before
    machines.check_exact("a", 30)


def wait_for_joined(main: Path, sweep: Running) -> list[Path]:
    sweep.wait_until(lambda: bool([*main.glob("joined/*/shared/config.yaml")]), "it has joined")
    return [*main.glob("joined/*/shared")]
