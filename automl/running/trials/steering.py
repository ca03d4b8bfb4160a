"""Does what commands ask a running sweep for: enqueue trials, stop some or all, pause, go on, edit.

Requests lie in the study's folder or in its database (`record/study_requests.py`). A request that
comes while no sweep runs, or while the sweep stops, waits for the next sweep. Of several sweeps the
one that has a trial stops it, and whichever is first edits the study or enqueues points; the others
learn it from the record.

`StartConditions` lets no trial start below `study.min_free_space`, or while the user has paused the
sweep. Running trials go on, and what the others wait for is shown as it is for memory.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from automl.admission.refusals import AdmissionRefusal, RefusalKind, gib_text
from automl.config import StudyConfig
from automl.errors import ConfigError
from automl.record.study_directory import study_command
from automl.record.study_record import edit_lines
from automl.record.study_requests import EDIT, RequestAnswer, StudyRequest
from automl.record.trial_record import LEASE_ENDED_CAUSE
from automl.running.loop.loop import SweepLoop
from automl.running.loop.messages import (
    PlannedTrial,
    SignalReceived,
    StopReason,
    TrialStartsHeld,
)
from automl.running.opening.outside_trials import (
    ASK,
    TELL,
    OutsideResult,
)
from automl.running.opening.parts import SweepParts
from automl.running.prepare.edited_study import edit_study, follow_edit
from automl.running.prepare.prepared_config import PreparedStudy
from automl.running.trials.carrier import TrialCarrier
from automl.search.search_space import EnqueuedPoint
from automl.trial import PrunedOutcome, StudyEdited, TrialOutcome, TrialState, Verdict

POLL_SECONDS = 0.25


def disk_refusal(study: StudyConfig, folder: Path) -> AdmissionRefusal | None:
    """Return why nothing starts while the disk of `folder` has less than `study.min_free_space`.

    None if it has more, or cannot be asked now.
    """
    least_bytes = study.min_free_bytes
    if least_bytes is None:
        return None
    try:
        disk = os.statvfs(folder)
    except OSError:  # whoever writes there meets the error
        return None
    free_bytes = disk.f_bavail * disk.f_frsize
    if free_bytes >= least_bytes:
        return None
    return AdmissionRefusal(
        f"waiting: the disk of {folder} has {gib_text(free_bytes)} free, and nothing starts below "
        f"study.min_free_space={study.least_free_space}",
        RefusalKind.HELD,
        for_devices=False,
    )


class StartConditions:
    """Tells the loop when a pause or a nearly full disk keeps trials from starting, and when no
    longer. For the main thread."""

    def __init__(
        self, study: StudyConfig, folder: Path, tell: Callable[[TrialStartsHeld, float], object]
    ) -> None:
        """`tell` has the loop handle a message at once, before any that waits."""
        self._study, self._folder, self._tell = study, folder, tell
        self._told: AdmissionRefusal | None = None
        self.is_paused = False
        """Whether the user has paused the sweep."""

    def look(self, now_seconds: float) -> None:
        """Look at the disk, and tell the loop what has changed. `now_seconds` is monotonic."""
        refusal = disk_refusal(self._study, self._folder)
        if self.is_paused:
            command = study_command("resume", self._study)
            reason = f"waiting: the sweep is paused; go on with: {command}"
            refusal = AdmissionRefusal(reason, RefusalKind.HELD, for_devices=False)
        if refusal != self._told:
            self._told = refusal
            self._tell(TrialStartsHeld(refusal), now_seconds)


def _find_edit(prepared: PreparedStudy, edit_id: str) -> StudyEdited | None:
    return next((edit for edit in prepared.edits if edit.id == edit_id), None)


class StudySteering:
    """Answers the requests to one sweep. For the main thread."""

    def __init__(
        self,
        parts: SweepParts,
        loop: SweepLoop,
        carrier: TrialCarrier,
        start_conditions: StartConditions,
        end_trial: Callable[[PlannedTrial, PrunedOutcome], None],
        tell: Callable[[TrialOutcome], None],
    ) -> None:
        """`end_trial` records and tells the end of a trial that waits, `tell` tells an end that is
        recorded."""
        self._parts, self._loop, self._carrier = parts, loop, carrier
        self._start_conditions, self._end_trial = start_conditions, end_trial
        self._outside, self._tell = parts.outside, tell
        self._outside.leave_free()  # the sweep takes them over
        loop.asking.outside_may_come = lambda: self._outside.may_come(loop.asking.n_trials)
        self._looked_seconds = -math.inf
        self._lines: list[str] = []
        """Lines for people since the last look."""
        self._told = set[str]()
        """Requests that wait, each told once."""
        parts.store.peers.follow_edits(self._follow)
        self._deeds: Mapping[str, Callable[[StudyRequest], str | RequestAnswer | None]] = {
            "enqueue": self._enqueue,
            "stop": self._stop,
            "pause": self._pause,
            "resume": self._resume,
            EDIT: self._edit,
            ASK: self._answer_outside,
            TELL: self._answer_outside,
        }

    def look(self, now_seconds: float) -> list[str]:
        """Answer all requests, and return a line for people on each. `now_seconds` is monotonic.

        Raises StorageError.
        """
        if now_seconds - self._looked_seconds < POLL_SECONDS or self._loop.stop is not None:
            return []
        self._looked_seconds = now_seconds
        requests = self._parts.store.requests
        pending = requests.pending()
        if pending:
            self._parts.store.peers.add_news()  # which was read before the requests
        for request in pending:
            answer = self._answer(request)
            if answer is not None:
                requests.answer(request, answer)
                self._lines.append(f"{request.kind}: {answer.text}")
            if self._loop.stop is not None:
                break
        self._start_conditions.look(now_seconds)
        self._end_leases()
        lines, self._lines = self._lines, []
        return lines

    def _end_leases(self) -> None:
        """End the leases of trials outside whose time is over. This sweep runs them if it can."""
        for number in self._outside.end_leases(time.time()):
            self._lines.append(f"trial {number}: {LEASE_ENDED_CAUSE}")
        self._run_free()

    def _run_free(self) -> None:
        for number in self._outside.leave_free():
            self._loop.enqueue(PlannedTrial(number, self._parts.study.params(number)))

    def _answer(self, request: StudyRequest) -> RequestAnswer | None:
        """Do what is asked for. None: not now, or another sweep does it."""
        if request.is_for_sweeps and request.time < self._parts.store.requests.since:
            return RequestAnswer("the sweep that it was for has ended", done=False)
        if request.kind not in self._deeds:
            return RequestAnswer("this version of automl knows no such request", done=False)
        try:
            answer = self._deeds[request.kind](request)
            return RequestAnswer(answer) if isinstance(answer, str) else answer
        except ConfigError as error:
            return RequestAnswer(str(error), done=False)
        except (KeyError, TypeError, ValueError) as error:  # no command of this version wrote it
            return RequestAnswer(f"it cannot be read ({error!r})", done=False)

    # --- what is asked for ---

    def _answer_outside(self, request: StudyRequest) -> RequestAnswer:
        asking = self._loop.asking
        answer = self._outside.answer(request, asking.n_trials, self._tell)
        asking.n_asked = max(asking.n_asked, self._parts.study.n_asked)
        self._run_free()
        return answer

    def _enqueue(self, request: StudyRequest) -> str | None:
        points: list[dict[str, Any]] = [dict(point) for point in request.arguments["points"]]
        outside = bool(request.arguments.get("outside"))
        study, n_trials = self._parts.study, self._loop.asking.n_trials
        asked = [
            EnqueuedPoint(point, f"{request.id}:{n}", outside) for n, point in enumerate(points)
        ]
        new = [point for point in asked if point.request not in study.by_request]
        if len(new) > (n_left := max(0, n_trials - study.n_asked)):
            left = f"{len(new)} more, and {n_left} of study.n_trials={n_trials} left"
            if request.time >= self._parts.store.requests.since:
                raise ConfigError(f"params: {left}: raise it, then enqueue them again.")
            if request.id not in self._told:  # nobody waits for an answer, and the points wait
                self._told.add(request.id)
                command = self._parts.prepared.how_to_go_on(n_trials=study.n_asked + len(new))
                self._lines.append(f"enqueue: {left}: they wait for a larger total: {command}")
            return None
        for trial in study.enqueue(new):
            if self._outside.only:
                self._outside.take_free(trial)
            else:
                self._loop.enqueue(PlannedTrial(trial.number, trial.params))
        if any(point.request not in study.by_request for point in asked):
            return None  # the database is away
        numbers = ", ".join(str(study.by_request[point.request]) for point in asked)
        return f"trial{'s' * (len(points) > 1)} {numbers}: tried as soon as there is room"

    def _stop(self, request: StudyRequest) -> str | None:
        number = request.arguments.get("trial")
        if number is None:
            self._loop.handle(SignalReceived(StopReason.INTERRUPTED), time.monotonic())
            grace_seconds = self._parts.config.study.grace_seconds
            return f"running trials write a checkpoint and stop, within {grace_seconds:g} s"
        prunes = request.arguments["as"] == "pruned"
        if number in self._outside.trials:
            state = TrialState.PRUNED if prunes else TrialState.INTERRUPTED
            answer = self._outside.tell(OutsideResult(number, state=state), self._tell)
            self._run_free()
            return answer.text
        if number in self._loop.running:
            self._carrier.asked_verdicts[number] = Verdict.PRUNE if prunes else Verdict.STOP
            end = "pruned" if prunes else "interrupted; the next sweep goes on with it"
            return f"at its next report trial {number} is {end}"
        paused = self._parts.study.pauses.all().get(number)
        waiting = None if paused and not prunes else self._loop.queue.withdraw(number)
        if waiting is None:
            peers = self._parts.store.peers
            if peers.has_trial(number) and (prunes or not peers.is_left(number)):
                return None  # the sweep that has the trial does it, or the one that takes it over
            raise ConfigError(f"trial={number}: {self._why_not(number)}")
        if not prunes:
            return f"trial {number}, which waits, is left to the next sweep"
        if paused is not None:
            self._end_trial(waiting.trial, PrunedOutcome(number, time.time(), *paused))
            return f"trial {number}, which was paused, is pruned"
        known = self._parts.log.record.trials.get(number)
        step = 0 if known is None else known.best_step or 0
        value = math.nan if known is None or known.best_value is None else known.best_value
        self._end_trial(waiting.trial, PrunedOutcome(number, time.time(), step, value))
        return f"trial {number}, which waited, is pruned"

    def _why_not(self, number: int) -> str:
        n_asked = self._parts.study.n_asked
        if number >= n_asked:
            return f"there is no such trial; the study has {n_asked}, from 0 on."
        if self._parts.study.pauses.has(number):
            return "it is paused, and goes on only if it is promoted; as=pruned ends it."
        if self._parts.study.is_running(number):
            return "it has stopped, and the next sweep goes on with it."
        return "it has ended, and a trial that has ended stays as it is."

    def _edit(self, request: StudyRequest) -> str | None:
        """Edit the study: what is asked for next follows the new settings, running trials go on."""
        parts = self._parts
        # It is there at once where a kill came between the edit and its answer.
        while (made := _find_edit(parts.prepared, request.id)) is None:
            before = parts.prepared = parts.prepared.with_total(self._loop.asking.n_trials)
            prepared, _ = edit_study(before, before.edits, request, parts.study.n_asked)
            self._adopt(prepared)
            if not parts.store.record_edit(prepared):  # another sweep has been quicker
                self._adopt(before)
                if not parts.store.peers.hear():
                    return None
        self._change_total()
        return "; ".join(edit_lines(made))

    def _adopt(self, prepared: PreparedStudy) -> None:
        """Ask for trials by other settings. Raises ConfigError, and nothing has changed then."""
        parts = self._parts
        parts.study.edit(prepared.rules)
        try:
            if prepared.plan.space != parts.prepared.plan.space:
                parts.executor.renew(prepared.entry)
        except ConfigError:
            parts.study.edit(parts.prepared.rules)
            raise
        parts.prepared = prepared

    def _follow(self, edit: StudyEdited) -> None:
        """Follow an edit that was recorded elsewhere. Raises ConfigError where that cannot be."""
        if _find_edit(self._parts.prepared, edit.id) is None:
            self._adopt(follow_edit(self._parts.prepared, edit))
            self._change_total()
            self._lines.append(f"edited by {edit.user}: {'; '.join(edit_lines(edit))}")

    def _change_total(self) -> None:
        asking = self._loop.asking
        asking.change_total(self._parts.prepared.edited_total or asking.n_trials)

    def _pause(self, request: StudyRequest) -> str:
        self._start_conditions.is_paused = True
        n = len(self._loop.running)
        goes_on = f"{n} running trial{'s go' if n != 1 else ' goes'} on to the end"
        return f"no trial starts from now on; {goes_on}"

    def _resume(self, request: StudyRequest) -> str:
        if not self._start_conditions.is_paused:
            raise ConfigError("the sweep is at work, and not paused.")
        self._start_conditions.is_paused = False
        return "trials start again"
