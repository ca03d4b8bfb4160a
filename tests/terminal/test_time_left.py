"""The time left that a sweep shows, from when its trials ended."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from automl.terminal.time_left import TimeLeft, within_time_limit


def shown(
    ends: list[float], n_trials: int, until: int, held: tuple[int, int] = (0, 0)
) -> list[float | None]:
    """Return what is shown at each second; trials end at these times, one runs at once."""
    time_left, found = TimeLeft(), list[float | None]()
    for now in range(until):
        n_ended = sum(end <= now for end in ends)
        left = time_left.look(
            float(now),
            n_ended=n_ended,
            n_paused=0,
            n_running=1,
            n_trials=n_trials,
            is_held=held[0] <= now < held[1],
        )
        found.append(left)
    return found


def test_trials_of_one_length_are_foretold_once_three_have_ended() -> None:
    found = shown([10.0 * n for n in range(1, 11)], 10, 100)
    assert found[:30] == [None] * 30
    assert all(
        left is not None and abs(left - (100 - now)) <= 10
        for now, left in enumerate(found)
        if now >= 30
    )


@given(
    waits=st.lists(st.floats(0.1, 50), min_size=1, max_size=12),
    n_more=st.integers(1, 50),
    n_seconds=st.integers(1, 300),
)
def test_while_nothing_ends_it_never_rises_and_in_the_end_is_left_out(
    waits: list[float], n_more: int, n_seconds: int
) -> None:
    ends = [sum(waits[: n + 1]) for n in range(len(waits))]
    last = int(ends[-1]) + 1
    found = shown(ends, len(ends) + n_more, last + n_seconds)[last:]
    known = [left for left in found if left is not None]
    assert known == sorted(known, reverse=True)
    assert found == [*known, *[None] * (len(found) - len(known))]
    assert len(known) <= 2 * max(waits) + 6


@given(begins=st.integers(35, 60), lasts=st.integers(1, 200))
def test_in_a_pause_it_stands_still_and_goes_on_after_it(begins: int, lasts: int) -> None:
    whole = shown([10.0 * n for n in range(1, 11)], 10, 100)
    ends = [10.0 * n + (lasts if 10 * n >= begins else 0) for n in range(1, 11)]
    found = shown(ends, 10, 100 + lasts, held=(begins, begins + lasts))
    assert found[begins : begins + lasts] == [whole[begins - 1]] * lasts
    after = zip(found[begins + lasts :], whole[begins:], strict=True)
    assert all(a == b or (a is not None and b is not None and abs(a - b) < 2) for a, b in after)


def test_no_longer_is_left_than_the_time_given() -> None:
    assert within_time_limit(20.0, 10.0, None, has_total=True) == 20.0
    assert within_time_limit(20.0, 10.0, 60.0, has_total=True) == 20.0
    assert within_time_limit(200.0, 10.0, 60.0, has_total=True) == 50.0
    assert within_time_limit(200.0, 61.0, 60.0, has_total=True) is None
    assert within_time_limit(None, 10.0, 60.0, has_total=True) is None
    assert within_time_limit(None, 10.0, 60.0, has_total=False) == 50.0
    assert within_time_limit(9.0, 10.0, None, has_total=False) is None
    assert within_time_limit(None, 61.0, 60.0, has_total=False) is None
