"""`kill -9` at moments that nobody chose, one after another: the study is exact all the same."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from tests.end_to_end.objectives import N_EPOCHS
from tests.end_to_end.program import Program, Running, objective_words
from tests.end_to_end.records import Records

N_TRIALS = 10
SEED = 2026
WORDS = (
    "study.name=killed",
    f"study.n_trials={N_TRIALS}",
    "training.checkpoint_every_seconds=0",
    "pruner=none",
    "devices.only=cpu",
    *objective_words("counts"),
)


def test_nothing_is_lost_or_done_twice(program: Program) -> None:
    records, chance = Records(program.folder, "killed"), random.Random(SEED)
    kill_after_seconds(program.start_module("automl", *WORDS), chance.uniform(0.1, 1.5))
    kill_when(program.start(*WORDS), (records.path / "journal.log").exists, "the journal")
    n_more = chance.randint(1, N_TRIALS * N_EPOCHS // 4)
    kill_after_events(program.start(*WORDS), records, n_more)
    kill_after_seconds(program.start("resume", "study.name=killed"), chance.uniform(0.5, 4))
    last = program.call("resume", "study.name=killed")
    assert (last.code, last.stderr) == (0, "")
    assert f"killed: {N_TRIALS} finished" in last.stdout
    records.check_exact(N_TRIALS, N_EPOCHS, ["train_loss", "val_loss"])
    for number in range(N_TRIALS):
        check_went_on(records.path / "checkpoints" / f"trial-{number:05d}" / "trained")


def kill_after_seconds(sweep: Running, seconds: float) -> None:
    """Wherever it is by then, be it at an import."""
    try:
        sweep.process.wait(seconds)
    except subprocess.TimeoutExpired:
        sweep.kill()


def kill_when(sweep: Running, condition: Callable[[], bool], what: str) -> None:
    sweep.wait_until(condition, what)
    sweep.kill()


def kill_after_events(sweep: Running, records: Records, n_more: int) -> None:
    until = records.n_lines() + n_more
    kill_when(sweep, lambda: records.n_lines() >= until, f"{n_more} more events")


def check_went_on(trained: Path) -> None:
    """Each epoch was trained after the one before it, or again where its checkpoint was cut off:
    a trial never begins anew."""
    epochs = [int(line) for line in trained.read_text().splitlines()]
    assert (epochs[0], epochs[-1]) == (0, N_EPOCHS - 1)
    for before, after in pairwise(epochs):
        assert after - before in (0, 1), epochs
