"""Collects what the panel of a single trial shows besides its row: attempts, cause, log and file.

Logs are read as texts, links and pipes are passed over, and credentials are masked.
"""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from pathlib import Path
from typing import Any

from automl.config import ObjectiveKind
from automl.record.study_files import CHECKPOINT_NAMES, CHECKPOINTS_FOLDER, StudyFiles
from automl.record.texts import fit_line
from automl.record.trial_record import TrialRecord
from automl.report.study_data import StudyData
from automl.trial import CheckpointKind, TrialState, trial_name

MAX_DETAILED = 1_000
"""Largest number of trials with details, those with the best values first."""
MAX_LOGS = 40
"""Largest number of trials whose log is shown: those that failed, then the best."""
MAX_LOG_BYTES = 4_096
N_LINES = 5


def trial_details(data: StudyData, directory: Path | None) -> dict[str, Any]:
    """Return what the page's script shows of single trials, in plain values.

    `devices` are their names, and `trials` has the details by number. `directory` is the study's;
    None: nothing is read from its files.
    """
    devices = [*dict.fromkeys(e.device for e in data.executions)]
    attempts = defaultdict(list)
    for e in data.executions:
        seconds = round(e.end_seconds - e.start_seconds, 2)
        attempts[e.trial].append(
            [devices.index(e.device), seconds, e.state, e.asked_bytes, e.seen_bytes]
        )
    places = {trial.number: place for place, trial in enumerate(data.record.ranking())}
    shown = sorted(data.ended, key=lambda trial: places.get(trial.number, len(places)))
    failed = [t for t in shown if t.state is TrialState.FAILED]
    logged = {trial.number for trial in [*failed, *shown][:MAX_LOGS]}
    files = None if directory is None else StudyFiles(directory)
    found = {
        str(trial.number): _details(trial, attempts[trial.number], files, trial.number in logged)
        for trial in shown[:MAX_DETAILED]
    }
    return {
        "devices": [fit_line(name, 100) for name in devices],
        "trials": found,
        "load": _load_text(data, directory),
    }


def _details(
    trial: TrialRecord, attempts: list[list[Any]], files: StudyFiles | None, is_logged: bool
) -> dict[str, Any]:
    details: dict[str, Any] = {"attempts": attempts}
    if trial.cause:
        details["cause"] = fit_line(trial.cause, 300)
    if files is not None:
        if is_logged and (lines := _last_lines(files.log(trial.number))):
            details["log"] = lines
        if files.checkpoint(trial.number, CheckpointKind.BEST).exists():
            name = CHECKPOINT_NAMES[CheckpointKind.BEST]
            details["file"] = f"{CHECKPOINTS_FOLDER}/{trial_name(trial.number)}/{name}"
    return details


def _last_lines(path: Path) -> list[str]:
    """Return the last lines of a log; none if there is no plain file that can be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return []
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return []
        file.seek(max(0, os.fstat(fd).st_size - MAX_LOG_BYTES))
        lines = file.read(MAX_LOG_BYTES).decode(errors="replace").splitlines()
    return [fit_line(line, 200) for line in lines if line.strip()][-N_LINES:]


def _load_text(data: StudyData, directory: Path | None) -> str:
    """Return Python that loads the model of a trial, whose file stands for FILE."""
    folder = "" if directory is None else f"{os.path.relpath(directory)}/"
    if data.record.settings.get("objective.kind") == ObjectiveKind.builtin.name:
        return f'automl.load("{folder}FILE")'
    return f'torch.load("{folder}FILE", weights_only=True)["state"]'
