"""A sweep whose eight trials last ten minutes is told to stop, by each way to do so."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from automl.record.studies import read_study
from tests.end_to_end.program import PATIENCE_SECONDS, Program, Running, objective_words, wait_until
from tests.end_to_end.records import Records
from tests.faults.conftest import NotePromise, sample
from tests.processes import left_processes, processes_in

pytestmark = pytest.mark.slow

N_TRIALS = 8
# Half of what a trial takes: who ends within it waited for no trial.
LIMIT_SECONDS = 300.0
WORDS = (
    "study.name=told",
    f"study.n_trials={N_TRIALS}",
    "training.checkpoint_every_seconds=0",
    f"admission.max_concurrent_trials={N_TRIALS}",
    f"admission.max_trials_per_device={N_TRIALS}",
    "admission.request=1MiB",
    "pruner=none",
    "sampler=random",
    "devices.only=cpu",
    *objective_words("lasts_ten_minutes"),
)


def all_have_reported(records: Records) -> bool:
    return records.path.exists() and len({trial for trial, _ in records.losses()}) == N_TRIALS


def seconds_to_end(running: Running, stop: Callable[[], None]) -> float:
    """Return how long the program takes to end after `stop`."""
    stop()
    begin = time.monotonic()
    running.wait()
    return time.monotonic() - begin


def check_goes_on(program: Program, records: Records) -> None:
    """Nothing of it is left but what a resumed sweep goes on from, and that ends well."""
    assert left_processes(program.folder) == []
    assert set(records.optuna_states().values()) == {"RUNNING"}, "taken over by the next sweep"
    steps = records.losses()
    (records.path / "go on").touch()
    resumed = program.call("resume", "study.name=told")
    assert (resumed.code, resumed.stderr) == (0, "")
    assert records.losses().items() >= steps.items()
    assert records.optuna_states() == dict.fromkeys(range(N_TRIALS), "COMPLETE")
    assert {run.info.status for run in records.trial_runs().values()} == {"FINISHED"}


# How it is told, what its trials do, and how long it may wait for them. A second signal, and trials
# that stop when they are asked, end it long before that time is over.
SIGNALS = {
    "SIGINT once": ([signal.SIGINT], "hangs", 4.0),
    "SIGINT twice": ([signal.SIGINT, signal.SIGINT], "hangs", 600.0),
    "SIGTERM": ([signal.SIGTERM], "goes on", 600.0),
    "SIGHUP": ([signal.SIGHUP], "goes on", 600.0),
}


@pytest.mark.parametrize(
    ("how", "everybody"),
    sample([*((how, False) for how in SIGNALS), ("SIGTERM", True), ("SIGHUP", True)], 3),
)
def test_a_signal_ends_it_in_time_and_it_goes_on(
    program: Program, how: str, everybody: bool, note_promise: NotePromise
) -> None:
    numbers, course, grace_seconds = SIGNALS[how]
    records = Records(program.folder, "told")
    running = program.start(
        *WORDS,
        f"study.grace_seconds={grace_seconds}",
        f"space={{hangs: {int(course == 'hangs')}}}",
    )
    running.wait_until(lambda: all_have_reported(records), "a report of each trial")

    def stop() -> None:
        for n_sent, number in enumerate(numbers, 1):
            told = processes_in(program.folder) if everybody else []
            running.signal(number)
            for process in told:
                if process.pid != running.process.pid and process.name() != "sleep":
                    process.send_signal(number)
            if n_sent < len(numbers):
                wait_until(lambda: "once more: at once" in running.stdout, "its answer")

    took_seconds = seconds_to_end(running, stop)
    whom = f"{'all' if everybody else 'it'}, {took_seconds:.1f} of {LIMIT_SECONDS:g} s"
    note_promise(f"{how} to {whom}", 1, int(took_seconds > LIMIT_SECONDS))
    assert took_seconds <= LIMIT_SECONDS
    if len(numbers) == 1:
        record = read_study(records.path)
        assert all(trial.checkpoints for trial in record.trials.values()), "one begins anew"
    check_goes_on(program, records)


class Terminal:
    """A terminal whose session leader is a sweep, until it is closed."""

    def __init__(self, program: Program, *words: str) -> None:
        self._ours, its = os.openpty()
        self._closing = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self.process = subprocess.Popen(
            ["setsid", "-c", sys.executable, "-m", "automl", *words],
            cwd=program.folder,
            env=program.environment,
            stdin=its,
            stdout=its,
            stderr=its,
        )
        os.close(its)
        self._reader.start()

    def _read(self) -> None:
        while not self._closing.is_set():
            if select.select([self._ours], [], [], 0.05)[0]:
                os.read(self._ours, 65536)

    def close(self) -> None:
        self._closing.set()
        self._reader.join()
        os.close(self._ours)


def test_a_closed_terminal_ends_it_in_time_and_it_goes_on(
    program: Program, note_promise: NotePromise
) -> None:
    records = Records(program.folder, "told")
    terminal = Terminal(program, *WORDS, "study.grace_seconds=600", "space={hangs: 0}")
    try:
        wait_until(lambda: all_have_reported(records), "a report of each trial")
    finally:
        begin = time.monotonic()
        terminal.close()
        terminal.process.wait(PATIENCE_SECONDS)
    took_seconds = time.monotonic() - begin
    note_promise("closed terminal", 1, int(took_seconds > LIMIT_SECONDS))
    assert took_seconds <= LIMIT_SECONDS
    check_goes_on(program, records)


def test_without_a_reader_of_what_it_says_it_goes_on_to_its_end(
    program: Program, note_promise: NotePromise
) -> None:
    reads, writes = os.pipe()
    words = (
        "-m",
        "automl",
        *WORDS[:2],
        "devices.only=cpu",
        "pruner=none",
        *objective_words("reports_thrice"),
    )
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=program.folder,
        env=program.environment,
        stdout=writes,
        stderr=subprocess.PIPE,
    )
    os.close(writes)
    os.read(reads, 1)
    os.close(reads)
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    is_whole = process.returncode in (0, 141) and b"Traceback" not in said
    note_promise("closed pipe", 1, int(not is_whole))
    assert is_whole, (process.returncode, said)
    Records(program.folder, "told").check_exact(N_TRIALS, 3, ["train_loss", "val_loss"])
