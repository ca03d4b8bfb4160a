"""What trials waited for: one wait for each reason, without waits for their turn."""

from __future__ import annotations

from dataclasses import replace

from automl.running.features.waits import SweepWaits, WaitHistory
from automl.terminal.view import SweepView, WaitingRow
from automl.trial import TrialsWaited

TURN = WaitingRow(1, "2 of 2 run", as_it_should=True)


def rooms(free: str) -> WaitingRow:
    return WaitingRow(2, f"9.0 GiB asked, {free} GiB room")


def test_a_reason_whose_numbers_change_is_one_wait() -> None:
    waits: list[TrialsWaited] = []
    history = WaitHistory(waits.append)
    for second, rows in enumerate([[TURN], [TURN, rooms("6.5")], [rooms("7.25")], [TURN], []]):
        history.look(rows, float(second))
    assert waits == [TrialsWaited(1.0, 3.0, "9.0 GiB asked, 6.5 GiB room")]


def test_another_reason_is_another_wait() -> None:
    waits: list[TrialsWaited] = []
    history = WaitHistory(waits.append)
    history.look([rooms("1")], 0.0)
    history.look([WaitingRow(2, "GPU 0 has failed")], 2.0)
    history.close(5.0)
    assert [(w.time, w.until) for w in waits] == [(0.0, 2.0), (2.0, 5.0)]


def test_a_wait_of_a_moment_is_left_out() -> None:
    waits: list[TrialsWaited] = []
    history = WaitHistory(waits.append)
    history.look([rooms("1")], 0.0)
    history.close(0.5)
    assert waits == []


def test_what_is_left_waiting_at_the_end_is_no_wait() -> None:
    waits: list[TrialsWaited] = []
    feature = SweepWaits(WaitHistory(waits.append))
    view = SweepView("a", "a", 0.0, 2, "loss", waiting=(rooms("1"),))
    feature.look(view)
    feature.look(replace(view, time=2.0, waiting=()))
    feature.look(replace(view, time=3.0, ended="interrupted"))
    feature.look(replace(view, time=9.0, ended="interrupted", waiting=()))
    assert [(w.time, w.until) for w in waits] == [(0.0, 2.0)]
