"""The share that does not shrink."""

from __future__ import annotations

import pytest

from automl.commands.gain import serial_share


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_it_is_found_from_times_that_follow_the_law(share: float) -> None:
    points = [(n, 3.0 * (share + (1 - share) / n)) for n in (1, 2, 4, 8)]
    assert serial_share(points) == pytest.approx(share)


def test_noise_is_evened_out() -> None:
    points = [(n, (0.2 + 0.8 / n) * noise) for n, noise in ((1, 1.02), (2, 0.98), (4, 1.01))]
    assert serial_share(points) == pytest.approx(0.2, abs=0.05)


def test_it_stays_a_share() -> None:
    assert serial_share([(1, 1.0), (2, 2.0)]) == 1.0, "two take longer"
    assert serial_share([(1, 1.0), (2, 0.2)]) == 0.0, "more than twice as fast"


def test_one_count_tells_nothing() -> None:
    assert serial_share([]) is None
    assert serial_share([(1, 1.0), (1, 1.1)]) is None
