"""Does what commands ask a running sweep for: it looks for requests and answers each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from automl.errors import ConfigError
from automl.record.study_record import edit_lines
from automl.record.study_requests import (
    RequestAnswer,
    RequestInbox,
    StudyRequest,
    answer_request,
)
from automl.running.loop.asking import TrialAsker
from automl.running.setup.edited_study import EDIT, edit_study
from automl.running.setup.parts import SweepParts

REQUEST_SECONDS = 0.25
"""Interval at which a sweep looks for requests."""


class SweepSteering:
    """Carries out the requests to one sweep. For the main thread."""

    def __init__(self, parts: SweepParts, asking: TrialAsker, say: Callable[[str], None]) -> None:
        self._parts, self._asking, self._say = parts, asking, say
        self._inbox = RequestInbox(parts.directory.path)
        self._looked_seconds = 0.0
        self._actions: Mapping[str, Callable[[StudyRequest], str]] = {EDIT: self._edit}
        """What is done for each kind of request. It returns the answer for people, and raises
        ConfigError to refuse the request."""

    def look(self, now_seconds: float) -> bool:
        """Carry out the pending requests if it is time to look; return whether there were any.

        Raises StorageError.
        """
        if now_seconds - self._looked_seconds < REQUEST_SECONDS:
            return False
        self._looked_seconds = now_seconds
        pending = self._inbox.pending()
        for request in pending:
            answer_request(self._parts.directory.path, request, self._answer(request))
        return bool(pending)

    def _answer(self, request: StudyRequest) -> RequestAnswer:
        action = self._actions.get(request.kind)
        if action is None:
            return RequestAnswer(f"{request.kind}: this sweep knows no such request.", done=False)
        try:
            return RequestAnswer(action(request))
        except (ConfigError, TypeError) as error:
            return RequestAnswer(str(error), done=False)

    def _edit(self, request: StudyRequest) -> str:
        """Edit the study: what is asked for next follows the new settings, running trials go on."""
        parts = self._parts
        edits = parts.prepared.edits
        if all(edit.id != request.id for edit in edits):  # else a kill came before the answer
            prepared, event = edit_study(parts.prepared, edits, request, parts.study.n_asked)
            parts.study.edit(prepared.rules)
            try:
                if prepared.plan.space != parts.prepared.plan.space:
                    parts.executor.renew(prepared.entry)
            except ConfigError:
                parts.study.edit(parts.prepared.rules)
                raise
            parts.log.append(event)
            parts.prepared = prepared
            self._asking.change_total(prepared.config.study.decided_n_trials)
            edits = prepared.edits
        lines = edit_lines(next(edit for edit in edits if edit.id == request.id))
        for line in lines:
            self._say(f"edited by {request.user}: {line}")
        return "; ".join(lines)
