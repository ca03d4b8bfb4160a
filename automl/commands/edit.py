"""`edit`: changes the space, the totals, the sampler or the pruner of a study.

A running sweep makes the edit; where none runs, this command makes it, as the next sweep would. The
checks and the event are in `automl/running/prepare/edited_study.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from automl.commands.command_call import CommandCall, StoredSettings
from automl.commands.models.study_opening import fetch_shared_study, open_requests
from automl.config import StudyConfig
from automl.config.command_arguments import EditArguments
from automl.errors import ConfigError, StudyInUseError
from automl.record.event_log import EventLog, read_edits
from automl.record.studies import study_path
from automl.record.study_directory import StudyDirectory, study_command
from automl.record.study_files import StudyFiles
from automl.record.study_record import edit_lines
from automl.record.study_requests import (
    EDIT,
    RequestAnswer,
    RequestQueue,
    StudyRequest,
)
from automl.record.texts import say_on_stdout
from automl.terminal.machine_output import write_answer

if TYPE_CHECKING:
    from automl.running.prepare.prepared_config import PreparedStudy

ANSWER_SECONDS = 30.0
"""How long the answer of a running sweep is waited for, which comes in half a second."""


def run(call: CommandCall) -> int:
    """Edit the study `study.name`, and print what changed. Raises AutoMLError."""
    from automl.running.prepare.edited_study import SettingsChange, refuse_uneditable_study

    config, stored = call.config, call.stored_settings
    assert stored is not None, "the registry says that this command needs them"
    assert stored.before_line is not None, "the registry says that they come first"
    refuse_uneditable_study(config)
    change = SettingsChange.between(stored.before_line, config)
    changes = bool(change.before or change.after)
    undo = call.typed_arguments(EditArguments).undo
    if undo and changes:
        raise ConfigError("undo=true takes the last edit back, and nothing else: give it alone.")
    if not undo and not changes:
        raise ConfigError(
            "edit: nothing changes: give the settings that the study should have, such as "
            "space.lr=log:1e-4..0.3 or n_trials=200, or undo=true."
        )
    arguments: Mapping[str, Any] = {"undo": True} if undo else vars(change)
    path = study_path(config.study).absolute()
    with open_requests(config.study, path) as requests:
        request = requests.write(EDIT, arguments)
        answer = requests.wait_for_answer(request, ANSWER_SECONDS)
        if answer is None:
            answer = _make_edits(config.study, requests, request, stored)
    if not answer.done:
        raise ConfigError(answer.text)
    lines = answer.text.split("; ")
    for line in lines:
        say_on_stdout(line)
    write_answer({"study": config.study.name, "edited": lines})
    return 0


def _make_edits(
    study: StudyConfig,
    requests: RequestQueue,
    request: StudyRequest,
    stored: StoredSettings,
) -> RequestAnswer:
    """Make the pending edits of a study on which no sweep works, and return the answer to
    `request`.

    Raises AutoMLError; the request then stays for the next sweep, unless it was refused.
    """
    try:
        # The edits of a shared study are put in order by its database.
        with nullcontext() if study.shared else StudyDirectory.open(study, must_exist=True):
            for pending in requests.pending():
                if pending.kind == EDIT:
                    requests.answer(pending, _make_edit(study, pending, stored))
    except StudyInUseError:
        pass  # another command or sweep has come in between, which answers
    answer = requests.wait_for_answer(request, ANSWER_SECONDS)
    if answer is None:
        raise StudyInUseError(
            f"study.name={study.name}: its sweep has not answered within {ANSWER_SECONDS:.0f} s; "
            "the edit stays asked for, and is made by this sweep or the next. See it with: "
            f"{study_command('status', study)}"
        )
    return answer


def _make_edit(study: StudyConfig, request: StudyRequest, stored: StoredSettings) -> RequestAnswer:
    """Make an edit as a sweep would. Raises StorageError."""
    from automl.running.prepare.edited_study import edit_study
    from automl.running.prepare.preparation import prepare_study
    from automl.search.storage import count_trials

    path = study_path(study)
    while True:
        fetched, config = fetch_shared_study(study), stored.compose()
        edits = read_edits(StudyFiles(path).events)
        if fetched is not None and edits != fetched.edits:
            raise StudyInUseError(f"{path}: another process brings the folder up to date")
        made = next((edit for edit in edits if edit.id == request.id), None)
        if made is not None:
            return RequestAnswer("; ".join(edit_lines(made)))
        n_trials = count_trials(study, path) if fetched is None else fetched.n_asked
        try:
            prepared = prepare_study(config, edits=edits)
            prepared, _ = edit_study(prepared, edits, request, n_trials)
        except (ConfigError, TypeError) as error:
            return RequestAnswer(str(error), done=False)
        _record_edit(study, prepared)


def _record_edit(study: StudyConfig, prepared: PreparedStudy) -> None:
    """Record the last edit of the study, unless another one came in between."""
    edit, n_edits = prepared.edits[-1], len(prepared.edits) - 1
    if study.shared:
        from automl.record.sharing.shared_requests import record_edit

        record_edit(study, edit, n_edits=n_edits, n_trials=prepared.edited_total)
        return
    with EventLog.open(StudyFiles(study_path(study)).events) as log:
        log.append(edit)
