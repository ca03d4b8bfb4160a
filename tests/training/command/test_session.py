"""Real programs carried out as trials: what they are given, how they end, and what is left."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from automl.training.command.session import CommandSession, open_session
from automl.training.command.setup import CommandSetup
from automl.trial import (
    Direction,
    Failed,
    Finished,
    Interrupted,
    MemoryPeak,
    OutOfMemory,
    Params,
    Placement,
    Pruned,
    StillRunning,
    TrialEvent,
    Verdict,
)
from tests.places import ON_HOST, placed
from tests.training.conftest import Listener, make_spec

Run = Callable[..., Listener]


class Sweep(Listener):
    """Says to go on until something holds, then a verdict."""

    def __init__(self, verdict: Verdict, holds: Callable[[], bool]) -> None:
        super().__init__()
        self._verdict, self._holds = verdict, holds

    def __call__(self, event: TrialEvent) -> Verdict:
        super().__call__(event)
        return self._verdict if self._holds() else Verdict.GO_ON


@pytest.fixture
def sessions() -> Iterator[list[CommandSession]]:
    opened: list[CommandSession] = []
    yield opened
    for session in opened:
        session.close()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sessions: list[CommandSession]) -> Run:
    """Carry a Python program out as a trial, in a project's folder."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")

    def run(
        source: str,
        *,
        arguments: str = "{json}",
        params: Params | None = None,
        listener: Listener | None = None,
        placement: Placement = ON_HOST,
        direction: Direction = Direction.minimize,
        pattern: str | None = None,
        grace_seconds: float = 20.0,
        silent_seconds: float = 600.0,
        number: int = 0,
    ) -> Listener:
        Path("train.py").write_text(source)
        command = f"{shlex.quote(sys.executable)} train.py {arguments}"
        setup = CommandSetup(
            command,
            pattern,
            "val_loss",
            direction,
            grace_seconds,
            silent_seconds=silent_seconds,
        )
        session = open_session(setup)
        sessions.append(session)
        listener = listener or Listener()
        spec = make_spec(tmp_path / "studies", params or {"lr": 0.5}, number)
        session.run(spec, placement, listener)
        return listener

    return run


def folder_of(tmp_path: Path) -> Path:
    return tmp_path / "studies" / "trial-00000"


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


# --- what it is given and tells -------------------------------------------------------------------

GIVEN = """
import json, os, sys
names = [n for n in os.environ if n.startswith("AUTOML_")] + [
    "CUDA_VISIBLE_DEVICES", "PYTHONUNBUFFERED", "OMP_NUM_THREADS"]
print("val_loss: 1")
json.dump({"fds": os.listdir("/proc/self/fd"),
           "argv": sys.argv[1:], "cwd": os.getcwd(), "env": {n: os.environ[n] for n in names},
           "stdin": sys.stdin.read(), "json": json.load(open(os.environ["AUTOML_JSON"])),
           "terminal": sys.stdout.isatty(),
           "trial_dir": os.path.isdir(os.environ["AUTOML_TRIAL_DIR"])},
          open("given", "w"))
"""


def test_a_program_is_given_its_params_and_place(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    run(GIVEN, arguments="", params={"lr": 0.0, "width": 8})
    given = json.loads(Path("given").read_text())
    assert given["argv"] == ["--lr=0.0", "--width=8"]
    assert sorted(given["fds"]) == ["0", "1", "2", "3"], "3 is the one that looks"
    assert given["cwd"] == str(tmp_path / "project")
    assert (given["stdin"], given["terminal"], given["trial_dir"]) == ("", False, True)
    assert given["json"] == {"lr": 0.0, "width": 8}
    env = given["env"]
    assert (env["AUTOML_LR"], env["AUTOML_TRIAL"], env["AUTOML_N_DEVICES"]) == ("0.0", "0", "1")
    assert env["AUTOML_CHECKPOINT_DIR"] == str(folder_of(tmp_path))
    assert env["AUTOML_TRIAL_DIR"] == str(folder_of(tmp_path) / "files")
    assert (env["CUDA_VISIBLE_DEVICES"], env["PYTHONUNBUFFERED"]) == ("", "1")
    assert env["OMP_NUM_THREADS"] == "1"


def test_it_sees_the_gpus_of_its_placement_alone(run: Run) -> None:
    run(GIVEN, placement=placed("GPU-a", 5))
    assert json.loads(Path("given").read_text())["env"]["CUDA_VISIBLE_DEVICES"] == "GPU-a"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_what_it_prints_becomes_reports_and_the_best_its_value(
    stream: str, run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    listener = run(
        f"import sys\nout = sys.{stream}\n"
        "for e, v in enumerate([3.0, 1.0, 2.0]):\n"
        "    print(f'epoch {e}: loss {v}, val loss {v}', file=out)\n"
        "out.buffer.write(b'\\xff\\x00 acc: 0.5')"
    )
    assert [step for step, _ in listener.reports] == [0, 1, 2, 3]
    assert listener.reports[1] == (1, {"loss": 1.0, "val_loss": 1.0})
    assert listener.reports[3] == (3, {"acc": 0.5})
    assert isinstance(listener.outcome, Finished)
    assert listener.outcome.value == 1.0
    said = capfd.readouterr().out
    assert said.startswith("$ ")
    assert "epoch 2: loss 2.0" in said


def test_all_that_was_printed_is_read(run: Run) -> None:
    """More than is read at once, by one who has ended by then."""
    listener = run(
        "import fcntl, sys\nfcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 20)\n"
        "print(*range(120_000), 'epoch 7 val_loss: 1', sep='\\n')"
    )
    assert listener.reports == [(7, {"val_loss": 1.0})]


def test_a_report_is_told_while_the_program_runs(run: Run, tmp_path: Path) -> None:
    """It waits for a file that is made when its report has come."""
    answer = tmp_path / "answer"

    class Answering(Listener):
        def __call__(self, event: TrialEvent) -> Verdict:
            verdict = super().__call__(event)
            if self.reports:
                answer.touch()
            return verdict

    listener = run(
        "import os, time\nprint('val_loss: 1')\n"
        f"while not os.path.exists({str(answer)!r}): time.sleep(0.01)",
        listener=Answering(),
    )
    assert isinstance(listener.outcome, Finished)


def test_a_pattern_says_what_is_a_metric(run: Run) -> None:
    listener = run("print('loss: 3\\nAverage 0.25')", pattern=r"Average (?P<val_loss>\S+)")
    assert listener.reports == [(0, {"val_loss": 0.25})]


def test_one_that_tells_nothing_for_long_is_spoken_of(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run("print('val_loss: 1')")
    assert caplog.text == ""
    run("print('val_loss: 1')", silent_seconds=0.0)
    assert "execution.silence_timeout_seconds=0 has such trials fail" in caplog.text


def test_its_main_memory_is_told(run: Run) -> None:
    listener = run("x = b'1' * 200_000_000\nprint('val_loss: 1')")
    (peak,) = [event for event in listener.events if isinstance(event, MemoryPeak)]
    assert 200e6 < peak.peak_bytes < 400e6


def test_it_is_told_however_many_helpers_end_meanwhile(run: Run) -> None:
    """What its own helpers hold is seen only while they run, and each end wakes who looks."""
    source = """
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; a = b'x' * 200_000_000; time.sleep(100)"])
print("val_loss: 1")
ends = time.monotonic() + 2.5
while time.monotonic() < ends:
    if os.fork() == 0:
        os.fork()  # an orphan, which its keeper inherits
        os._exit(0)
    os.wait()
"""
    (peak,) = [event for event in run(source).events if isinstance(event, MemoryPeak)]
    assert peak.peak_bytes > 200e6


def test_of_a_gpus_memory_the_driver_tells(run: Run) -> None:
    listener = run("print('val_loss: 1')", placement=placed("GPU-a", 5))
    assert not any(isinstance(event, MemoryPeak) for event in listener.events)


# --- going on -------------------------------------------------------------------------------------


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
    assert isinstance(run(source, listener=sweep).outcome, Interrupted)
    again = run(source)
    assert again.reports == [(2, {"val_loss": 7.0})]
    assert isinstance(again.outcome, Finished)
    assert again.outcome.value == 3.0


# --- stopped --------------------------------------------------------------------------------------

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
    assert isinstance(listener.outcome, Pruned)
    assert (listener.outcome.step, listener.outcome.value) == (0, 1.0)
    assert Path("tidied").exists()
    assert "bye" in capfd.readouterr().out


def test_one_that_reports_nothing_more_can_be_stopped(run: Run) -> None:
    """Not at a report: while it runs."""
    sweep = Sweep(Verdict.STOP, lambda: isinstance(sweep.events[-1], StillRunning) and bool(
        sweep.reports
    ))  # fmt: skip
    assert isinstance(run(TIDY, listener=sweep).outcome, Interrupted)
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
    assert isinstance(listener.outcome, Pruned)
    assert not any(is_alive(int(pid)) for pid in Path("pids").read_text().split())


def test_a_program_of_a_pruned_trial_need_not_begin(run: Run) -> None:
    listener = run("open('begun', 'w')", listener=Sweep(Verdict.STOP, lambda: True))
    assert isinstance(listener.outcome, Interrupted)
    assert not Path("begun").exists()


# --- how it can end -------------------------------------------------------------------------------


def failure(listener: Listener) -> Failed:
    assert isinstance(listener.outcome, Failed)
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
    run: Run, sessions: list[CommandSession]
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
        ("raise MemoryError", OutOfMemory),
        ("class OutOfMemoryError(RuntimeError): pass\nraise OutOfMemoryError('CUDA')", OutOfMemory),
        ("import os; os.abort()", Interrupted),
        ("import os; os.kill(os.getpid(), 9)", Interrupted),
        ("import os; os.kill(os.getpid(), 40)", Interrupted),
        (
            "raise RuntimeError('DataLoader worker (pid 3) is killed by signal: Killed.')",
            Interrupted,
        ),
    ],
)
def test_memory_and_deaths_are_no_failures(source: str, kind: type, run: Run) -> None:
    outcome = run(source).outcome
    assert isinstance(outcome, kind)
    if isinstance(outcome, Interrupted):
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
    assert not is_alive(pid)
    assert f"left behind, and a trial ends with its program: {sys.executable} train.py" in (
        failure(listener).cause
    )
    assert "a program left processes behind, which were ended: " in caplog.text


def test_helpers_that_end_by_themselves_are_not_named(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """As those of Python's multiprocessing do, a moment after the program."""
    listener = run("import subprocess\nprint('val_loss: 1')\nsubprocess.Popen(['sleep', '0.05'])")
    assert isinstance(listener.outcome, Finished)
    assert caplog.text == ""


def test_a_program_dies_with_its_keeper(run: Run) -> None:
    listener = run(
        "import os, signal, time\nopen('pid', 'w').write(str(os.getpid()))\nprint('val_loss: 1')\n"
        "os.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(1000)"
    )
    assert isinstance(listener.outcome, Interrupted)
    assert listener.outcome.by_worker_death
    assert listener.outcome.killed
    assert "was killed" in listener.outcome.cause
    while is_alive(int(Path("pid").read_text())):
        time.sleep(0.005)


# --- files ----------------------------------------------------------------------------------------


def test_a_file_that_trials_overwrite_is_named(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    source = (
        "import os\nopen('model.pt', 'w')\nopen(os.environ['AUTOML_TRIAL_DIR'] + '/own.pt', 'w')\n"
        "open(f\"out-{os.environ['AUTOML_TRIAL']}.txt\", 'w')\nprint('val_loss: 1')"
    )
    run(source, number=0)
    assert caplog.text == ""
    time.sleep(0.1)  # files are stamped by a clock that is behind
    run(source, number=1)
    assert "model.pt was written by more than one trial" in caplog.text
    assert "own.pt" not in caplog.text
    assert "out-" not in caplog.text


# --- several processes, and no torch --------------------------------------------------------------

RANKS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
both = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(both)
if dist.get_rank() == 0: print("epoch 0 val_loss:", both.item())
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_torchrun_starts_its_ranks(tmp_path: Path, sessions: list[CommandSession]) -> None:
    (tmp_path / "ranks.py").write_text(RANKS)
    torchrun = Path(sys.executable).with_name("torchrun")
    command = f"{torchrun} --nproc_per_node=2 {tmp_path}/ranks.py {{json}}"
    setup = CommandSetup(command, None, "val_loss", Direction.minimize, 20.0)
    sessions.append(session := open_session(setup))
    listener = Listener()
    session.run(make_spec(tmp_path / "studies", {}), ON_HOST, listener)
    assert isinstance(listener.outcome, Finished)
    assert listener.reports == [(0, {"val_loss": 3.0})]


def test_the_side_of_a_worker_loads_no_torch() -> None:
    code = "import sys, automl.training.command.session; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
