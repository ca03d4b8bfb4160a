"""Sweeps of one study are killed, stopped and cut off; each of their operations is judged."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.record.sharing.history import OperationKind, violations
from tests.record.sharing.recorder import deaths_of_sweeps, read_history, record_history
from tests.record.sharing.swarm import LEASE_SECONDS, N_STEPS, Swarm

N_TRIALS = 90
N_SEEDS = int(os.environ.get("HISTORIES", "1"))


@pytest.fixture
def swarm(database: str, tmp_path: Path) -> Iterator[Swarm]:
    record_history(database)
    swarm = Swarm(database, tmp_path, N_TRIALS)
    yield swarm
    swarm.end()


def count(url: str, query: str, *values: object) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute(f"SELECT count(*) FROM {query}".encode(), values).fetchone()
    assert row is not None
    return int(row[0])


def n_lapsed(url: str) -> int:
    """How many trials were taken over after their leases had ended."""
    return count(
        url,
        "history taken JOIN history had USING (trial) WHERE taken.kind = 'taken over' "
        "AND had.attempt = taken.attempt - 1 AND had.kind = 'asked' AND taken.done > had.done + %s",
        LEASE_SECONDS,
    )


def cut_off(url: str) -> None:
    """Every connection of the sweeps is lost, in whatever it is doing."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'automl' AND datname = current_database()"
        )


def after(swarm: Swarm, url: str, n_asked: int) -> None:
    swarm.wait(60, lambda: count(url, "automl_trials") >= n_asked)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(N_SEEDS))
def test_each_operation_keeps_the_promises_of_a_shared_study(
    swarm: Swarm, database: str, seed: int
) -> None:
    chance = random.Random(seed)
    for name in "abc":
        swarm.start(name)
    after(swarm, database, chance.randint(4, 12))
    swarm.kill(0)
    swarm.start("a")  # in the folder in which the dead one left what it had not shipped
    after(swarm, database, chance.randint(16, 24))
    swarm.signal(1, signal.SIGSTOP)
    swarm.wait(60, lambda: n_lapsed(database) > 0)
    swarm.signal(1, signal.SIGCONT)
    after(swarm, database, chance.randint(40, 50))
    cut_off(database)
    swarm.signal(2, signal.SIGSTOP)
    after(swarm, database, chance.randint(54, 60))
    swarm.signal(2, signal.SIGCONT)
    after(swarm, database, chance.randint(64, 80))
    swarm.kill(3)
    swarm.wait(300)
    history = read_history(database)
    deaths = deaths_of_sweeps(database, swarm.deaths)
    assert violations(history, N_TRIALS, deaths) == []
    kinds = Counter(operation.kind for operation in history)
    assert kinds[OperationKind.TAKEN_OVER] >= 3, "trials of who was killed, stopped"
    assert kinds[OperationKind.RENEWED]
    assert kinds[OperationKind.REPORTED] == N_TRIALS * N_STEPS
    assert [s.exitcode for s in swarm.sweeps] == [-signal.SIGKILL, 0, 0, -signal.SIGKILL]
