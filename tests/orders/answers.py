"""What the commands answer on a study, as plain values. Their settings are not composed, so that a
look costs milliseconds."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automl.commands import list as list_command
from automl.commands import report, status, trials
from automl.commands.command_call import CommandCall
from automl.config import CommandArguments, Config, StudyConfig
from automl.config.command_arguments import StatusArguments
from automl.terminal.machine_output import machine_output

_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)
_COUNTS = re.compile(r"Trials: (\d[^.<]*)\.")


@dataclass(frozen=True)
class Answers:
    """The answers of one moment."""

    status: dict[str, Any]
    listed: dict[str, Any]
    """The study's part of the answer of `list`."""
    rows: dict[int, dict[str, Any]]
    """Rows of `trials` by number."""
    progress: tuple[str, str]
    """How many trials have ended, of how many: as `status` and `list` print it for people."""


def ask_all(folder: Path, name: str) -> Answers:
    """Return what `status`, `list` and `trials` say of a study in `folder/studies`."""
    config = Config(study=StudyConfig(name=name))
    with chdir(folder):
        listed = answer(list_command.run, config)["studies"]
        rows = answer(trials.run, config)["trials"]
        shown, table = printed(status.run, config), printed(list_command.run, config)
        return Answers(
            answer(status.run, config),
            next(study for study in listed if study["name"] == name),
            {row["trial"]: row for row in rows},
            (_progress(shown), _progress(next(t for t in table.splitlines() if name in t))),
        )


def ask_trial(folder: Path, name: str, number: int) -> dict[str, Any]:
    """Return what `status` says of one trial."""
    config = Config(study=StudyConfig(name=name))
    with chdir(folder):
        return answer(status.run, config, StatusArguments(trial=number))


@dataclass(frozen=True)
class Page:
    """What the report says."""

    rows: dict[int, dict[str, Any]]
    counts: dict[str, int]


def read_page(folder: Path, name: str) -> Page:
    """Write the report of a study again, and return what it says."""
    with chdir(folder):
        answer(report.run, Config(study=StudyConfig(name=name)))
        html = Path("studies", name, "report.html").read_text()
    found = _DATA.search(html)
    data = json.loads(found[1]) if found else {"columns": [], "rows": []}
    rows = [dict(zip(data["columns"], row, strict=True)) for row in data["rows"]]
    for place, words in data.get("words", {}).items():
        name = data["columns"][int(place)]
        rows = [row | {name: None if row[name] is None else words[row[name]]} for row in rows]
    counted = _COUNTS.search(html)
    words = [part.split() for part in counted[1].split(", ")] if counted else []
    return Page({row["trial"]: row for row in rows}, {word: int(n) for n, word in words})


def answer(
    run: Callable[[CommandCall], int], config: Config, arguments: CommandArguments | None = None
) -> dict[str, Any]:
    """Return the answer of a command for programs."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()), machine_output():
        assert run(CommandCall(config, arguments=arguments)) == 0
    found: dict[str, Any] = json.loads(out.getvalue() or "{}")
    return found


def printed(run: Callable[[CommandCall], int], config: Config) -> str:
    """Return what a command prints for people."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        assert run(CommandCall(config)) == 0
    return out.getvalue()


def _progress(text: str) -> str:
    found = re.search(r"(\d+/\d+)", text)
    return found[1] if found else ""
