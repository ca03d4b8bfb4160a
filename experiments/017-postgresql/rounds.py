"""Three sweeps on one study, killed, stopped, cut off: is every trial there once? See README.md.

    PYTHONPATH=. python experiments/017-postgresql/rounds.py --rounds 3

Each sweep has a pid and a host namespace and a folder of its own (`unshare` as root, on Linux).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import psycopg
from proxy import Proxy

from automl.record.event_log import read_events
from automl.record.lease import HOLDER_LEASE_SECONDS
from automl.trial import FinishedOutcome, MetricsReported
from tests.postgres import Server, running_server

ROOT = Path(__file__).parents[2]
N_EPOCHS, EPOCH_SECONDS, N_AT_ONCE = 6, 0.25, 4
STOPPED_SECONDS, CUT_SECONDS = 20.0, 5.0
LIMIT_SECONDS = 1200.0
"""Of a round: one that takes longer hangs."""
OBJECTIVE = f"""
import time

def train(trial):
    for epoch in range({N_EPOCHS}):
        time.sleep({EPOCH_SECONDS})
        trial.report(epoch, {{"val_loss": trial.params["x"] + 1 / (epoch + 1)}})
"""
MAKE_STORE = "import sys, mlflow; mlflow.MlflowClient(sys.argv[1]).search_experiments()"
"""In a process of its own: a database with connections is no template."""


@dataclass
class Machine:
    """A sweep in namespaces of its own."""

    name: str
    folder: Path
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, name: str, folder: Path, words: list[str]) -> Machine:
        (own := folder / name).mkdir()
        (own / "objective.py").write_text(OBJECTIVE)
        command = ["sh", "-c", 'hostname "$0"; exec "$@"', name, sys.executable, "-m", "automl"]
        with (own / "said").open("wb") as said:
            process = subprocess.Popen(
                ["unshare", "-pfu", "--mount-proc", *command, *words],
                cwd=own,
                env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{own}"},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
        return cls(name, own, process)

    def signal(self, number: signal.Signals) -> None:
        """To all that runs on it: what is stopped can begin nothing new meanwhile."""
        for each in psutil.Process(self.process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                each.send_signal(number)

    def die(self) -> None:
        """As when its power fails: the first process of a namespace takes all others with it."""
        psutil.Process(self.process.pid).children()[0].kill()
        self.process.wait()

    @property
    def said(self) -> str:
        return (self.folder / "said").read_text()


class Study:
    """What the database says of it."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(query.encode(), values).fetchall()

    def n_ended(self) -> int:
        with suppress(psycopg.errors.UndefinedTable):
            return int(self.rows("SELECT count(*) FROM automl_trials WHERE ended")[0][0])
        return 0

    def sweep_of(self, machine: str) -> str:
        """The first one that was begun there."""
        found = self.rows("SELECT sweep, holder FROM automl_sweeps ORDER BY since")
        return next(str(s) for s, holder in found if json.loads(holder)["host"] == machine)

    def held(self, machine: str) -> dict[int, int]:
        """Attempts of the trials that it has begun and not ended."""
        query = "SELECT number, attempt FROM automl_trials WHERE sweep = %s AND NOT ended"
        return dict(self.rows(query, self.sweep_of(machine)))

    def attempts(self) -> dict[int, int]:
        return dict(self.rows("SELECT number, attempt FROM automl_trials"))

    def n_events(self) -> int:
        return int(self.rows("SELECT n_events FROM automl_studies")[0][0])

    def lines_of(self, machine: str, after: int) -> list[Any]:
        """What it wrote of trials after so many events of the study."""
        query = "SELECT line FROM automl_events WHERE sweep = %s AND place > %s"
        return [json.loads(line) for (line,) in self.rows(query, self.sweep_of(machine), after)]

    def close(self) -> None:
        self._connection.close()


def wait_for(holds: Callable[[], bool], what: str, seconds: float = LIMIT_SECONDS) -> float:
    """How many seconds it took."""
    begun = time.monotonic()
    while not holds():
        if time.monotonic() - begun > seconds:
            raise TimeoutError(f"not within {seconds:g} s: {what}")
        time.sleep(0.25)
    return time.monotonic() - begun


def play(server: Server, template: str, folder: Path, n_trials: int) -> dict[str, object]:
    """One round; the figures of the table."""
    database, mlflow = server.new_database(), server.new_database()
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {mlflow}".encode())
        connection.execute(f"CREATE DATABASE {mlflow} TEMPLATE {template}".encode())
    network = Proxy(server.port).start()
    through = server.url(database, tcp=True).replace(f":{server.port}/", f":{network.port}/")
    words = [
        "study.name=shared",
        f"study.n_trials={n_trials}",
        f"tracking.uri='{server.url(mlflow, tcp=True)}'",
        *("tracking.checkpoints=none", "pruner=none", "sampler=random", "devices.only=cpu"),
        f"admission.max_concurrent_trials={N_AT_ONCE}",
        *("objective=python", "objective.target=objective:train", "space={x: {low: 0, high: 1.0}}"),
    ]
    urls = {"dies": server.url(database, tcp=True), "short": through}
    urls["long"] = urls["dies"]
    begun = time.monotonic()
    machines = {
        name: Machine.start(name, folder, [*words, f"study.storage='{url}'"])
        for name, url in urls.items()
    }
    study = Study(server.url(database))
    try:
        figures = trouble(study, machines, network, n_trials)
        for name in ("short", "long"):
            code = machines[name].process.wait(LIMIT_SECONDS)
            assert code == 0, f"{name}: exit {code}\n{machines[name].said}"
        exact = check(study, machines, server.url(mlflow), n_trials)
    finally:
        study.close()
        for machine in machines.values():
            if machine.process.poll() is None:
                machine.signal(signal.SIGCONT)
                machine.die()
    return {"seconds": round(time.monotonic() - begun), **figures, **exact}


def trouble(
    study: Study, machines: dict[str, Machine], network: Proxy, n_trials: int
) -> dict[str, object]:
    """One dies, one is stopped for three leases, one for a while, which is cut off then."""
    wait_for(lambda: study.n_ended() >= n_trials // 15, "some trials have ended")
    for name in machines:
        wait_for(partial(is_at_work, study, name), f"{name} is at work")
    machines["dies"].die()
    died = time.monotonic()
    machines["long"].signal(signal.SIGSTOP)
    stopped = time.monotonic()
    time.sleep(2)  # what they had sent has come
    of_dead, of_long, n_events = study.held("dies"), study.held("long"), study.n_events()
    of_short = study.held("short")
    machines["short"].signal(signal.SIGSTOP)
    of_short = {n: a for n, a in study.held("short").items() if n in of_short}
    time.sleep(STOPPED_SECONDS)
    has_kept = all(study.attempts()[n] == a for n, a in of_short.items())
    machines["short"].signal(signal.SIGCONT)
    time.sleep(5)
    network.cut(CUT_SECONDS)
    elsewhere = until_elsewhere(study, of_dead, died)
    until_elsewhere(study, of_long, stopped)
    time.sleep(max(0.0, stopped + 3 * HOLDER_LEASE_SECONDS - time.monotonic()))
    machines["long"].signal(signal.SIGCONT)
    lost = {n for n, a in of_long.items() if study.attempts()[n] > a}
    machines["long"].process.wait(LIMIT_SECONDS)
    late = [e for e in study.lines_of("long", n_events) if e.get("trial") in lost]
    attempts = study.attempts()
    kept = sum(attempts[n] == a for n, a in of_short.items())
    return {
        "of the dead": len(of_dead),
        "elsewhere within s": round(elsewhere, 1),
        "stopped 20 s: kept": f"{kept} of {len(of_short)}" if has_kept else "lost",
        "stopped 3 leases: lost": f"{len(lost)} of {len(of_long)}",
        "written of those": len(late),
    }


def is_at_work(study: Study, machine: str) -> bool:
    with suppress(StopIteration):
        return len(study.held(machine)) >= N_AT_ONCE // 2
    return False


def until_elsewhere(study: Study, held: dict[int, int], since: float) -> float:
    """When the last of these trials had another attempt, in seconds from then on."""

    def all_are() -> bool:
        now = study.attempts()
        return all(now[n] > a for n, a in held.items())

    wait_for(all_are, f"trials {sorted(held)} are taken over", 3 * HOLDER_LEASE_SECONDS)
    return time.monotonic() - since


def check(
    study: Study, machines: dict[str, Machine], mlflow: str, n_trials: int
) -> dict[str, object]:
    """Everything once, in the copies of the record and in MLflow's own tables."""
    wanted = {(n, epoch) for n in range(n_trials) for epoch in range(N_EPOCHS)}
    doubled = 0
    for name in ("short", "long"):
        log = machines[name].folder / "studies" / "shared" / "events.log"
        events = [event for event, _ in read_events(log)]
        steps = [(e.trial, e.step) for e in events if isinstance(e, MetricsReported)]
        ended = [e.trial for e in events if isinstance(e, FinishedOutcome)]
        assert set(steps) == wanted, f"{name}: {wanted ^ set(steps)}"
        assert set(ended) == set(range(n_trials)), name
        doubled += len(steps) - len(wanted) + len(ended) - n_trials
    assert study.rows("SELECT count(*) FROM automl_trials")[0][0] == n_trials
    shown = Study(mlflow)
    runs = shown.rows(
        "SELECT t.value::int, r.status, r.run_uuid FROM runs r JOIN tags t USING (run_uuid) "
        "WHERE t.key = 'automl.trial' AND r.lifecycle_stage = 'active'"
    )
    points = shown.rows(
        "SELECT t.value::int, m.step::int FROM metrics m JOIN runs r USING (run_uuid) "
        "JOIN tags t USING (run_uuid) WHERE m.key = 'val_loss' AND t.key = 'automl.trial' "
        "AND r.lifecycle_stage = 'active'"
    )
    deleted = shown.rows("SELECT count(*) FROM runs WHERE lifecycle_stage <> 'active'")[0][0]
    parents = shown.rows(
        "SELECT status FROM runs WHERE lifecycle_stage = 'active' AND run_uuid NOT IN "
        "(SELECT run_uuid FROM tags WHERE key = 'automl.trial')"
    )
    shown.close()
    assert {number for number, *_ in runs} == set(range(n_trials)), "runs are missing"
    assert {status for _, status, _ in runs} == {"FINISHED"}, [
        r for r in runs if r[1] != "FINISHED"
    ]
    assert set(points) == wanted, f"MLflow: {wanted ^ set(points)}"
    assert parents == [("FINISHED",)], parents
    return {
        "trials": n_trials,
        "twice in record": doubled,
        "twice in MLflow": len(points) - len(wanted),
        "runs too many": len(runs) - n_trials,
        "deleted": deleted,
    }


@contextmanager
def servers() -> Iterator[tuple[Server, str]]:
    """PostgreSQL that flushes, and in it the name of an empty database of MLflow's."""
    with TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        (data := Path(folder, "data")).mkdir()
        with running_server(data, flushes=True) as server:
            name = server.new_database()
            made = [sys.executable, "-c", MAKE_STORE, server.url(name, tcp=True)]
            subprocess.run(made, check=True, stderr=subprocess.DEVNULL)
            yield server, name


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--rounds", type=int, default=20)
    words.add_argument("--trials", type=int, default=300)
    given = words.parse_args()
    with servers() as (server, template):
        for n in range(1, given.rounds + 1):
            with TemporaryDirectory() as folder:
                figures = play(server, template, Path(folder), given.trials)
            if n == 1:
                sys.stdout.write(f"| round | {' | '.join(figures)} |\n")
                sys.stdout.write(f"|{'---|' * (len(figures) + 1)}\n")
            sys.stdout.write(f"| {n} | {' | '.join(map(str, figures.values()))} |\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
