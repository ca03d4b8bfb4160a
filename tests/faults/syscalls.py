"""Lets one system call of a sweep fail, or kills the process that makes it, with strace.

A sweep is traced once to list its points: each call on a file of the study. Then each point is
tried in a folder of its own, and the study is resumed without a fault. What the sweep promised must
hold after both.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path

from tests.end_to_end.program import Done, Program, Running, objective_words, wait_until
from tests.end_to_end.records import Records

STUDY = "faulty"
N_EPOCHS = 3
_WORDS = (
    f"study.name={STUDY}",
    "training.checkpoint_every_seconds=0",
    "copy=false",  # each try has a folder of its own
    "pruner=none",
    "sampler=random",
    "devices.only=cpu",
)
CALLS = (
    *("openat", "mkdir", "read", "pread64", "write", "pwrite64", "ftruncate"),
    *("fsync", "fdatasync", "rename", "unlink", "flock", "fcntl"),
)
OWN_FILES = ("trained", "when")
"""Names of the files that the objective itself writes."""
LIMIT_SECONDS = 300.0
"""A sweep of seconds that takes longer hangs; where nothing can be delivered, it waits for 30 s."""


class Fault(Enum):
    """What befalls the call, as strace spells it."""

    KILLED = "signal=KILL:when={n}"
    IO_ERROR = "error=EIO:when={n}"
    IO_ERRORS = "error=EIO:when={n}+"
    DISK_FULL = "error=ENOSPC:when={n}"
    DISK_STAYS_FULL = "error=ENOSPC:when={n}+"

    @property
    def calls(self) -> tuple[str, ...]:
        """The calls that it may befall: no call that only reads finds the disk full."""
        if self in (Fault.DISK_FULL, Fault.DISK_STAYS_FULL):
            return tuple(call for call in CALLS if call not in ("read", "pread64", "flock"))
        return CALLS


@dataclass(frozen=True)
class TracedSweep:
    """A small sweep whose calls are tried one after another."""

    name: str
    words: tuple[str, ...]
    n_trials: int
    metrics: tuple[str, ...]
    counts_epochs: bool
    """Its objective writes down each epoch that it trains."""
    interrupted: bool = False
    """It was killed in the middle of its first trial before it is traced."""

    def words_with(self, fault: Fault) -> tuple[str, ...]:
        """Return the words of the sweep.

        strace counts calls in each process, so a new worker would be killed at the same call, and
        its trial would fail as one that kills its process. In one process the kill ends the sweep.
        """
        inline = ("execution=inline",) if fault is Fault.KILLED else ()
        return (*_WORDS, *self.words, f"study.n_trials={self.n_trials}", *inline)


_COUNTS = (*objective_words("counts"), f"space={{epochs: {N_EPOCHS}}}")
_LOSSES = ("train_loss", "val_loss")
_SMALL = (
    *(f"training.epochs={N_EPOCHS}", "data.n_train=64", "data.n_validation=32"),
    *("admission.max_concurrent_trials=2", "space={lr: {low: 0.001, high: 0.1, log: true}}"),
)
SWEEPS = (
    TracedSweep("one trial", _COUNTS, 1, _LOSSES, counts_epochs=True),
    TracedSweep("resumed", _COUNTS, 2, _LOSSES, counts_epochs=True, interrupted=True),
    TracedSweep("pack", _SMALL, 2, _LOSSES, counts_epochs=False),
)


@dataclass(frozen=True)
class FaultPoint:
    """The n-th call of one kind on one file by one thread."""

    call: str
    path: str
    """Relative to the study directory."""
    n: int

    @property
    def kind(self) -> tuple[str, str]:
        """The call and the kind of its file, whichever trial's it is."""
        return self.call, re.sub(r"\d+", "N", self.path)

    def __str__(self) -> str:
        return f"{self.call} {self.n} of {self.path}"


@dataclass(frozen=True)
class FaultTrial:
    """What came of one fault."""

    struck: bool
    """Times differ from run to run: a call may not be made a second time."""
    broken: tuple[str, ...]
    """The promises that did not hold."""


def is_available() -> bool:
    """Return whether strace is here and may trace."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"], check=False).returncode == 0


@contextmanager
def traced(running: Running, trace: Path, *options: str) -> Iterator[None]:
    """Trace a program that begins stopped, with all that it starts, while the block runs."""
    pid = running.process.pid
    status = Path(f"/proc/{pid}/status")
    wait_until(lambda: "State:\tT" in status.read_text(), "the program stops itself")
    tracer = subprocess.Popen(["strace", "-f", "-qq", "-o", trace, *options, "-p", str(pid)])
    try:
        wait_until(lambda: "TracerPid:\t0\n" not in status.read_text(), "strace")
        running.signal(signal.SIGCONT)
        yield
    finally:
        tracer.terminate()  # what is left of the sweep goes on untraced
        try:
            tracer.wait(5)
        except subprocess.TimeoutExpired:  # strace waits for a process that has been killed
            tracer.kill()
            tracer.wait()


_LINE = re.compile(r'(\d+) +(\w+)\((?:AT_FDCWD(?:<[^>]*>)?, )?(?:\d+<([^>]*)>|"([^"]*)")')


def begin(program: Program, sweep: TracedSweep, empty_database: Path) -> None:
    """Make the program's folder one in which the traced sweep may begin."""
    shutil.copyfile(empty_database, program.folder / "mlflow.db")
    if sweep.interrupted:
        half_way = FaultPoint("rename", "checkpoints/trial-00000/last.pt.part", 2)
        killed = run_with(program, sweep, half_way, Fault.KILLED)
        assert killed.code == -signal.SIGKILL, killed.stderr


def fault_points(program: Program, sweep: TracedSweep, fault: Fault) -> list[FaultPoint]:
    """Return all points of the sweep; it runs once in the program's folder for it."""
    running = program.start_stopped(*sweep.words_with(fault))
    trace = program.folder / "trace"
    with traced(running, trace, "-y", "-e", f"trace={','.join(CALLS)}"):
        running.process.wait(LIMIT_SECONDS)
    done = running.wait()
    assert done.code == 0, done.stderr
    study = program.folder / "studies" / STUDY
    seen: Counter[tuple[str, str, str]] = Counter()
    for thread, call, opened, named in _LINE.findall(trace.read_text()):
        path = program.folder / (opened or named)
        if path.is_relative_to(study) and path.name not in OWN_FILES:
            seen[thread, call, str(path.relative_to(study))] += 1
    return sorted(
        {
            FaultPoint(call, path, n)
            for (_, call, path), count in seen.items()
            for n in range(1, count + 1)
        },
        key=lambda point: (point.path, point.call, point.n),
    )


def spread(points: Sequence[FaultPoint], n: int, offset: int) -> list[FaultPoint]:
    """Return at most `n` points, of as many kinds as there is room for, others for each offset."""
    by_kind: dict[tuple[str, str], list[FaultPoint]] = {}
    for point in points:
        by_kind.setdefault(point.kind, []).append(point)
    kinds = list(by_kind.values())
    kinds = kinds[offset % len(kinds) :] + kinds[: offset % len(kinds)]
    chosen: list[FaultPoint] = []
    while kinds and len(chosen) < n:
        chosen += [kind.pop((offset + len(chosen)) % len(kind)) for kind in kinds]
        kinds = [kind for kind in kinds if kind]
    return chosen[:n]


def run_with(program: Program, sweep: TracedSweep, point: FaultPoint, fault: Fault) -> Done:
    """Run the sweep with that fault. Raises subprocess.TimeoutExpired."""
    path = program.folder / "studies" / STUDY / point.path
    inject = f"inject={point.call}:{fault.value.format(n=point.n)}"
    options = ("-P", str(path), "-e", f"trace={point.call}", "-e", inject)
    running = program.start_stopped(*sweep.words_with(fault))
    with traced(running, program.folder / "trace", *options):
        running.process.wait(LIMIT_SECONDS)
    return running.wait()


def try_fault(program: Program, sweep: TracedSweep, point: FaultPoint, fault: Fault) -> FaultTrial:
    """Run the sweep with that fault, resume it, and return what came of it."""
    try:
        done = run_with(program, sweep, point, fault)
    except subprocess.TimeoutExpired:
        program.end_all()
        return FaultTrial(_has_struck(program), broken=("the sweep hangs",))
    return FaultTrial(_has_struck(program), tuple(violations(program, sweep, fault, done)))


def _has_struck(program: Program) -> bool:
    trace = (program.folder / "trace").read_text()
    return "(INJECTED)" in trace or "SIGKILL" in trace


def violations(program: Program, sweep: TracedSweep, fault: Fault, done: Done) -> Iterator[str]:
    """Yield each broken promise of a sweep that ended so, and of resuming it."""
    said = done.stderr + done.stdout
    if "Traceback" in said:
        yield f"a traceback: {said[-1500:]}"
    if fault is not Fault.KILLED and done.code and "automl: " not in done.stderr:
        yield f"exit {done.code} without a message: {done.stderr[-300:]}"
    resumed = program.call(*sweep.words_with(fault))
    if resumed.code:
        yield f"it does not resume: {resumed.stderr[-300:]}"
        return
    try:
        check_study(Records(program.folder, STUDY), sweep)
    except AssertionError as error:
        yield f"the record is wrong: {str(error)[:300]}"


def check_study(records: Records, sweep: TracedSweep) -> None:
    """Every trial once, every step once, no epoch trained before the last acknowledged one."""
    records.check_exact(sweep.n_trials, N_EPOCHS, sweep.metrics)
    for number in range(sweep.n_trials if sweep.counts_epochs else 0):
        trained = records.path / "checkpoints" / f"trial-{number:05d}" / "trained"
        epochs = [int(line) for line in trained.read_text().splitlines()]
        assert (epochs[0], epochs[-1]) == (0, N_EPOCHS - 1), epochs
        steps = [after - before for before, after in pairwise(epochs)]
        assert set(steps) <= {0, 1}, epochs
