"""A question that is answered in a child process."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from automl.execution.child_calls import call_in_child
from automl.trial import ProcessEntry


def say_who_and_wait(path: str) -> None:
    Path(path).with_suffix(".new").write_text(str(os.getpid()))
    Path(path).with_suffix(".new").rename(path)
    time.sleep(600)


def _interrupt_once_there(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)


def test_of_a_question_that_ctrl_c_ends_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "pid"
    # What a shell starts in the background, pytest too, ignores it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_interrupt_once_there, args=(path,), daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        call_in_child(ProcessEntry(f"{__name__}:say_who_and_wait", str(path)))
    with pytest.raises(ProcessLookupError):  # one that is left ends here, or pytest waits for it
        os.kill(int(path.read_text()), signal.SIGKILL)
    signal.signal(signal.SIGINT, before)
