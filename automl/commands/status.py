"""`status`: a study so far, from any process.

What its trials came to is read from the record, to the last event; what runs and waits, and why,
from the picture that its sweep writes to `status.json`, while it lives or as it ended. By the
study's lock it is seen whether it lives.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from automl.commands.models.study_opening import bring_up
from automl.config import Config, StudyConfig
from automl.record.studies import find_study, read_study
from automl.record.study_directory import command_line, is_held
from automl.record.study_files import StudyFiles
from automl.record.study_record import StudyRecord
from automl.record.texts import fit_line
from automl.running.display.console import duration_text, open_console
from automl.running.display.failures import FailureCounts
from automl.running.display.rendering import failure_lines, render_view
from automl.running.display.view import BestRow, SweepView, read_view
from automl.running.setup.resume_command import resume_command_from_settings
from automl.trial import TrialState

if TYPE_CHECKING:
    from automl.record.sharing.study_fetch import FetchedStudy


def run(config: Config, stored_config: str) -> int:
    """Print the view of `study.name`, or of the newest study. Raises ConfigError."""
    fetched = bring_up(config.study)
    path = find_study(config.study)
    lives = _lives(path)  # seen first: what is written before the lock goes back is the last word
    record = read_study(path)
    if fetched is not None and not lives:
        print_view(_of_record(path, record, fetched), _note_of_shared(config.study, fetched))
        return 0
    # It may have been moved or renamed since.
    view = replace(read_view(StudyFiles(path).status), study=path.name, directory=str(path))
    goes_on = view.ended is None
    if record.sweeps:  # else its log is lost, and it says nothing
        killed = goes_on and lives is False
        view = as_recorded(dead(view, record) if killed else view, record)
    again = resume_command_from_settings(replace(config.study, name=view.study), record.settings)
    note = _note(view, again, lives) if goes_on else None
    if goes_on and note is None and fetched is not None:  # the view has this sweep's own alone
        note = _where_at_work(fetched)
    print_view(view, note)
    for line in () if goes_on else _ensemble(record, path):
        open_console().say(line)
    return 0


def _ensemble(record: StudyRecord, path: Path) -> Sequence[str]:
    """What the models of the study are together, as the sweep's end said it; nothing where there is
    none (any more), or the log does not know its members."""
    made = record.ensemble
    if (
        made is None
        or not StudyFiles(path).ensemble.exists()
        or not (made.members.keys() <= record.trials.keys())
    ):
        return ()
    from automl.models.family import load_families
    from automl.running.finish.ensemble import (
        ensemble_lines,  # with numpy, which other studies do without
    )

    family = load_families().get(record.settings.get("model", ""))
    found = ensemble_lines(made, record, None if family is None else family.choice, path)
    refit = StudyFiles(path).refit
    return [*found, f"refit: {os.path.relpath(refit)}"] if refit.exists() else found


def _of_record(path: Path, record: StudyRecord, fetched: FetchedStudy) -> SweepView:
    """Of a study whose sweeps are elsewhere."""
    counts = {state.value: n for state, n in record.counts().items()}
    n_open = sum(n for state, n in record.counts().items() if not state.is_final)
    n_running = min(n_open, sum(fetched.at_work.values()))
    counts[TrialState.RUNNING.value] = n_running
    counts[TrialState.INTERRUPTED.value] = n_open - n_running
    view = SweepView(
        path.name, str(path), time.time(), fetched.n_trials, record.metric.name, counts
    )
    return as_recorded(view, record)


def _note_of_shared(study: StudyConfig, fetched: FetchedStudy) -> str:
    at_work = _where_at_work(fetched)
    return at_work or f"no sweep works on it; go on with: {command_line('resume', study)}"


def _where_at_work(fetched: FetchedStudy) -> str | None:
    """On which machines trials run; None: on none."""
    return f"trials that run: {fetched.where_at_work}" if fetched.at_work else None


def print_view(view: SweepView, note: str | None) -> None:
    """The whole view, the failures by cause, and how it ended, else the note."""
    console = open_console()
    console.print(render_view(view))
    for line in failure_lines(view):
        console.say(line, "red")
    age = time.time() - view.time
    if view.ended is not None:
        console.say(f"{fit_line(view.ended)}, {duration_text(age)} ago", "dim")
    elif note is not None:
        console.say(fit_line(note), "magenta")


def as_recorded(view: SweepView, record: StudyRecord) -> SweepView:
    """The view with what the record says of all that came to its end, since it was written too."""
    ended = {n for n, trial in record.trials.items() if trial.state.is_final}
    running = tuple(row for row in view.running if row.number not in ended)
    final = {state.value: n for state, n in record.counts().items() if state.is_final}
    counts = {**view.counts, **final}
    if view.running:
        counts[TrialState.RUNNING.value] = len(running)
    best = record.best()
    if best is not None:
        assert best.value is not None
        view = replace(view, best=BestRow(best.number, best.value, best.params))
    return replace(
        view, counts=counts, running=running, failures=FailureCounts(record.trials).rows()
    )


def dead(view: SweepView, record: StudyRecord) -> SweepView:
    """The view of a sweep that was killed: what ran and waited then is interrupted."""
    asked = {row.number for row in view.waiting if row.number is not None}
    asked |= {n for n, trial in record.trials.items() if not trial.state.is_final}
    counts = {TrialState.INTERRUPTED.value: len(asked)}
    return replace(view, counts=counts, running=(), waiting=(), devices=(), seconds_left=None)


def _lives(path: Path) -> bool | OSError:
    """Whether a sweep holds the study; or why that cannot be seen."""
    try:
        return is_held(path)
    except OSError as error:
        return error


def _note(view: SweepView, again: str, lives: bool | OSError) -> str | None:
    """What became of a sweep that has not told its end, and how it goes on; None: it does."""
    age = f"{time.time() - view.time:.0f} s ago"
    if isinstance(lives, OSError):
        return (
            f"as of {age}; whether a sweep still works on it cannot be seen "
            f"({StudyFiles(Path(view.directory)).lock}: {lives.strerror})"
        )
    return None if lives else f"interrupted {age}; go on with: {again}"
