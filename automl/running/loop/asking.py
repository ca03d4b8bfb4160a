"""Decides which new trials the loop asks for, and when: as late as possible, when the sampler knows
most.

A trial is asked for when a place is free for the smallest request. One more is asked for ahead of
that if it may join a pack or pass the waiting trial, as long as no more pend than the sampler
bears.

`ParamQuestions` answers trials whose objective is written for Optuna. Until it is known which
params such an objective asks for, its trials run one at a time: each is drawn with the findings of
the earlier ones.
"""

from __future__ import annotations

import heapq
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from automl.admission.refusals import AdmissionRefusal, RefusalKind
from automl.config import StudyConfig
from automl.errors import ConfigError
from automl.record.event_log import EventLog
from automl.record.texts import duration_text
from automl.running.loop.messages import (
    DeviceShortage,
    LoopPorts,
    NoPeers,
    PeerQuestions,
    PeerSweepsObserved,
    PlannedTrial,
    QuestionAsked,
    WaitingTrial,
)
from automl.running.loop.placing import TrialPlacer
from automl.running.loop.trial_queue import TrialQueue
from automl.search.param_suggestions import N_ALIKE_TRIALS, ParamSuggester
from automl.search.study import Study
from automl.trial import (
    ParamAnswer,
    ParamQuestion,
    ParamRefusal,
    Params,
    ParamsNotSuggested,
    Reply,
    SweepStopping,
)

LEARNING_SPACE = AdmissionRefusal(
    "waiting: one trial at a time finds out what the objective asks for", for_devices=False
)


class NoParamQuestions:
    """Stands in for `ParamQuestions` if trials get all their params at the start."""

    one_at_a_time = False
    """Whether no trial may start while another runs."""

    def answer(self, message: QuestionAsked) -> Params:
        raise AssertionError(f"{message.question}: no such objective asks")

    def found(self, *, at_end: bool = False) -> Iterator[str]:
        """Yield nothing, since no space has to be found."""
        yield from ()


@dataclass
class ParamQuestions:
    """Answers trials that ask for params. For the main thread."""

    study: Study
    suggesting: ParamSuggester
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        found = self.suggesting.found_space
        self._printed_shape = found.shape() if found.is_stable else None
        """The shape of the space that was last printed, by this sweep or an earlier one."""

    @property
    def one_at_a_time(self) -> bool:
        """Whether no trial may start while another runs."""
        return not self.suggesting.found_space.is_stable

    def answer(self, message: QuestionAsked) -> Params:
        """Answer a running trial. Return its params, the new one included. Raises StorageError."""
        try:
            reply = self._reply(message.question)
        except ConfigError as error:
            reply = ParamRefusal(str(error))
        except BaseException:
            message.reply(SweepStopping())  # the trial waits; the next sweep takes it over
            raise
        message.reply(reply)
        for line in self.suggesting.differences():
            self.say(line)
        return self.study.params(message.question.trial)

    def found(self, *, at_end: bool = False) -> Iterator[str]:
        """Yield the space that was found as YAML lines: once it is known, and at the end if it has
        grown since or was not known before."""
        found = self.suggesting.found_space
        is_news = (
            found.shape() != self._printed_shape
            if at_end
            else found.is_stable and self._printed_shape is None
        )
        if not is_news or not found.params:
            return
        self._printed_shape = found.shape()
        how = f"seen alike in {N_ALIKE_TRIALS} trials" if found.is_stable else "so far"
        yield f"what the objective asks for, {how}:"
        yield from (f"  {line}" for line in found.lines())

    def _reply(self, question: ParamQuestion | ParamsNotSuggested) -> Reply:
        if isinstance(question, ParamQuestion):
            return ParamAnswer(self.study.suggest(question))
        self.study.not_suggested(question)
        return ParamAnswer()


MIN_TRIALS_FOR_GAIN = 20
"""Number of trials with a value from which on the gain of further ones is estimated."""
N_BEST_FOR_GAIN = 4
"""Number of best values from which the tail of the values is estimated. Over simulated studies the
expected gain then was above the mean of the gains that came (experiments/022-search)."""


def expected_gain(keys: Sequence[float]) -> float | None:
    """Return by how much as many trials again are expected to lower the best key.

    `keys` are those of the trials so far, in their order; None for too few. The gain is the larger
    of two: what the second half of the trials brought, since samplers learn; and what as many
    random trials bring where the values have an exponential tail, ln 2 times its mean. That mean is
    the mean distance of the best values to the next one (Rényi, 1953; Pickands, 1975, Statistical
    Inference Using Extreme Order Statistics). Where values have a least one, the tail is shorter,
    and the true gain smaller.
    """
    if len(keys) < MIN_TRIALS_FOR_GAIN:
        return None
    *best, other = heapq.nsmallest(N_BEST_FOR_GAIN + 1, keys)
    tail = math.log(2) * statistics.fmean(other - key for key in best)
    return max(tail, min(keys[: len(keys) // 2]) - min(keys))


class GainRule:
    """Says when further trials are not worth their cost (`study.stop_gain`)."""

    def __init__(
        self, study: Study, config: StudyConfig, log: EventLog, say: Callable[[str], None]
    ) -> None:
        self._study, self._config, self._log, self._say = study, config, log, say
        self._next_n_keys = 0

    def look(self) -> str | None:
        """Return, and say, why no more trials are worth it; None: they are, or nobody has asked.

        The values are looked at each time that there are a twentieth more.
        """
        least = self._config.stop_gain
        keys = [] if least is None else self._study.pauses.comparable_keys()
        if least is None or len(keys) < self._next_n_keys:
            return None
        self._next_n_keys = len(keys) + max(1, len(keys) // 20)
        gain = expected_gain(keys)
        if gain is None or gain >= least:
            return None
        seconds = self._log.device_seconds(time.time())
        reason = (
            f"as many trials again ({len(keys)}, {duration_text(seconds)} of device time) are "
            f"expected to improve {self._config.metric} by {gain:.2g}, less than "
            f"study.stop_gain={least:g}"
        )
        self._say(f"no more trials: {reason}")
        return reason


@dataclass
class TrialAsker:
    """Counts the trials of the study and says why no new one is asked for. For the main thread."""

    ports: LoopPorts
    n_trials: int
    """Total number of trials of the study."""
    n_asked: int
    """Number of trials that the study has, those to be taken over included."""
    questions: ParamQuestions | NoParamQuestions = field(default_factory=NoParamQuestions)
    """Answers running trials that ask for params."""
    others: PeerSweepsObserved = field(default_factory=PeerSweepsObserved)
    """Last message about the other sweeps that work on the study. By default there are none."""
    peers: PeerQuestions = field(default_factory=NoPeers)
    """Answers what is asked about the other sweeps between two messages."""
    outside_may_come: Callable[[], bool] = bool
    """Returns whether results of trials that run outside of any sweep may still be told."""
    refusal: AdmissionRefusal | None = None
    """Why no new trial is asked for now."""
    gain: Callable[[], str | None] = lambda: None
    """Returns why further trials are not worth their cost, or None."""
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
        return self.wants_new or self.ports.may_promote(grows=False)

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

    def look_at_gain(self) -> None:
        """Ask for no more trials if they are not worth their cost."""
        if self.wants_new and self.ended is None:
            self.ended = self.gain()

    def change_total(self, n_trials: int) -> None:
        """Ask for trials up to another total; an edited space may have more trials, too."""
        self.n_trials = n_trials
        self._exhausted = False

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
        promoted = self.ports.promote(grows=self.wants_new)
        if promoted is not None:
            return promoted
        asked = self.ports.ask() if self.wants_new else None
        if asked is None:
            self._exhausted, self._in_vain = True, self.peers.may_run()
            return None
        self.n_asked = max(self.n_asked, asked.number + 1)  # another sweep may have left the trial
        return asked

    def _may_pend(self, n_pending: int, placing: TrialPlacer) -> bool:
        most = self.ports.n_may_pend()
        return most is None or n_pending < max(most, placing.n_side_by_side)
