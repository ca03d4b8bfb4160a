"""The program with a journal that breaks while a trial trains, and objectives for such days.

`python -m tests.end_to_end.troubled WORDS` is `python -m automl WORDS` with these changes: the
journal of study `silent` takes nothing more once its trial 0 has begun; a process that ends at once
leaves word whether the study was still locked; and with the environment variable DEAF trials in
threads cannot even be told to stop.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import automl
from automl.cli import main
from automl.errors import StorageError
from automl.execution.executor import InlineExecutor
from automl.record.studies import is_study_held
from automl.search.storage import LockedJournal

STUDY = Path("studies") / "silent"
BEGAN, BROKE, HELD_AT_EXIT = "began", "broke", "held-at-exit"
N_EPOCHS = 3


def _wait_for(path: Path) -> None:
    never = threading.Event()
    while not path.exists():
        never.wait(0.005)


def silent(trial: automl.TrialContext) -> float:
    """In its first life trial 0 never says a word; once it has begun trial 1 ends, which breaks the
    journal; and then trial 2 reports."""
    study = trial.directory.parent.parent
    (study / f"here-{trial.number}").touch()
    for number in (1, 2):
        _wait_for(study / f"here-{number}")
    if trial.number == 0 and not (study / BEGAN).exists():
        (study / "began.part").write_text(str(os.getpid()))
        (study / "began.part").rename(study / BEGAN)
        threading.Event().wait()
    _wait_for(study / BEGAN)
    if trial.number == 2 and trial.restore() is None:
        _wait_for(study / BROKE)
        for step in itertools.count():
            trial.report(step, {"val_loss": 9.0}, checkpoint=dict)
            threading.Event().wait(0.02)
    with (study / "trained").open("a") as trained:
        trained.write(f"{trial.number}\n")
    return float(trial.number)


def waits_until_full(trial: automl.TrialContext) -> None:
    """Reports with checkpoints, from the second on when the disk is said to be full."""
    folder = trial.directory.parents[3]
    state = trial.restore()
    for epoch in range(0 if state is None else state["epoch"] + 1, N_EPOCHS):
        if epoch > 0:
            _wait_for(folder / "full")
        losses = {"train_loss": 1.0, "val_loss": 1 / (epoch + 1)}
        trial.report(epoch, losses, checkpoint=partial(dict, epoch=epoch, ballast="x" * 20_000))


def _break_the_journal() -> None:
    append = LockedJournal.append_logs

    def append_until_it_began(self: LockedJournal, logs: list[dict[str, Any]]) -> None:
        if (STUDY / BEGAN).exists():
            (STUDY / BROKE).touch()
            raise StorageError("the journal's disk has gone")
        append(self, logs)

    LockedJournal.append_logs = append_until_it_began  # type: ignore[method-assign]


def _break_the_stopping() -> None:
    def raises(self: InlineExecutor) -> NoReturn:
        raise RuntimeError("trials cannot be told to stop")

    InlineExecutor.stop_trials = raises  # type: ignore[method-assign]


def _leave_word_at_exit() -> None:
    leave = os._exit

    def leave_word(status: int) -> NoReturn:
        (STUDY / HELD_AT_EXIT).write_text(str(is_study_held(STUDY)))
        leave(status)

    os._exit = leave_word


if __name__ == "__main__":
    _break_the_journal()
    _leave_word_at_exit()
    if "DEAF" in os.environ:
        _break_the_stopping()
    sys.exit(main())
