"""Decides which new trials the loop asks for, and when: as late as possible, when the sampler knows
most.

A trial is asked for when a place is free for the smallest request. One more is asked for ahead of
that if it may join a pack or pass the waiting trial, as long as no more pend than the sampler
bears.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from automl.admission.refusals import AdmissionRefusal, RefusalKind
from automl.running.loop.messages import (
    DeviceShortage,
    NoPeers,
    PeerQuestions,
    PeerSweepsObserved,
    PlannedTrial,
    QuestionAsked,
    WaitingTrial,
)
from automl.running.loop.placing import TrialPlacer
from automl.running.loop.ports import LoopPorts
from automl.running.loop.trial_queue import TrialQueue
from automl.trial import Params

LEARNING_SPACE = AdmissionRefusal(
    "waiting: one trial at a time finds out what the objective asks for", for_devices=False
)


class ParamAnswers(Protocol):
    """Answers running trials that ask for params."""

    @property
    def one_at_a_time(self) -> bool:
        """Whether no trial may start while another runs."""

    def answer(self, message: QuestionAsked) -> Params:
        """Answer a running trial. Return its params, the new one included. Raises StorageError."""


class NoParamAnswers:
    """Stands in for `ParamAnswers` if trials get all their params at the start."""

    one_at_a_time = False

    def answer(self, message: QuestionAsked) -> Params:
        raise AssertionError(f"{message.question}: no such objective asks")


@dataclass
class TrialAsker:
    """Counts the trials of the study and says why no new one is asked for. For the main thread."""

    ports: LoopPorts
    n_trials: int
    """Total number of trials of the study."""
    n_asked: int
    """Number of trials that the study has, those to be taken over included."""
    questions: ParamAnswers = field(default_factory=NoParamAnswers)
    """Answers running trials that ask for params."""
    others: PeerSweepsObserved = field(default_factory=PeerSweepsObserved)
    """Last message about the other sweeps that work on the study. By default there are none."""
    peers: PeerQuestions = field(default_factory=NoPeers)
    """Answers what is asked about the other sweeps between two messages."""
    outside_may_come: Callable[[], bool] = bool
    """Returns whether results of trials that run outside of any sweep may still be told."""
    refusal: AdmissionRefusal | None = None
    """Why no new trial is asked for now."""
    why_no_more: Callable[[], str | None] = lambda: None
    """Returns why no more trials are wanted, or None."""
    ended: str | None = None
    """Why no new trial is asked for any more though the total is not reached."""
    _exhausted: bool = False
    _in_vain: bool = False
    """The database was away when it was asked, and has not answered since."""

    @property
    def wants_new(self) -> bool:
        """Whether new trials are asked for, or those that another sweep left."""
        wanted = self.ended is None and self.n_asked < self.n_trials
        return not self._exhausted and (wanted or self.others.n_left > 0)

    @property
    def wants_more(self) -> bool:
        """Whether there is a trial to run: a new one, or a paused one that is promoted."""
        return self.wants_new or self.ports.promotions.may_promote(grows=False)

    @property
    def n_left(self) -> int:
        """Number of new trials still to be asked for."""
        return self.n_trials - self.n_asked if self.wants_new else 0

    @property
    def may_come(self) -> bool:
        """Whether another trial may come, perhaps one that another sweep leaves."""
        more = self.outside_may_come()
        return self.wants_more or self._in_vain or self.others.run or self.peers.may_run() or more

    def shortage(self, queue: TrialQueue, placing: TrialPlacer) -> DeviceShortage | None:
        """Return the shortage of devices, or None if no trial waits for a device."""
        head = queue.head
        refusal = self.refusal if head is None else head.refusal
        if refusal is None or not refusal.for_devices:
            return None
        request = placing.least if head is None else placing.request(head)
        kinds = request.kinds & placing.kinds or request.kinds
        return DeviceShortage(kinds, max(1, len(queue.queued) + self.n_left))

    def heard_of(self, others: PeerSweepsObserved) -> None:
        """Take the state of other sweeps, which may have raised the total or left trials."""
        n_asked = self.peers.add_news()
        begun_since = n_asked > self.n_asked  # `others.run` may not know of these trials yet
        self.others = replace(others, run=others.run or begun_since)
        if others.n_edits == self.peers.n_edits:  # else an edit may have lowered the total since
            self.n_trials = max(self.n_trials, others.n_trials)
        self.n_asked = max(self.n_asked, n_asked)
        self._exhausted = self._in_vain = False

    def end_if_enough(self) -> None:
        """Ask for no more trials if no more are wanted."""
        if self.wants_new and self.ended is None:
            self.ended = self.why_no_more()

    def change_total(self, n_trials: int) -> None:
        """Ask for trials up to another total; an edited space may have more trials, too, and the
        reason to ask for no more may be gone."""
        self.n_trials = n_trials
        self.ended, self._exhausted = None, False

    def refused(
        self,
        placing: TrialPlacer,
        drained: Sequence[WaitingTrial],
        n_running: int,
        now_seconds: float,
    ) -> AdmissionRefusal | None:
        """Return why no trial is asked for now though more are wanted. None if `next` may ask.

        `drained`: trials that wait for a device that may come back.
        """
        if self.questions.one_at_a_time and placing.executions:
            return LEARNING_SPACE
        smallest = placing.place(placing.least, now_seconds)
        if isinstance(smallest, AdmissionRefusal):
            if smallest.kind is not RefusalKind.NEVER:
                placing.make_room(smallest)
            return smallest
        # The pending trials run, or wait for such a device. Each further trial might wait, too,
        # until all that are left were proposed blindly.
        if drained and not self._may_pend(len(drained) + n_running, placing):
            return drained[-1].refusal
        return None

    def may_ask_ahead(self, n_pending: int, placing: TrialPlacer) -> bool:
        """Return whether one more trial may be asked for though this many wait or run."""
        if not self.wants_more or self.questions.one_at_a_time:
            return False
        return self._may_pend(n_pending, placing)

    def next(self) -> PlannedTrial | None:
        """Return the next trial: a paused one that is promoted, or else a new one, perhaps one that
        another sweep left. None if there is none."""
        promoted = self.ports.promotions.promote(grows=self.wants_new)
        if promoted is not None:
            return promoted
        self.end_if_enough()
        if not self.wants_new:
            return None
        asked = self.ports.trials.ask()
        if asked is None:
            self._exhausted, self._in_vain = True, self.peers.may_run()
            return None
        self.n_asked = max(self.n_asked, asked.number + 1)  # another sweep may have left the trial
        return asked

    def _may_pend(self, n_pending: int, placing: TrialPlacer) -> bool:
        most = self.ports.trials.n_may_pend()
        return most is None or n_pending < max(most, placing.n_side_by_side)
