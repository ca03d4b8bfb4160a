"""How real programs end: stopped, with an exit status, killed, with processes left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from automl.objectives.program.command_session import open_session
from automl.objectives.program.program_flags import CommandSetup
from automl.trial import (
    Direction,
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    ObjectiveSession,
    OutOfMemoryOutcome,
    PrunedOutcome,
    StillRunning,
    TrialEvent,
    Verdict,
)
from tests.flips import one_bit_flipped
from tests.models.conftest import Listener, make_spec
from tests.objectives.program.conftest import Run
from tests.places import ON_HOST
from tests.processes import is_running
from tests.warm import PROGRAM_PATH


class Sweep(Listener):
    """Says to go on until something holds, then a verdict."""

    def __init__(self, verdict: Verdict, holds: Callable[[], bool]) -> None:
        super().__init__()
        self._verdict, self._holds = verdict, holds

    def __call__(self, event: TrialEvent) -> Verdict:
        super().__call__(event)
        return self._verdict if self._holds() else Verdict.GO_ON


def test_what_was_best_before_an_interruption_stays_the_best(run: Run, tmp_path: Path) -> None:
    sweep = Sweep(Verdict.STOP, lambda: len(sweep.reports) == 2)
    source = (
        "import os, time\n"
        "path = os.environ['AUTOML_CHECKPOINT_DIR'] + '/mine'\n"
        "if os.path.exists(path): print('epoch 2 val_loss: 7')\n"
        "else:\n"
        "    open(path, 'w')\n"
        "    print('epoch 0 val_loss: 3\\nepoch 1 val_loss: 4'); time.sleep(100)\n"
    )
    assert isinstance(run(source, listener=sweep).outcome, InterruptedOutcome)
    again = run(source)
    assert again.reports == [(2, {"val_loss": 7.0})]
    assert isinstance(again.outcome, FinishedOutcome)
    assert again.outcome.value == 3.0


TIDY = """
import os, signal, sys, time
def tidy(*_):
    open("tidied", "w").write("x")
    print("bye")
    sys.exit(1)
signal.signal(signal.SIGTERM, tidy)
print("val_loss: 1")
time.sleep(100)
"""


def test_a_pruned_program_gets_sigterm_and_its_grace(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    listener = run(TIDY, listener=Listener({0: Verdict.PRUNE}))
    assert isinstance(listener.outcome, PrunedOutcome)
    assert (listener.outcome.step, listener.outcome.value) == (0, 1.0)
    assert Path("tidied").exists()
    assert "bye" in capfd.readouterr().out


def test_one_that_reports_nothing_more_can_be_stopped(run: Run) -> None:
    """Not at a report: while it runs."""
    sweep = Sweep(Verdict.STOP, lambda: isinstance(sweep.events[-1], StillRunning) and bool(
        sweep.reports
    ))  # fmt: skip
    assert isinstance(run(TIDY, listener=sweep).outcome, InterruptedOutcome)
    assert Path("tidied").exists()


def test_one_that_does_not_listen_is_killed_after_the_grace(run: Run) -> None:
    listener = run(
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "sleep = [sys.executable, '-c', 'import time; time.sleep(100)']\n"
        "child = subprocess.Popen(sleep, start_new_session=True)\n"
        "open('pids', 'w').write(f'{os.getpid()} {child.pid}')\n"
        "print('val_loss: 1')\ntime.sleep(100)",
        listener=Listener({0: Verdict.PRUNE}),
        grace_seconds=0.1,
    )
    assert isinstance(listener.outcome, PrunedOutcome)
    assert not any(is_running(int(pid)) for pid in Path("pids").read_text().split())


def test_a_program_of_a_pruned_trial_need_not_begin(run: Run) -> None:
    listener = run("open('begun', 'w')", listener=Sweep(Verdict.STOP, lambda: True))
    assert isinstance(listener.outcome, InterruptedOutcome)
    assert not Path("begun").exists()


def failure(listener: Listener) -> FailedOutcome:
    assert isinstance(listener.outcome, FailedOutcome)
    return listener.outcome


def test_an_exit_status_and_the_last_lines_are_the_cause(run: Run) -> None:
    failed = failure(run("print('val_loss: 1')\nraise ValueError('boom')"))
    assert failed.cause.startswith("exit status 1; last lines: ")
    assert failed.cause.endswith("ValueError: boom")
    assert not failed.hopeless


@pytest.mark.parametrize(
    ("source", "message", "hopeless"),
    [
        ("print('hello')", "printed no metric.*`val_loss: 0.31`.*objective.pattern.*hello", True),
        ("pass", "printed no metric.*Last lines: none", True),
        (
            "print('loss: 3, acc: 0.1')",
            "study.metric=val_loss was never printed; seen: acc, loss. Set study.metric to one",
            True,
        ),
        ("print('val_loss: nan')", "val_loss was never a finite number; last lines: val_lo", False),
    ],
)
def test_exit_status_0_without_a_value(source: str, message: str, hopeless: bool, run: Run) -> None:
    failed = failure(run(source))
    assert re.search(message, failed.cause), failed.cause
    assert failed.hopeless == hopeless


def test_who_asks_for_input_is_told_that_nobody_answers(run: Run) -> None:
    failed = failure(run("input('lr? ')"))
    assert "EOFError" in failed.cause
    assert failed.cause.endswith("(nobody answers it: there is no terminal, and standard input is "
                                 "closed)")  # fmt: skip


def test_a_terminals_program_is_told_that_there_is_none(run: Run) -> None:
    failed = failure(run("import curses; curses.wrapper(lambda screen: screen.getch())"))
    assert failed.cause.endswith("standard input is closed)")


def test_the_marks_below_a_tracebacks_lines_are_no_last_lines(run: Run) -> None:
    failed = failure(run("print('last')\nNone.split(1) + (0 if 1 else 2)"))
    assert "None.split(1)" in failed.cause
    assert "^^^" not in failed.cause


def test_a_program_that_cannot_be_started_says_why(
    run: Run, sessions: list[ObjectiveSession]
) -> None:
    run("print('val_loss: 1')")
    setup = CommandSetup("./train.py", None, "val_loss", Direction.minimize, 1.0)
    sessions.append(session := open_session(setup))
    listener = Listener()
    session.run(make_spec(Path.cwd(), {}), ON_HOST, listener)
    assert "./train.py cannot be started: Permission denied" in failure(listener).cause


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("raise MemoryError", OutOfMemoryOutcome),
        (
            "class OutOfMemoryError(RuntimeError): pass\nraise OutOfMemoryError('CUDA')",
            OutOfMemoryOutcome,
        ),
        ("import os; os.abort()", InterruptedOutcome),
        ("import os; os.kill(os.getpid(), 9)", InterruptedOutcome),
        ("import os; os.kill(os.getpid(), 40)", InterruptedOutcome),
        (
            "raise RuntimeError('DataLoader worker (pid 3) is killed by signal: Killed.')",
            InterruptedOutcome,
        ),
    ],
)
def test_memory_and_deaths_are_no_failures(source: str, kind: type, run: Run) -> None:
    outcome = run(source).outcome
    assert isinstance(outcome, kind)
    if isinstance(outcome, InterruptedOutcome):
        assert outcome.by_worker_death
        assert outcome.cause.startswith("its program died: ")
        assert outcome.killed == ("9)" in source or "Killed" in source)


def test_what_is_left_behind_is_ended_and_named(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """A daemon: a grandchild in a session of its own, whose parent has ended."""
    listener = run(
        "import os, sys, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork(): os._exit(0)\n"
        "    open('pid', 'w').write(str(os.getpid()))\n"
        "    time.sleep(100)\n"
        "os.wait()\n"
        "while not os.path.exists('pid') or not open('pid').read(): time.sleep(0.01)\n"
    )
    pid = int(Path("pid").read_text())
    assert not is_running(pid)
    assert f"left behind, and a trial ends with its program: {sys.executable} train.py" in (
        failure(listener).cause
    )
    assert "a program left processes behind, which were ended: " in caplog.text


def test_helpers_that_end_by_themselves_are_not_named(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """As those of Python's multiprocessing do, a moment after the program."""
    listener = run("import subprocess\nprint('val_loss: 1')\nsubprocess.Popen(['sleep', '0.05'])")
    assert isinstance(listener.outcome, FinishedOutcome)
    assert caplog.text == ""


def test_a_program_dies_with_its_keeper(run: Run) -> None:
    listener = run(
        "import os, signal, time\nopen('pid', 'w').write(str(os.getpid()))\nprint('val_loss: 1')\n"
        "os.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(1000)"
    )
    assert isinstance(listener.outcome, InterruptedOutcome)
    assert listener.outcome.by_worker_death
    assert listener.outcome.killed
    assert "was killed" in listener.outcome.cause
    while is_running(int(Path("pid").read_text())):
        time.sleep(0.005)


DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    open("pids.part", "w").write(f"{os.getppid()} {os.getpid()}")
    os.rename("pids.part", "pids")
time.sleep(1000)
"""
WORKER = """
import sys
from automl.objectives.program.command_session import open_session
from automl.objectives.program.program_flags import CommandSetup
from automl.trial import Direction, TrialSpec, Verdict
from tests.places import ON_HOST
setup = CommandSetup(f"{sys.executable} daemon.py", None, "val_loss", Direction.minimize, 20.0)
session = open_session(setup)
session.run(TrialSpec(0, {}, sys.argv[1], 7), ON_HOST, lambda event: Verdict.GO_ON)
"""


def test_a_program_and_its_daemon_die_with_the_group_of_their_worker(tmp_path: Path) -> None:
    (tmp_path / "daemon.py").write_text(DAEMON)
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(tmp_path / "0")],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": PROGRAM_PATH},
        start_new_session=True,
    )
    while not (tmp_path / "pids").exists():
        assert worker.poll() is None
        time.sleep(0.005)
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        while is_running(pid):
            time.sleep(0.005)


RETURN = "import json, os\nfile = os.environ['AUTOML_CHECKPOINT_DIR'] + '/returned.json'\n"


@pytest.mark.parametrize("content", ["0.25", '{"val_loss": 0.25, "other": 3}'])
def test_what_a_program_returns_by_its_file_is_the_value(run: Run, content: str) -> None:
    source = f"{RETURN}print('epoch 0 val_loss: 0.1')\nopen(file, 'w').write('{content}')\n"
    outcome = run(source).outcome
    assert isinstance(outcome, FinishedOutcome)
    assert outcome.value == 0.25


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        ('"the reason"', "the reason"),
        ('{"val_loss": "much"}', "'val_loss' is 'much'"),
        ("NaN", "the objective returned nan: return a finite number"),
        ("[1", "its returned.json is no JSON"),
    ],
)
def test_what_is_no_value_fails_the_trial(run: Run, content: str, cause: str) -> None:
    outcome = run(f"{RETURN}print('val_loss: 0.1')\nopen(file, 'w').write({content!r})\n").outcome
    assert isinstance(outcome, FailedOutcome)
    assert cause in outcome.cause


def test_a_file_of_an_earlier_attempt_does_not_count(run: Run, tmp_path: Path) -> None:
    assert isinstance(run(f"{RETURN}open(file, 'w').write('0.25')\n").outcome, FinishedOutcome)
    path = tmp_path / "studies" / "trial-00000" / "returned.json"
    for content in one_bit_flipped(b"0.25", 2):
        path.write_bytes(content)
        outcome = run("print('val_loss: 0.5')").outcome
        assert isinstance(outcome, FinishedOutcome)
        assert outcome.value == 0.5


def test_a_damaged_file_is_read_or_named(run: Run) -> None:
    n_named = 0
    for content in one_bit_flipped(b'{"val_loss": 0.25}', 12):
        write = f"open(file, 'wb').write({content!r})\n"
        outcome = run(f"{RETURN}print('val_loss: 0.1')\n{write}").outcome
        if isinstance(outcome, FailedOutcome):
            assert "returned.json" in outcome.cause or "val_loss" in outcome.cause
            n_named += 1
    assert n_named
