"""Lets one system call of a sweep fail, or kills the process that makes it, with strace.

A sweep is traced once to list its write points. Then each point is tried in a folder of its own,
and the study is resumed without a fault. What the sweep promised must hold after both.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from tests.end_to_end.objectives import N_EPOCHS
from tests.end_to_end.program import Program, mine
from tests.end_to_end.records import Records

Tried = TypeVar("Tried")
STUDY = "faulty"
N_TRIALS = 2
WORDS = (
    f"study.name={STUDY}",
    f"study.n_trials={N_TRIALS}",
    "training.checkpoint_every_seconds=0",
    "admission.max_concurrent_trials=1",
    "pruner=none",
    "devices=host",
    *mine("counts"),
)
CALLS = ("write", "pwrite64", "fsync", "fdatasync", "rename", "unlink", "ftruncate")
STUDY_WATCHED = ("events.log", "journal.log", "status.json", "place.json", "config.yaml", "trial-")
"""Parts of the names of files whose calls are tried; MLflow's own database is not ours."""
LIMIT_SECONDS = 60.0
"""A sweep of seconds that takes longer hangs."""


class Fault(Enum):
    """What befalls the call, as strace spells it."""

    KILLED = "signal=KILL:when={n}"
    IO_ERROR = "error=EIO:when={n}"
    IO_ERRORS = "error=EIO:when={n}+"
    DISK_FULL = "error=ENOSPC:when={n}"
    DISK_STAYS_FULL = "error=ENOSPC:when={n}+"


@dataclass(frozen=True)
class WritePoint:
    """The n-th call of one kind on one file by one thread."""

    call: str
    path: str
    """Relative to the study directory."""
    n: int

    def __str__(self) -> str:
        return f"{self.call} {self.n} of {self.path}"


def sweep_words(fault: Fault) -> tuple[str, ...]:
    """Return the words of the sweep.

    strace counts calls in each process, so a new worker would be killed at the same call, and its
    trial would fail as one that kills its process. In one process the kill ends the sweep.
    """
    return (*WORDS, "execution=inline") if fault is Fault.KILLED else WORDS


def strace(folder: Path, words: Sequence[str], *options: str) -> subprocess.CompletedProcess[str]:
    """Run the sweep under strace in `folder`. Raises subprocess.TimeoutExpired."""
    tracer = ("strace", "-f", "-q", "-o", str(folder / "trace"), *options)
    return subprocess.run(
        [*tracer, sys.executable, "-m", "automl", *words],
        cwd=folder,
        env=Program(folder).environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


_LINE = re.compile(r'(\d+) +(\w+)\((?:\d+<([^>]*)>|"([^"]*)")')


def write_points(folder: Path, words: Sequence[str]) -> list[WritePoint]:
    """Return all write points of the sweep, which runs once in `folder` for it."""
    done = strace(folder, words, "-y", "-e", f"trace={','.join(CALLS)}")
    assert done.returncode == 0, done.stderr
    study = folder / "studies" / STUDY
    seen: Counter[tuple[str, str, str]] = Counter()
    for thread, call, opened, named in _LINE.findall((folder / "trace").read_text()):
        path = folder / (opened or named)
        if path.is_relative_to(study) and any(part in str(path) for part in STUDY_WATCHED):
            seen[thread, call, str(path.relative_to(study))] += 1
    return sorted(
        {
            WritePoint(call, path, n)
            for (_, call, path), count in seen.items()
            for n in range(1, count + 1)
        },
        key=lambda point: (point.path, point.call, point.n),
    )


def violations(folder: Path, point: WritePoint, fault: Fault) -> Iterator[str]:
    """Yield each broken promise of a sweep with that fault, and of resuming it."""
    path = folder / "studies" / STUDY / point.path
    inject = f"inject={point.call}:{fault.value.format(n=point.n)}"
    try:
        # With it, strace sends no signal; without it, each system call of the sweep is slower.
        faster = () if fault is Fault.KILLED else ("--seccomp-bpf",)
        options = (*faster, "-P", str(path), "-e", f"trace={point.call}", "-e", inject)
        done = strace(folder, sweep_words(fault), *options)
    except subprocess.TimeoutExpired:
        yield "the sweep hangs"
        return
    if "Traceback" in done.stderr + done.stdout:
        yield f"a traceback: {(done.stderr + done.stdout)[-1500:]}"
    if "(INJECTED)" not in (trace := (folder / "trace").read_text()) and "SIGKILL" not in trace:
        yield "the fault did not strike"
    if fault is not Fault.KILLED and done.returncode and "automl: " not in done.stderr:
        yield f"exit {done.returncode} without a message: {done.stderr[-300:]}"
    resumed = Program(folder).call(*sweep_words(fault))
    if resumed.code:
        yield f"it does not resume: {resumed.stderr[-300:]}"
        return
    try:
        check_study(Records(folder, STUDY))
    except AssertionError as error:
        yield f"the record is wrong: {str(error)[:300]}"


def check_study(records: Records) -> None:
    """Every trial once, every step once, no epoch trained before the last acknowledged one."""
    records.check_exact(N_TRIALS, N_EPOCHS, ["train_loss", "val_loss"])
    for number in range(N_TRIALS):
        trained = records.path / "checkpoints" / f"trial-{number:05d}" / "trained"
        epochs = [int(line) for line in trained.read_text().splitlines()]
        assert (epochs[0], epochs[-1]) == (0, N_EPOCHS - 1), epochs
        steps = [after - before for before, after in pairwise(epochs)]
        assert set(steps) <= {0, 1}, epochs


def is_available() -> bool:
    """Return whether strace is here and may trace."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"], check=False).returncode == 0


def spread(points: Sequence[Tried], n: int, offset: int) -> Sequence[Tried]:
    """Return at most `n` points, evenly spread, beginning at another place for each offset."""
    width = max(1, len(points) // n)
    return points[offset % width :: width][:n]
