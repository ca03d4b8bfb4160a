"""`refit.pt`, put into the study."""

from __future__ import annotations

import os
from pathlib import Path

from automl.config import Config, DataKind
from automl.config.refit import ALL, TRAIN
from automl.data.dataset import Dataset
from automl.execution.remote import call_in_child
from automl.record.directory import command_line
from automl.tracking.long_step import long_step
from automl.tracking.say import say_on_stdout
from automl.training.refitted import RefitFile
from automl.trial import Entry

WRITE = "automl.training.refit_file:write"


def keep(asked: RefitFile) -> None:
    """Write it, in a process that may load torch, and say where it is. Raises AutoMLError."""
    path = Path(asked.path)
    with long_step(f"writing {path.name}"):
        call_in_child(Entry(WRITE, asked))
    say_on_stdout(f"refitted model: {os.path.relpath(path)} ({path.stat().st_size:,} bytes)")


def say_what_stands_for_it(config: Config, dataset: Dataset, value: float, of: str) -> None:
    """Where it has seen all rows: the score that tells of it, which is that `of` what it repeats,
    by the study's metric."""
    data, rows = config.data, config.refit.rows
    is_kept = data.kind is DataKind.disc or data.test_path is not None or bool(data.test_fraction)
    if rows == TRAIN or (is_kept and rows != ALL):
        return
    judged = "out-of-fold" if dataset.folds else "on validation rows"
    again = command_line("evaluate", config.study)
    say_on_stdout(
        f"it has seen all rows: {config.study.metric} {value:.5g} {judged}, of {of}, stands for it;"
        f" score it on later rows: {again} data.test_path=FILE"
    )
