"""When the threads do what: time is given, and the database comes and goes."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from automl.errors import StorageError
from automl.record.lease import HOLDER_LEASE_SECONDS
from automl.record.sharing.background_duties import (
    GIVE_UP_SECONDS,
    RENEW_AFTER_STOP_SECONDS,
    RENEW_SECONDS,
    WORKER_SECONDS,
    SharingThreads,
)
from automl.record.sharing.database import Database


class Scene:
    """A keeper whose duties are counted."""

    def __init__(self) -> None:
        self.now, self.away = 0.0, False
        self.done: list[str] = []
        self.n_looked_for_lost = 0
        self.lent_until = 0.0
        self.keeper = SharingThreads(self, clock=lambda: self.now)

    def do(self, what: str) -> None:
        if self.away:
            raise StorageError("away")
        self.done.append(what)

    def ship(self) -> None:
        self.do("ship")

    def look(self) -> None:
        self.do("look")

    def renew(self) -> None:
        self.do("renew")

    def give_up(self) -> None:
        self.done.append("give up")

    def end_lost(self) -> None:
        self.n_looked_for_lost += 1

    def set_worker_deadline(self, until_seconds: float) -> None:
        self.lent_until = until_seconds

    def report_failure(self, error: BaseException) -> None:
        self.done.append("broke")

    def turns(self, seconds: float) -> list[str]:
        """What is done within these seconds, five turns each."""
        self.done.clear()
        for _ in range(round(seconds * 5)):
            self.now += 0.2
            self.keeper.watch()
            self.keeper.turn()
        return self.done


def test_leases_are_renewed_in_time_and_nothing_is_given_up() -> None:
    done = Scene().turns(60.1)
    assert done.count("renew") >= 60 // RENEW_SECONDS - 1
    assert done.count("ship") == 300
    assert done.count("look") >= 45
    assert "give up" not in done


def test_who_cannot_renew_gives_up_before_the_lease_ends() -> None:
    scene = Scene()
    scene.turns(RENEW_SECONDS + 0.3)
    scene.away = True
    assert scene.turns(GIVE_UP_SECONDS - 1) == []
    assert scene.keeper.trouble == "away"
    assert "give up" in scene.turns(1.5)
    assert scene.n_looked_for_lost == round(5 * scene.now), "all the time"
    scene.away = False
    assert scene.turns(0.2)[1:] == ["renew", "ship", "look"]
    assert scene.keeper.trouble is None


def test_who_was_stopped_asks_before_it_gives_up() -> None:
    """Perhaps no other sweep has taken the trials meanwhile."""
    scene = Scene()
    scene.now = 180.0
    done = scene.turns(RENEW_AFTER_STOP_SECONDS + 1)
    assert done[:3] == ["renew", "ship", "look"]
    assert "give up" not in done
    assert done.count("renew") == 1
    scene.now, scene.away = 360.0, True
    assert scene.turns(RENEW_AFTER_STOP_SECONDS - 0.4) == []
    assert "give up" in scene.turns(1)


@pytest.mark.slow
def test_workers_are_lent_devices_for_as_long_as_leases_last() -> None:
    """The time counts from the begin of a renewal; the database counts from later on."""
    scene = Scene()
    scene.turns(RENEW_SECONDS + 0.3)
    renewed = scene.lent_until - WORKER_SECONDS
    assert RENEW_SECONDS <= renewed < RENEW_SECONDS + 0.3
    assert GIVE_UP_SECONDS < WORKER_SECONDS < HOLDER_LEASE_SECONDS - 1.0
    scene.away = True
    scene.turns(GIVE_UP_SECONDS + 1)
    assert scene.lent_until == renewed + WORKER_SECONDS
    assert scene.keeper.is_cut_off
    scene.away = False
    scene.turns(0.2)
    assert scene.lent_until == scene.now + WORKER_SECONDS
    assert not scene.keeper.is_cut_off


def test_workers_are_lent_devices_from_the_start() -> None:
    scene = Scene()
    scene.keeper.start()
    scene.keeper.close()
    assert scene.lent_until == WORKER_SECONDS


def test_giving_up_waits_for_no_answer(database: str) -> None:
    """The server is stopped and keeps the connection; the clock is ten times as fast."""
    asks, answered, gave_up = threading.Event(), threading.Event(), threading.Event()
    with Database(database) as connected:
        with connected.transaction() as cursor:
            ((server,),) = cursor.execute("SELECT pg_backend_pid()")

        class AskingScene(Scene):
            def renew(self) -> None:
                asks.set()
                with connected.transaction() as cursor:
                    cursor.execute("SELECT 1")
                answered.set()

            def give_up(self) -> None:
                gave_up.set()

        keeper = SharingThreads(AskingScene(), clock=lambda: 10 * time.monotonic())
        os.kill(server, signal.SIGSTOP)
        try:
            keeper.start()
            assert gave_up.wait(300)
            assert asks.is_set()
            assert not answered.is_set()
        finally:
            os.kill(server, signal.SIGCONT)
            keeper.close()
        assert answered.is_set()
