"""Signals that come at any line which a sweep prints: while it loads, trains, delivers and ends."""

from __future__ import annotations

import shlex
import shutil
import signal
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from automl.record.signal_receiver import ECHO_SECONDS
from automl.record.stop_signals import STOP_SIGNALS
from automl.record.studies import read_study
from tests.end_to_end.program import Done, Program, Running, objective_words, wait_until
from tests.end_to_end.records import Records

N_TRIALS = 3
WORDS = (
    "study.name=late",
    f"study.n_trials={N_TRIALS}",
    "admission.max_concurrent_trials=1",
    "sampler=random",
    "pruner=none",
    "devices.only=cpu",
)
SYNC = "Deliver them with: python -m automl sync late"
DONE = f"late: {N_TRIALS} finished in"


def code_of(number: signal.Signals) -> int:
    return 130 if number is signal.SIGINT else 143


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Let nobody else read or write the database within the block."""
    with closing(sqlite3.connect(database, timeout=60, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.execute("ROLLBACK")


@contextmanager
def delivering(program: Program, *words: str) -> Iterator[Running]:
    """A sweep whose trials have ended, and that waits for its MLflow to take what is left."""
    records = Records(program.folder, "late")
    running = program.start(*WORDS, *words, *objective_words("reports_until_told"))
    running.wait_until(lambda: bool(records.losses()), "a report")
    with locked(program.folder / "mlflow.db"):
        (records.path / "go on").touch()
        running.wait_until(lambda: "delivering " in running.stdout, "the delivery")
        yield running


def check_that_sync_brings_the_rest(program: Program) -> None:
    assert "done, " in program.call("status", "study.name=late").stdout
    assert program.call("sync", "study.name=late").code == 0
    runs = Records(program.folder, "late").trial_runs()
    assert [runs[n].info.status for n in range(N_TRIALS)] == ["FINISHED"] * N_TRIALS


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
def test_a_delivery_gets_its_time_and_the_rest_is_named(
    program: Program, number: signal.Signals
) -> None:
    with delivering(program, "study.grace_seconds=0.5") as running:
        running.signal(number)
        done = running.wait()
    assert (done.code, done.stderr) == (code_of(number), "")
    assert f"{number.name}: the trials have ended; what is left gets 0.5 s" in done.stdout
    assert SYNC in done.stdout
    assert DONE in done.stdout, "the results are shown as ever"
    check_that_sync_brings_the_rest(program)


def test_twice_ends_a_delivery_at_once_and_says_how_to_go_on(program: Program) -> None:
    with delivering(program) as running:
        running.signal(signal.SIGINT)
        running.wait_until(lambda: "once more: at once" in running.stdout, "it is heard")
        running.signal(signal.SIGTERM)
        time.sleep(ECHO_SECONDS)  # what comes sooner may be the echo of one signal
        running.process.send_signal(signal.SIGTERM)  # does nothing to one that has ended
        done = running.wait()
    assert (done.code, done.stderr) == (130, "")
    assert done.stdout.endswith(f"{SYNC}\n")
    check_that_sync_brings_the_rest(program)


@contextmanager
def in_a_folder(parent: Path, empty_database: Path) -> Iterator[Program]:
    """A program in a new folder that has an MLflow store."""
    folder = Path(tempfile.mkdtemp(dir=parent))
    shutil.copyfile(empty_database, folder / "mlflow.db")
    program = Program(folder)
    yield program
    program.end_all()


def told_command(done: Done) -> list[str]:
    """The words of the last command by which the sweep says how to go on; else the same again."""
    said = [line for line in done.stdout.splitlines() if "python -m automl " in line]
    line = next((line for line in reversed(said) if "go on with" in line or "sync" in line), None)
    return (
        [*WORDS, *objective_words("speaks")]
        if line is None
        else shlex.split(line.rpartition("automl ")[2])
    )


@pytest.mark.slow
@settings(
    deadline=None, max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(number=st.sampled_from(STOP_SIGNALS), n_lines=st.integers(1, 18))
@example(number=signal.SIGUSR1, n_lines=1)
@example(number=signal.SIGTERM, n_lines=12)
def test_a_signal_at_any_line_has_its_code_and_what_it_says_goes_on(
    tmp_path: Path, empty_database: Path, number: signal.Signals, n_lines: int
) -> None:
    with in_a_folder(tmp_path, empty_database) as apart:
        running = apart.start(*WORDS, *objective_words("speaks"))
        wait_until(
            lambda: running.stdout.count("\n") >= n_lines or running.process.poll() is not None,
            "the line",
        )
        has_ended = "see it all: " in running.stdout
        running.process.send_signal(number)  # does nothing to one that has ended
        done = running.wait()
        assert "Traceback" not in done.stdout + done.stderr
        assert done.code == code_of(number) or (has_ended and done.code == 0)
        if done.code:
            assert f"{number.name}: " in done.stdout + done.stderr.replace("Ctrl-C", "SIGINT")
        records = Records(apart.folder, "late")
        if DONE in done.stdout:
            assert "done, " in apart.call("status", "study.name=late").stdout
        if DONE not in done.stdout or SYNC in done.stdout:
            resumed = apart.call(*told_command(done))
            assert (resumed.code, resumed.stderr) == (0, "")
        record = read_study(records.path)
        assert len(record.trials) == N_TRIALS
        statuses = [run.info.status for run in records.trial_runs().values()]
        assert statuses == ["FINISHED"] * N_TRIALS
