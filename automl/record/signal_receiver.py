"""Receives the signals that ask this process to stop, from a command's first line to its exit.

Outside of a sweep a signal raises `StopSignal` in the main thread. A sweep says by a `StopPhase`
what a signal does instead. That happens in a thread of the receiver: the main thread may be in the
midst of printing a line, in which a handler must not print another.
"""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from automl.record.stop_signals import STOP_SIGNALS

ECHO_SECONDS = 0.25
"""A signal other than Ctrl-C that comes this soon after the first is the same one: `timeout` sends
its signal to the program and then to the whole group."""
INTERRUPTED_CODE, TERMINATED_CODE = 130, 143


class StopSignal(KeyboardInterrupt):
    """Raised in the main thread by a signal that ends its work."""

    def __init__(self, number: signal.Signals) -> None:
        is_ctrl_c = number is signal.SIGINT
        super().__init__("Ctrl-C" if is_ctrl_c else number.name)
        self.exit_code = INTERRUPTED_CODE if is_ctrl_c else TERMINATED_CODE


@dataclass(frozen=True)
class StopPhase:
    """What the signals do while one part of a sweep runs. The functions are called in a thread of
    the receiver."""

    first: Callable[[signal.Signals], object] = lambda number: None
    again: Callable[[], object] = lambda: None


ENDED_PHASE = StopPhase()
"""The phase after the last line, in which nothing is left to be stopped."""


class SignalReceiver:
    """Receives the stop signals of one command, or of one call from Python."""

    def __init__(self, *, owns_process: bool = False) -> None:
        self.owns_process = owns_process
        """Whether a second signal may end the process, which is the caller's otherwise."""
        self.first: StopSignal | None = None
        self._first_seconds = 0.0
        self._phase: StopPhase | None = None
        self._raises = True
        self._before: dict[int, object] = {}
        self._inbox: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, name="signals", daemon=True)

    @contextmanager
    def receiving(self, *, to_the_exit: bool = False) -> Iterator[SignalReceiver]:
        """Receive the signals in the block. Under `nohup` SIGHUP stays ignored.

        `to_the_exit`: only the exit of the interpreter follows, and its exit code stands.
        """
        self._before = {
            number: signal.getsignal(number)
            for number in STOP_SIGNALS
            if (number, signal.getsignal(number)) != (signal.SIGHUP, signal.SIG_IGN)
        }
        try:
            self._handle()
            yield self
        finally:
            for number, handler in self._before.items():
                signal.signal(number, signal.SIG_IGN if to_the_exit else handler)  # type: ignore[arg-type]
            if self._listener.is_alive():
                self._inbox.put(None)
                self._listener.join()

    def enter(self, phase: StopPhase) -> None:
        """Have the signals do what `phase` says from now on."""
        if not self._before:
            return
        self._phase, self._raises = phase, False
        self._handle()  # Ray has a handler of its own for SIGTERM
        if not self._listener.is_alive():
            self._listener.start()

    @contextmanager
    def phases(self) -> Iterator[None]:
        """Go back, after the block, to what signals did before its phases."""
        before = self._phase, self._raises
        try:
            yield
        finally:
            self._phase, self._raises = before

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Have a signal raise `StopSignal` in the block, too. One that came before raises it at
        once."""
        before = self._raises
        try:
            self._raises = True
            if self.first is not None:
                raise self.first
            yield
        finally:
            self._raises = before

    def _handle(self) -> None:
        for number in self._before:
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        now, stop = time.monotonic(), StopSignal(signal.Signals(number))
        is_echo = number != signal.SIGINT and now - self._first_seconds < ECHO_SECONDS
        if self.first is not None and (is_echo or number == signal.SIGHUP):
            return
        is_first = self.first is None
        if self.first is None:
            self.first, self._first_seconds = stop, now
        if (phase := self._phase) is not None:
            name = signal.Signals(number)
            self._inbox.put((lambda: phase.first(name)) if is_first else phase.again)
        if self._raises:
            raise stop

    def _listen(self) -> None:
        while (act := self._inbox.get()) is not None:
            act()


_receiver: SignalReceiver | None = None
"""The receiver of this process, as signal handlers are the process's, too."""


def in_main_thread() -> bool:
    """Return whether signals can be received here: Python delivers them to the main thread only."""
    return threading.current_thread() is threading.main_thread()


def signal_receiver() -> SignalReceiver:
    """Return what receives this thread's signals; something that receives none where nothing
    does."""
    return _receiver if _receiver is not None and in_main_thread() else SignalReceiver()


@contextmanager
def receive_signals(*, owns_process: bool, to_the_exit: bool = False) -> Iterator[SignalReceiver]:
    """Receive the stop signals in the block, unless a receiver does so already."""
    global _receiver
    if _receiver is not None or not in_main_thread():
        yield signal_receiver()
        return
    _receiver = SignalReceiver(owns_process=owns_process)
    try:
        with _receiver.receiving(to_the_exit=to_the_exit):
            yield _receiver
    finally:
        _receiver = None
