"""What a command makes of the signals that ask it to stop."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Iterator

import pytest

from automl.record.signal_receiver import (
    ENDED_PHASE,
    SignalReceiver,
    StopPhase,
    StopSignal,
    receive_signals,
    signal_receiver,
)
from automl.record.stop_signals import STOP_SIGNALS

PATIENCE_SECONDS = 120.0


class Phase:
    """A phase that tells what it was asked for."""

    def __init__(self) -> None:
        self.heard: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.of = StopPhase(lambda number: self.heard.put(number.name), lambda: self.heard.put("!"))

    def next(self) -> str:
        return self.heard.get(timeout=PATIENCE_SECONDS)


@pytest.fixture
def receiver() -> Iterator[SignalReceiver]:
    with receive_signals(owns_process=False) as receiver:
        yield receiver


@pytest.fixture
def phase(receiver: SignalReceiver) -> Phase:
    phase = Phase()
    receiver.enter(phase.of)
    return phase


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_outside_of_a_phase_each_signal_raises_and_has_its_exit_code(
    receiver: SignalReceiver, number: signal.Signals
) -> None:
    with pytest.raises(StopSignal, match="Ctrl-C" if number == signal.SIGINT else number.name):
        signal.raise_signal(number)
    assert receiver.first is not None
    assert receiver.first.exit_code == (130 if number == signal.SIGINT else 143)


def test_a_phase_hears_the_first_signal_and_the_second(
    receiver: SignalReceiver, phase: Phase
) -> None:
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGINT)
    assert (phase.next(), phase.next()) == ("SIGTERM", "!")
    assert str(receiver.first) == "SIGTERM", "the first one counts"


def test_the_first_of_an_earlier_phase_counts_in_a_later_one(
    receiver: SignalReceiver, phase: Phase
) -> None:
    signal.raise_signal(signal.SIGINT)
    later = Phase()
    receiver.enter(later.of)
    signal.raise_signal(signal.SIGINT)
    assert (phase.next(), later.next()) == ("SIGINT", "!")
    receiver.enter(ENDED_PHASE)
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_comes_twice_at_once_is_one(
    receiver: SignalReceiver, phase: Phase, number: signal.Signals
) -> None:
    """`timeout` sends it to the program, and then to the whole group; a closed terminal repeats
    its own."""
    for _ in range(3):
        signal.raise_signal(number)
    signal.raise_signal(signal.SIGINT)
    assert (phase.next(), phase.next()) == (number.name, "!")
    assert phase.heard.empty()


def test_within_a_phase_a_block_may_be_interrupted(receiver: SignalReceiver, phase: Phase) -> None:
    with pytest.raises(StopSignal), receiver.interruptible():
        signal.raise_signal(signal.SIGUSR1)
    assert phase.next() == "SIGUSR1"
    with pytest.raises(StopSignal), receiver.interruptible():
        pytest.fail("one that came before skips it")


def test_after_its_phases_a_signal_raises_again(receiver: SignalReceiver) -> None:
    with receiver.phases():
        receiver.enter(ENDED_PHASE)
    with pytest.raises(StopSignal):
        signal.raise_signal(signal.SIGTERM)


def test_a_handler_that_a_library_sets_is_replaced(receiver: SignalReceiver) -> None:
    """As `ray.init` sets one for SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    phase = Phase()
    receiver.enter(phase.of)
    signal.raise_signal(signal.SIGTERM)
    assert phase.next() == "SIGTERM"


def test_handlers_are_put_back_and_those_of_one_receiver_serve_all(
    receiver: SignalReceiver,
) -> None:
    ours = signal.getsignal(signal.SIGTERM)
    with receive_signals(owns_process=True) as inner:
        assert inner is receiver is signal_receiver()
    assert signal.getsignal(signal.SIGTERM) == ours


def test_before_and_after_nothing_is_received() -> None:
    before = [signal.getsignal(number) for number in STOP_SIGNALS]
    with receive_signals(owns_process=False):
        pass
    assert [signal.getsignal(number) for number in STOP_SIGNALS] == before
    assert signal_receiver().first is None


def test_a_thread_has_no_receiver(receiver: SignalReceiver) -> None:
    found: list[SignalReceiver] = []

    def look() -> None:
        found.append(signal_receiver())
        found[0].enter(ENDED_PHASE)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found[0] is not receiver
    with pytest.raises(StopSignal):
        signal.raise_signal(signal.SIGTERM)


def test_under_nohup_a_closed_terminal_stops_nothing() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with receive_signals(owns_process=False) as receiver:
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    assert receiver.first is None


def test_to_the_exit_signals_change_no_exit_code() -> None:
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        with receive_signals(owns_process=True, to_the_exit=True):
            pass
        for number in STOP_SIGNALS:
            signal.raise_signal(number)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
