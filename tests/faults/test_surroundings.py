"""A sweep whose surroundings fail for a while: a locked database, a jumping clock, other starts.

Its processes that are stopped for a while are in `test_kills.py`.
"""

from __future__ import annotations

import shutil
import sqlite3
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from subprocess import TimeoutExpired

import pytest

from tests.end_to_end.program import Program, Running, objective_words
from tests.end_to_end.records import Records
from tests.faults.conftest import N_POINTS, NotePromise, sample

pytestmark = pytest.mark.slow

IS_FULL = N_POINTS > 1
N_TRIALS, N_EPOCHS = 6, 12
METRICS = ["train_loss", "val_loss"]
WORDS = (
    f"study.n_trials={N_TRIALS}",
    "training.checkpoint_every_seconds=0",
    "admission.max_concurrent_trials=2",
    "pruner=none",
    "sampler=random",
    "devices.only=cpu",
    *objective_words("counts"),
    "study.name=shaken",
)
LOCKED_SECONDS = 30.0 if IS_FULL else 8.0
"""Longer than the 5 s for which SQLite waits by itself."""


def pass_seconds(running: Running, seconds: float) -> None:
    """Let a fault last: return after so long, or when the program has ended."""
    try:
        running.process.wait(seconds)
    except TimeoutExpired:
        return


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Let nobody else read or write the database within the block."""
    with closing(sqlite3.connect(database, timeout=60, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.execute("ROLLBACK")


@pytest.mark.parametrize("name", sample(["mlflow.db", "optuna.db"], 1))
def test_a_database_that_is_locked_for_a_while_loses_nothing(
    program: Program, name: str, note_promise: NotePromise
) -> None:
    url = f"sqlite:///{program.folder}/{name}" if name == "optuna.db" else None
    records = Records(program.folder, "shaken", storage=url)
    sweep = program.start(*WORDS, f"study.storage={url or 'null'}")
    sweep.wait_until(lambda: len(records.losses()) > 5, "some reports")
    with locked(program.folder / name):
        pass_seconds(sweep, LOCKED_SECONDS)
    done = sweep.wait()
    note_promise(f"{name} locked for {LOCKED_SECONDS:.0f} s", 1, int(done.code != 0))
    assert (done.code, done.stderr) == (0, "")
    records.check_exact(N_TRIALS, N_EPOCHS, METRICS)


JUMPING_CLOCK = """
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long ahead(void) {
    static volatile long *seconds;
    if (!seconds) {
        int fd = open(getenv("CLOCK_FILE"), O_RDONLY);
        seconds = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
    }
    return *seconds;
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += ahead();
    return failed;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    int failed = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return failed;
}
time_t time(time_t *now) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now)
        *now = exact.tv_sec;
    return exact.tv_sec;
}
"""
HOUR, DAY = 3600, 86400
JUMPS = (HOUR, -HOUR, DAY, -DAY) if IS_FULL else (DAY, -DAY)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no compiler for another clock")
@pytest.mark.parametrize("seconds", sample(JUMPS, 1))
def test_a_clock_that_jumps_changes_nothing(
    program: Program, seconds: int, note_promise: NotePromise
) -> None:
    records, jump = Records(program.folder, "shaken"), jumping_clock(program)
    limits = ("study.timeout_seconds=900", "execution.silence_timeout_seconds=600")
    sweep = program.start_module("automl", *WORDS, *limits, "execution.trial_timeout_seconds=600")
    sweep.wait_until(lambda: len(records.losses()) > 5, "some reports")
    jump(seconds)
    done = sweep.wait()
    note_promise(f"the clock jumps by {seconds:+} s", 1, int(done.code != 0))
    assert (done.code, done.stderr) == (0, "")
    records.check_exact(N_TRIALS, N_EPOCHS, METRICS)


def jumping_clock(program: Program) -> Callable[[int], None]:
    """Give the program's processes a clock of their own; return what sets it by some seconds."""
    source, library = program.folder / "clock.c", program.folder / "clock.so"
    source.write_text(JUMPING_CLOCK)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    ahead = program.folder / "clock"
    ahead.write_bytes(struct.pack("l", 0))
    program.environment |= {"LD_PRELOAD": str(library), "CLOCK_FILE": str(ahead)}

    def jump(seconds: int) -> None:
        with ahead.open("r+b", buffering=0) as file:
            file.write(struct.pack("l", seconds))

    return jump


def test_eight_first_starts_at_once(
    tmp_path: Path, programs_are_warm: None, note_promise: NotePromise
) -> None:
    """In an empty folder: one takes the study, and MLflow's store is whole."""
    program = Program(tmp_path)
    names = ["same", "same", "same", *map(str, range(5))]
    try:
        started = [program.start(*WORDS, f"study.name={name}") for name in names]
        done = [running.wait() for running in started]
    finally:
        program.end_all()
    by_name = {name: [d for n, d in zip(names, done, strict=True) if n == name] for name in names}
    refused = [d for d in by_name["same"] if d.code]
    assert all("another sweep works on this study" in d.stderr for d in refused), refused
    broken = [name for name, each in by_name.items() if not any(d.code == 0 for d in each)]
    note_promise("eight first starts at once", len(names), len(broken))
    assert broken == [], done
    for name in by_name:
        Records(tmp_path, name).check_exact(N_TRIALS, N_EPOCHS, METRICS)
