"""`edit`: changes the space, the totals, the sampler or the pruner of a study.

A running sweep makes the edit; where none runs, this command makes it, as the next sweep would. The
checks and the event are in `automl/running/setup/edited_study.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from automl.config import Config, StudyConfig
from automl.errors import ConfigError, StudyInUseError
from automl.record.event_log import EventLog, read_edits
from automl.record.studies import study_path
from automl.record.study_directory import StudyDirectory, study_command
from automl.record.study_files import StudyFiles
from automl.record.study_record import edit_lines
from automl.record.study_requests import (
    RequestAnswer,
    RequestInbox,
    StudyRequest,
    answer_request,
    wait_for_answer,
    write_request,
)
from automl.record.texts import say_on_stdout
from automl.running.display.machine_output import write_answer

ANSWER_SECONDS = 30.0
"""How long the answer of a running sweep is waited for, which comes in half a second."""


ComposeStored: TypeAlias = Callable[[], Config]
"""Composes the settings that the study has now, without those of the command line."""


def run(config: Config, stored_config: str, stored: Config, compose_stored: ComposeStored) -> int:
    """Edit the study `study.name`, and print what changed. Raises AutoMLError.

    `stored`: the settings that the study had before `config` was composed.
    """
    from automl.running.setup.edited_study import EDIT, SettingsChange, refuse_uneditable_study

    refuse_uneditable_study(config)
    change = SettingsChange.between(stored, config)
    changes = bool(change.before or change.after)
    if config.undo and changes:
        raise ConfigError("undo=true takes the last edit back, and nothing else: give it alone.")
    if not config.undo and not changes:
        raise ConfigError(
            "edit: nothing changes: give the settings that the study should have, such as "
            "space.lr.high=0.3 or study.n_trials=200, or undo=true."
        )
    arguments: Mapping[str, Any] = {"undo": True} if config.undo else vars(change)
    path = study_path(config.study).absolute()
    request = write_request(path, EDIT, arguments)
    answer = wait_for_answer(path, request, ANSWER_SECONDS)
    answer = answer or _make_edits(config.study, request, compose_stored)
    if not answer.done:
        raise ConfigError(answer.text)
    lines = answer.text.split("; ")
    for line in lines:
        say_on_stdout(line)
    write_answer({"study": config.study.name, "edited": lines})
    return 0


def _make_edits(
    study: StudyConfig, request: StudyRequest, compose_stored: ComposeStored
) -> RequestAnswer:
    """Make the pending edits of a study that no sweep holds, and return the answer to `request`.

    Raises AutoMLError; the request then stays for the next sweep, unless it was refused.
    """
    try:
        with StudyDirectory.open(study, must_exist=True) as directory:
            _answer_all(directory.path, compose_stored)
    except StudyInUseError:
        pass  # another command or sweep has come in between, which answers
    answer = wait_for_answer(study_path(study), request, ANSWER_SECONDS)
    if answer is None:
        raise StudyInUseError(
            f"study.name={study.name}: its sweep has not answered within {ANSWER_SECONDS:.0f} s; "
            "the edit stays asked for, and is made by this sweep or the next. See it with: "
            f"{study_command('status', study)}"
        )
    return answer


def _answer_all(path: Path, compose_stored: ComposeStored) -> None:
    from automl.running.setup.edited_study import EDIT

    with EventLog.open(StudyFiles(path).events) as log:
        for request in RequestInbox(path).pending():
            if request.kind == EDIT:
                answer_request(path, request, _make_edit(path, log, request, compose_stored))


def _make_edit(
    path: Path, log: EventLog, request: StudyRequest, compose_stored: ComposeStored
) -> RequestAnswer:
    """Make an edit of a study whose lock is held, as its sweep would. Raises StorageError."""
    from automl.running.setup.edited_study import edit_study
    from automl.running.setup.preparation import prepare_study
    from automl.search.storage import count_trials

    edits = read_edits(StudyFiles(path).events)
    made = next((edit for edit in edits if edit.id == request.id), None)
    if made is None:
        try:
            config = compose_stored()
            prepared = prepare_study(config, edits=edits)
            n_trials = count_trials(config.study, path)
            _, made = edit_study(prepared, edits, request, n_trials)
        except (ConfigError, TypeError) as error:
            return RequestAnswer(str(error), done=False)
        log.append(made)
    return RequestAnswer("; ".join(edit_lines(made)))
