"""When the thread does what: time is given, and the database comes and goes."""

from __future__ import annotations

from automl.errors import StorageError
from automl.record.sharing.keeper import GIVE_UP_SECONDS, RENEW_SECONDS, Duties, Keeper


class Scene:
    """A keeper whose duties are counted."""

    def __init__(self) -> None:
        self.now, self.away = 0.0, False
        self.done: list[str] = []
        self.keeper = Keeper(
            Duties(
                ship=lambda: self.do("ship"),
                look=lambda: self.do("look"),
                renew=lambda: self.do("renew"),
                give_up=lambda: self.done.append("give up"),
                broke=lambda error: self.done.append("broke"),
            ),
            clock=lambda: self.now,
        )

    def do(self, what: str) -> None:
        if self.away:
            raise StorageError("away")
        self.done.append(what)

    def turns(self, seconds: float) -> list[str]:
        """What is done within these seconds, five turns each."""
        self.done.clear()
        for _ in range(round(seconds * 5)):
            self.now += 0.2
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
    scene.away = False
    assert scene.turns(0.2) == ["renew", "ship", "look"]
    assert scene.keeper.trouble is None


def test_who_was_stopped_asks_before_it_gives_up() -> None:
    """Nobody may have taken the trials."""
    scene = Scene()
    scene.now = 180.0
    assert scene.turns(0.2) == ["renew", "ship", "look"]
