"""When trials that are lost are ended; time is given."""

from __future__ import annotations

from automl.record.lease import HOLDER_LEASE_SECONDS
from automl.record.sharing.background_duties import GIVE_UP_SECONDS, STOP_SECONDS, LostTrials

KILLED_SECONDS = 3.0
"""What it may take until what was given up is seen, and ended wherever it runs."""


class Scene:
    """Asks four times a second."""

    def __init__(self) -> None:
        self.now = 0.0
        self._lost = LostTrials(clock=lambda: self.now)

    def ended(self, seconds: float, *lost: int) -> list[tuple[float, list[int]]]:
        """Return the trials that must be ended within these seconds, and when."""
        found = []
        for _ in range(round(seconds * 4)):
            if late := self._lost.overdue(lost):
                found.append((self.now, sorted(late)))
            self.now += 0.25
        return found


def test_a_lost_trial_is_ended_when_it_had_time_to_stop_and_again_if_it_still_runs() -> None:
    scene = Scene()
    assert scene.ended(1, 3) == []
    assert scene.ended(2 * STOP_SECONDS + 1, 3, 4) == [
        (STOP_SECONDS, [3]),
        (STOP_SECONDS + 1, [4]),
        (2 * STOP_SECONDS, [3]),
        (2 * STOP_SECONDS + 1, [4]),
    ]


def test_a_trial_that_was_lost_and_came_back_is_let_be() -> None:
    scene = Scene()
    assert scene.ended(STOP_SECONDS - 1, 3) == []
    assert scene.ended(10) == []
    assert scene.ended(STOP_SECONDS - 1, 3) == []


def test_what_is_given_up_has_ended_when_the_lease_does() -> None:
    assert GIVE_UP_SECONDS + STOP_SECONDS + KILLED_SECONDS < HOLDER_LEASE_SECONDS
