"""`kill -9` of each process of a sweep at random moments, with eight trials running; or SIGSTOP.

An outside log, a pipe to the test, has what `report` has acknowledged; each value is a random
number, so that none can be computed again.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from automl.trial import MetricsReported, TrialStarted
from tests.end_to_end.objectives import ACKNOWLEDGED, N_EPOCHS
from tests.end_to_end.program import Program, Running, objective_words
from tests.end_to_end.records import Records
from tests.faults.conftest import ARE_SAMPLED, N_POINTS, SEED, NotePromise, sample
from tests.processes import left_processes, those_left

pytestmark = pytest.mark.slow

FULL_ROUNDS = 30
ROUNDS = range(FULL_ROUNDS * SEED, FULL_ROUNDS * SEED + min(N_POINTS, FULL_ROUNDS))
N_TRIALS = 40 if N_POINTS > 1 else 16
N_LIVE = 8
STOPPED_SECONDS = 45.0 if N_POINTS > 1 else 3.0
WORDS = (
    "study.name=killed",
    f"study.n_trials={N_TRIALS}",
    "training.checkpoint_every_seconds=0",
    f"admission.max_concurrent_trials={N_LIVE}",
    f"admission.max_trials_per_device={N_LIVE}",
    "pruner=none",
    "sampler=random",
    "devices.only=cpu",
)
ALONE = ("admission.request=1MiB", *objective_words("acknowledges"))
N_PACK_EPOCHS = 80 if ARE_SAMPLED else 200
PACKS = (
    *(f"training.epochs={N_PACK_EPOCHS}", "data.n_train=64", "data.n_validation=32"),
    "space={lr: {low: 0.001, high: 0.1, log: true}}",
)


class OutsideLog:
    """What the trials were told is stored."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._rest = b""
        self.values: dict[tuple[int, int], list[float]] = {}
        """The values of acknowledged reports, by trial and step."""
        self.workers: dict[int, int] = {}
        """The process that reported last, by trial."""

    def read(self) -> None:
        """Take what has come."""
        try:
            *lines, self._rest = (self._rest + os.read(self._fd, 2**20)).split(b"\n")
        except BlockingIOError:
            return
        for line in lines:
            pid, trial, step, value = line.split()
            self.workers[int(trial)] = int(pid)
            self.values.setdefault((int(trial), int(step)), []).append(float(value))

    def close(self) -> None:
        os.close(self._fd)


class RecordedValues(OutsideLog):
    """What a study's record has, whose trials tell nobody else; a value there never changes."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self.values = {}
        self.workers = {}

    def read(self) -> None:
        before, losses = self.values, self._records.losses()
        self.values = {key: [metrics["val_loss"]] for key, metrics in losses.items()}
        assert {key: self.values.get(key) for key in before} == before


class KilledSweep:
    """A sweep of which one process after another is killed."""

    def __init__(
        self, program: Program, log: OutsideLog, seed: int, words: Sequence[str] = ALONE
    ) -> None:
        self._program, self._log = program, log
        self._words = (*WORDS, *words)
        self._chance = random.Random(seed)
        self.records = Records(program.folder, "killed")
        self._running: Running | None = None
        self._hit: set[int] = set()
        """Trials one of whose processes was killed: a trial that kills two has failed."""
        self.kills: list[str] = []
        """When each process was killed, and which."""
        self.left: list[str] = []
        """Processes that outlived the sweep, or the process that they were below, by 3 s."""

    def kill(self, what: str) -> None:
        """Kill what that method finds once some more reports have come; start the sweep if none
        runs."""
        if self._running is None:
            self._running = self._program.start(*self._words)
        running, until = self._running, len(self._log.values) + self._chance.randint(1, 40)

        def is_time() -> bool:
            self._log.read()
            return len(self._log.values) >= until or running.process.poll() is not None

        running.wait_until(is_time, "more reports") if running.process.poll() is None else None
        pid = getattr(self, what)() if running.process.poll() is None else None
        if pid is None:
            return
        try:
            below = psutil.Process(abs(pid)).children(recursive=True)
            os.kill(pid, signal.SIGKILL)
        except (psutil.NoSuchProcess, ProcessLookupError):  # it has ended meanwhile
            return
        self.kills.append(f"{time.time():.3f} {what} {abs(pid)}")
        if abs(pid) == running.process.pid:
            running.process.wait()
            self._running = None
            left = left_processes(self._program.folder)
        else:
            left = those_left(lambda: [process for process in below if process.is_running()])
        self.left += [f"{process}, after {self.kills[-1]}" for process in left]

    def stop(self, what: str) -> None:
        """Stop what that method finds for a while; the sweep goes on then, and ends."""
        self._running = running = self._program.start(*self._words)
        found: list[int] = []

        def is_found() -> bool:
            self._log.read()
            pid = getattr(self, what)() if len(self._log.values) > N_LIVE else None
            found.extend(filter(None, [pid]))
            return bool(found)

        running.wait_until(is_found, "some reports")
        os.kill(found[0], signal.SIGSTOP)
        with suppress(subprocess.TimeoutExpired):
            running.process.wait(STOPPED_SECONDS)  # the fault itself
        os.kill(found[0], signal.SIGCONT)
        assert running.wait().code == 0, running.stderr

    def finish(self) -> None:
        """Let the sweep end, or resume it and let that end."""
        if self._running is not None:
            self._running.wait()
        done = self._program.call(*self._words)
        assert (done.code, done.stderr) == (0, "")
        self._log.read()

    # --- what is killed ---

    def main(self) -> int | None:
        assert self._running is not None
        return self._running.process.pid

    def group(self) -> int | None:
        assert self._running is not None
        return -self._running.process.pid

    def _has_reported(self, trial: int, step: int) -> bool:
        return (trial, step) in self._log.values

    def worker(self) -> int | None:
        """Return the process of a trial that has not lost one, and is not about to end."""
        alive = {t: pid for t, pid in self._log.workers.items() if t not in self._hit}
        for trial in sorted(alive, reverse=True):
            if psutil.pid_exists(alive[trial]) and not self._has_reported(trial, N_EPOCHS - 4):
                self._hit.add(trial)
                return alive[trial]
        return None

    def fork_server(self) -> int | None:
        """Return the parent of the workers, none of whose trials has lost a process."""
        alive = {t: pid for t, pid in self._log.workers.items() if psutil.pid_exists(pid)}
        if not alive or not all(self._has_reported(t, N_EPOCHS - 1) for t in self._hit):
            return None
        self._hit |= {*range(max(self._log.workers) + 1 + N_LIVE)}  # some may not have reported yet
        return psutil.Process(alive[max(alive)]).ppid()

    def deliverer(self) -> int | None:
        """Return the process that holds the file of what is delivered."""
        assert self._running is not None
        for child in psutil.Process(self._running.process.pid).children():
            if any(Path(f.path).name == "events.delivered" for f in child.open_files()):
                return child.pid
        return None


@pytest.fixture
def outside_log(program: Program) -> Iterator[OutsideLog]:
    log = OutsideLog(program.folder / ACKNOWLEDGED)
    yield log
    log.close()


class KilledPacks(KilledSweep):
    """A sweep of packs, whose processes are found by their parents."""

    def worker(self) -> int | None:
        server = self.fork_server()
        workers = [] if server is None else self._children(server)
        return self._chance.choice(workers).pid if workers else None

    def fork_server(self) -> int | None:
        assert self._running is not None
        children = self._children(self._running.process.pid)
        return next((child.pid for child in children if self._children(child.pid)), None)

    @staticmethod
    def _children(pid: int) -> list[psutil.Process]:
        try:
            return psutil.Process(pid).children()
        except psutil.NoSuchProcess:
            return []


TARGETS = ("deliverer", "worker", "main", "worker", "fork_server", "group", "main")
PACK_TARGETS = ("deliverer", "worker", "main", "fork_server", "group", "main")


def choose_targets(targets: Sequence[str], seed: int) -> list[str]:
    """Return the targets in an order by the seed; four of them where faults are sampled."""
    return random.Random(seed).sample(targets, 4 if ARE_SAMPLED else len(targets))


@pytest.mark.parametrize("seed", ROUNDS)
def test_whatever_is_killed_nothing_acknowledged_is_lost_or_done_twice(
    program: Program, outside_log: OutsideLog, seed: int, note_promise: NotePromise
) -> None:
    sweep = KilledSweep(program, outside_log, seed)
    for target in choose_targets(TARGETS, seed):
        sweep.kill(target)
    sweep.finish()
    check_nothing_is_lost(sweep, outside_log, "kills", note_promise)
    check_nothing_is_left(sweep, note_promise)


@pytest.mark.parametrize("seed", ROUNDS)
def test_packs_that_are_killed_lose_nothing_and_do_nothing_twice(
    program: Program, seed: int, note_promise: NotePromise
) -> None:
    recorded = RecordedValues(Records(program.folder, "killed"))
    sweep = KilledPacks(program, recorded, seed, PACKS)
    for target in choose_targets(PACK_TARGETS, seed):
        sweep.kill(target)
    sweep.finish()
    sweep.records.check_exact(N_TRIALS, N_PACK_EPOCHS, ["val_loss"])
    note_promise("recorded metrics of packs after kills", len(recorded.values), 0)
    check_nothing_is_left(sweep, note_promise)


@pytest.mark.parametrize("what", sample(["deliverer", "worker", "main", "fork_server"], 2))
def test_whatever_is_stopped_for_a_while_goes_on(
    program: Program,
    outside_log: OutsideLog,
    what: str,
    note_promise: NotePromise,
) -> None:
    sweep = KilledSweep(program, outside_log, 0)
    sweep.stop(what)
    sweep.finish()
    fault = f"{what} stopped for {STOPPED_SECONDS:.0f} s"
    check_nothing_is_lost(sweep, outside_log, fault, note_promise)


def test_of_two_values_of_a_step_the_first_counts(
    program: Program, outside_log: OutsideLog, note_promise: NotePromise
) -> None:
    """Each trial's process dies when the sweep has a value, and `report` has not returned."""
    sweep = KilledSweep(program, outside_log, 0, (ALONE[0], *objective_words("dies_in_a_report")))
    sweep.finish()
    check_nothing_is_lost(sweep, outside_log, "deaths in a report", note_promise)
    losses, differ = sweep.records.losses(), []
    for (trial, step), values in outside_log.values.items():
        differ += [trial] if losses[trial, step]["val_loss"] not in values else []
    assert sorted(differ) == [*range(N_TRIALS)]


def check_nothing_is_left(sweep: KilledSweep, note_promise: NotePromise) -> None:
    note_promise("processes left 3 s after kills", len(sweep.kills), len(sweep.left))
    assert sweep.left == []


def check_nothing_is_lost(
    sweep: KilledSweep, outside_log: OutsideLog, what: str, note_promise: NotePromise
) -> None:
    """Check that a step is acknowledged once, and not trained again then; that the record has it.

    Where a kill came between a value's way to the sweep and the return of `report`, the step was
    trained again. The record has the first of its values then, and the trial's next start after it.
    """
    trained = [_trained_values(sweep.records, number) for number in range(N_TRIALS)]
    again = _started_after(sweep.records)
    losses = sweep.records.losses()
    lost: dict[tuple[int, int], object] = {}
    for key, values in outside_log.values.items():
        tried = [value for epoch, value in trained[key[0]] if epoch == key[1]]
        kept = losses.get(key, {}).get("val_loss")
        is_kept = kept == tried[-1] or (kept in tried and key in again)
        if values != tried[-1:] or not is_kept:
            lost[key] = {
                "acknowledged": values,
                "tried": tried,
                "kept": kept,
                "again": key in again,
            }
    note_promise(f"acknowledged metrics after {what}", len(outside_log.values), len(lost))
    assert lost == {}, sweep.kills
    sweep.records.check_exact(N_TRIALS, N_EPOCHS, ["val_loss"])
    for pairs in trained:
        epochs = [epoch for epoch, _ in pairs]
        assert (epochs[0], epochs[-1]) == (0, N_EPOCHS - 1)
        assert all(after - before in (0, 1) for before, after in pairwise(epochs)), epochs


def _trained_values(records: Records, trial: int) -> list[tuple[int, float]]:
    """Return each epoch that the trial trained, and its value, in their order."""
    lines = (records.path / "checkpoints" / f"trial-{trial:05d}" / "trained").read_text()
    return [(int(epoch), float(value)) for epoch, value in map(str.split, lines.splitlines())]


def _started_after(records: Records) -> set[tuple[int, int]]:
    """Return the trial and step of each recorded report after which its trial was started again."""
    n_starts: Counter[int] = Counter()
    reported: dict[tuple[int, int], int] = {}
    for event in records.events():
        if isinstance(event, TrialStarted):
            n_starts[event.trial] += 1
        elif isinstance(event, MetricsReported):
            reported[event.trial, event.step] = n_starts[event.trial]
    return {key for key, start in reported.items() if start < n_starts[key[0]]}
