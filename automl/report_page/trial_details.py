"""Collects what the panel of a single trial shows besides its row: attempts, cause, log and file.

Logs are read as texts, links and pipes are passed over, and credentials are masked.
"""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from automl.config import ObjectiveKind
from automl.record.leaderboard import REFIT
from automl.record.study_files import CHECKPOINT_NAMES, CHECKPOINTS_FOLDER, StudyFiles
from automl.record.texts import fit_line
from automl.record.trial_record import TrialRecord
from automl.report_page.study_data import StudyData, TrialExecution
from automl.trial import ENSEMBLE_NAME, CheckpointKind, TrialState, trial_name

MAX_DETAILED = 1_000
"""Largest number of trials with details, those with the best values first."""
MAX_LOGS = 40
"""Largest number of trials whose log is shown: those that failed, then the best."""
MAX_LOG_BYTES = 4_096
N_LINES = 5
MIB = 2**20


def trial_details(data: StudyData, directory: Path | None) -> dict[str, Any]:
    """Return what the page's script shows of single trials, in plain values.

    `devices` are their names, `attempts` and `trials` have the details by number. `directory` is
    the study's; None: nothing is read from its files.
    """
    devices = [*dict.fromkeys(e.device for e in data.executions)]
    attempts: dict[int, list[list[Any]]] = defaultdict(list)
    for e in data.executions:
        attempts[e.trial].append(_attempt(e, devices, data.record.trials[e.trial]))
    places = {trial.number: place for place, trial in enumerate(data.record.ranking())}
    shown = sorted(data.ended, key=lambda trial: places.get(trial.number, len(places)))
    failed = [t for t in shown if t.state is TrialState.FAILED]
    logged = {trial.number for trial in [*failed, *shown][:MAX_LOGS]}
    files = None if directory is None else StudyFiles(directory)
    shown = shown[:MAX_DETAILED]
    details = {t.number: _details(t, files, t.number in logged) for t in shown}
    found: dict[str, Any] = {str(number): own for number, own in details.items() if own}
    if files is not None:
        found |= _made_of_trials(data, files)
    return {
        "devices": [fit_line(name, 100) for name in devices],
        "attempts": {t.number: own for t in shown if (own := attempts[t.number])},
        "trials": found,
        "load": _load_text(data, directory),
    }


def _attempt(execution: TrialExecution, devices: Sequence[str], trial: TrialRecord) -> list[Any]:
    """Return device, seconds, and MiB asked and seen; and the state, if it is not the trial's."""
    seconds = round(execution.end_seconds - execution.start_seconds, 2)
    sizes = [round(size / MIB, 1) for size in (execution.asked_bytes, execution.seen_bytes)]
    plain = [int(each) if each == int(each) or each >= 100 else each for each in (seconds, *sizes)]
    others = [] if execution.state == trial.state.value else [execution.state]
    return [devices.index(execution.device), *plain, *others]


def _details(trial: TrialRecord, files: StudyFiles | None, is_logged: bool) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if trial.cause:
        details["cause"] = fit_line(trial.cause, 300)
    if files is not None:
        if is_logged and (lines := _last_lines(files.log(trial.number))):
            details["log"] = lines
        if files.checkpoint(trial.number, CheckpointKind.BEST).exists():
            name = CHECKPOINT_NAMES[CheckpointKind.BEST]
            details["file"] = f"{CHECKPOINTS_FOLDER}/{trial_name(trial.number)}/{name}"
    return details


def _made_of_trials(data: StudyData, files: StudyFiles) -> dict[str, Any]:
    """Return the details of the ensemble and the refit in a leaderboard."""
    found: dict[str, Any] = {}
    if data.board and files.refit.exists():
        found[REFIT] = {"file": files.refit.name}
    if data.board and data.record.ensemble is not None:
        members = data.record.ensemble.members
        found[ENSEMBLE_NAME] = {"members": [[n, round(w, 4)] for n, w in members.items()]}
        if files.ensemble.exists():
            found[ENSEMBLE_NAME]["file"] = files.ensemble.name
    return found


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
