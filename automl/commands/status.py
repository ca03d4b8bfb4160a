"""`status`: a study so far, from any process.

What the study's sweep wrote to `status.json` last is shown; by the study's lock it is seen whether
that sweep still lives.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from automl.commands.which_study import find_study
from automl.config import Config
from automl.record.directory import command_line, is_held
from automl.record.files import StudyFiles
from automl.record.texts import fit_line
from automl.running.console import open_console
from automl.running.readable import clock
from automl.running.rendering import failure_lines, render
from automl.running.view import SweepView, read_view


def run(config: Config, stored_config: str) -> int:
    """Print the view of `study.name`, or of the newest study. Raises ConfigError."""
    path = find_study(config)
    # It may have been moved or renamed since.
    view = replace(read_view(StudyFiles(path).status), study=path.name, directory=str(path))
    print_view(view, None if view.ended is not None else _note(view, path, config))
    return 0


def print_view(view: SweepView, note: str | None) -> None:
    """The whole view, the failures by cause, and how it ended, else the note."""
    console = open_console()
    console.print(render(view))
    for line in failure_lines(view):
        console.say(line, "red")
    age = time.time() - view.time
    if view.ended is not None:
        console.say(f"{fit_line(view.ended)}, {clock(age)} ago", "dim")
    elif note is not None:
        console.say(fit_line(note), "magenta")


def _note(view: SweepView, path: Path, config: Config) -> str | None:
    """What became of a sweep that has not told its end; None: it goes on."""
    age = f"{time.time() - view.time:.0f} s ago"
    try:
        if is_held(path):
            return None
    except OSError as error:
        return (
            f"as of {age}; whether a sweep still works on it cannot be seen "
            f"({StudyFiles(path).lock}: {error.strerror})"
        )
    again = command_line("resume", replace(config.study, name=view.study))
    return f"interrupted {age}; go on with: {again}"
