"""The vocabulary of the main loop: waiting and running trials, and messages to the loop.

Nothing is decided here. What the loop has done outside of itself is in `ports.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, TypeAlias

from automl.admission.accounting.account import DeviceAccount
from automl.admission.refusals import AdmissionRefusal
from automl.devices.device_reading import DeviceReading
from automl.measure.survey.survey_result import InconclusiveSurvey, SurveyResult
from automl.record.signal_receiver import INTERRUPTED_CODE, TERMINATED_CODE
from automl.trial import (
    DeviceKind,
    MemoryPeakMeasured,
    PackKind,
    Params,
    Placement,
    Question,
    Reply,
    ResourceRequest,
    TrialOutcome,
)


@dataclass(frozen=True)
class PlannedTrial:
    """A trial that the study wants run: a new one, or one taken over."""

    number: int
    params: Params


_NOT_YET = AdmissionRefusal("waiting: not looked at yet")


@dataclass(frozen=True)
class WaitingTrial:
    """A trial that has not been admitted yet."""

    trial: PlannedTrial
    may_pack: bool = True
    """Whether the trial may join a pack. False if it trains alone."""
    refusal: AdmissionRefusal = _NOT_YET
    n_ran_out: int = 0
    """Number of times the trial ran out of memory."""
    n_alone: int = 0
    """Number of times it ran out with a device to itself, while others held as little as ever."""
    undisturbed: bool = False
    """Whether the trial ran out of memory with a device to itself while others held more of it than
    at their least. The trial lets others pass until they hold less."""
    deaths: int = 0
    """Number of processes that died under the trial."""
    kind: DeviceKind | None = None
    """Kind of device on which the trial has started, and stays. None if it never started."""
    chosen: DeviceKind | None = None
    """Kind of device for which the trial waits now. None for any kind."""

    @property
    def where(self) -> DeviceKind | None:
        """Kind of device on which the trial is to run. None for any kind."""
        return self.kind or self.chosen

    def may_go(self, kind: DeviceKind) -> bool:
        return self.where in (None, kind)


@dataclass(frozen=True)
class UnfitTrialFinding:
    """Describes why no device can hold a trial."""

    cause: str
    excess: float
    """Missing memory, as `admission/refusals.py` counts it."""
    at_least: bool = False
    """Whether the excess may be larger than the figure."""


@dataclass
class AdmittedExecution:
    """An admitted trial, or an admitted pack of trials, that holds one reservation."""

    key: int
    """Number of the execution in its sweep. A trial that was paused may have left one that is not
    over yet."""
    request: ResourceRequest
    placement: Placement
    kind: PackKind | None
    members: dict[int, WaitingTrial]
    """All trials ever given to the execution, beginning with its first ones."""
    n_lanes: int = 1
    """Number of trials that the execution began with."""
    since_seconds: dict[int, float] = field(default_factory=dict)
    """When each trial was given to the execution (monotonic)."""
    outcomes: dict[int, TrialOutcome] = field(default_factory=dict)
    peak_bytes: int = 0
    """Most memory that the execution was seen to hold."""
    disturbed: bool = False
    """Whether others held more of its devices meanwhile than at their least."""

    @property
    def live(self) -> list[WaitingTrial]:
        """Trials of the execution that have not ended."""
        return [m for number, m in self.members.items() if number not in self.outcomes]

    def give(self, waiting: WaitingTrial, now_seconds: float) -> None:
        """Note that the execution gets this trial now. It may have had it before its pause."""
        number = waiting.trial.number
        self.members[number], self.since_seconds[number] = waiting, now_seconds
        self.outcomes.pop(number, None)

    def know_params(self, number: int, params: Params) -> None:
        """Store params that a running trial has asked for, so that its memory is learned for them
        and it asks for enough if it runs again."""
        trial = PlannedTrial(number, params)
        self.members[number] = replace(self.members[number], trial=trial)

    def has_room_for(self, request: ResourceRequest) -> bool:
        """Return whether the reservation is enough for a pack with this request."""
        if self.placement.exclusive:
            return True
        if request.memory_bytes is None:
            return self.placement.on_host
        reserved = min(share.reservation_bytes for share in self.placement.shares)
        return request.memory_bytes <= reserved


class ExecutionStart(NamedTuple):
    """Trials that begin together as one execution, with their request and placement."""

    group: Sequence[WaitingTrial]
    request: ResourceRequest
    placement: Placement
    key: int = -1
    """Key of the execution, which it gets as it starts."""


@dataclass(frozen=True)
class DeviceShortage:
    """Says that the head waits, and would start if there were more devices."""

    kinds: frozenset[DeviceKind]
    n: int
    """Number of trials that could start on more devices, the head included."""


@dataclass(frozen=True)
class LoopSnapshot:
    """The state of the loop at one moment, for those that show it, stop trials, or end the
    sweep."""

    running: Mapping[int, AdmittedExecution]
    """Execution of each running trial, by the trial's number."""
    queued: Sequence[WaitingTrial]
    deferred: Sequence[WaitingTrial]
    """Trials that let all others pass because of a failed device or memory of other users."""
    n_trials: int
    """Total number of trials of the study."""
    asking_refusal: AdmissionRefusal | None = None
    """Why no new trial is asked for now."""
    asking_ended: str | None = None
    """Why no new trial is asked for any more though the total is not reached."""
    is_held: bool = False
    """Whether no trial may start now, whatever the devices have."""
    shortage: DeviceShortage | None = None
    """The shortage of devices. None if no trial waits for a device."""
    reading: DeviceReading | None = None
    """The last reading of the devices."""
    accounts: Sequence[DeviceAccount] = ()
    """The accounts of the devices by the last reading."""
    memory: str | None = None
    """The line about memory for the end of the sweep."""
    stop: StopReason | None = None
    error: BaseException | None = None
    last_failure: str | None = None
    is_hopeless: bool = False
    """Whether any other trial would fail as the last one did."""
    """Why the last trial that failed, or that fits on no device, came to that end."""


class StopReason(enum.Enum):
    """The reasons why no new trial is started any more."""

    INTERRUPTED = "interrupted"
    TERMINATED = "terminated"
    TIMEOUT = "timeout"
    FAILING = "failing"
    BROKEN = "broken"


EXIT_CODES = {
    StopReason.INTERRUPTED: INTERRUPTED_CODE,
    StopReason.TERMINATED: TERMINATED_CODE,
}
"""Exit codes of sweeps that a signal stopped."""


# --- messages: all that can happen to the loop --------------------------------------------------


@dataclass(frozen=True)
class TrialEnded:
    """Says that a trial's execution came to its outcome."""

    outcome: TrialOutcome


@dataclass(frozen=True)
class TrialMemoryMeasured:
    """Says how much memory a running trial, or its pack, was seen to hold."""

    peak: MemoryPeakMeasured


@dataclass(frozen=True)
class QuestionAsked:
    """Carries the question of a running trial, whose thread waits for the reply."""

    question: Question
    reply: Callable[[Reply], None]


@dataclass(frozen=True)
class TrialSurveyed:
    """Says what a survey found out about a waiting trial."""

    trial: PlannedTrial
    found: SurveyResult | InconclusiveSurvey


@dataclass(frozen=True)
class CpuProbed:
    """Says that the CPU was timed."""

    steps: tuple[tuple[Params, float], ...] = ()
    """Pairs of trial params and the seconds of a step of a trial with these params."""


@dataclass(frozen=True)
class ReservationReleased:
    """Says that an execution is over and that its reservation was given back."""

    key: int
    """Key of the execution."""


@dataclass(frozen=True)
class DevicesRead:
    reading: DeviceReading


@dataclass(frozen=True)
class SignalReceived:
    reason: StopReason


@dataclass(frozen=True)
class SweepFailed:
    """Says that the study cannot be recorded any more, or that our own code failed. Running trials
    are stopped."""

    error: BaseException


@dataclass(frozen=True)
class PeerSweepsObserved:
    """Says what other sweeps of the study do, as far as is known. It comes once a second."""

    n_trials: int = 0
    """New total of trials of the study. 0 if it is not known."""
    n_left: int = 0
    """Number of trials that no sweep holds any more. The loop asks for them like new ones."""
    run: bool = False
    """Whether trials of other sweeps have not ended."""
    n_edits: int = 0
    """Number of edits of the study after which it has `n_trials`."""


@dataclass(frozen=True)
class TrialStartsHeld:
    """Says why no new trial starts from now on, or that trials may start again."""

    refusal: AdmissionRefusal | None


@dataclass(frozen=True)
class TimePassed:
    """Lets the loop act on the time alone."""


LoopMessage: TypeAlias = (
    TrialEnded
    | TrialMemoryMeasured
    | QuestionAsked
    | TrialSurveyed
    | CpuProbed
    | ReservationReleased
    | DevicesRead
    | SignalReceived
    | SweepFailed
    | PeerSweepsObserved
    | TrialStartsHeld
    | TimePassed
)


class PeerQuestions(Protocol):
    """What the loop asks of the other sweeps of its study, between two messages about them."""

    @property
    def n_edits(self) -> int:
        """Number of edits of the study that this sweep follows."""

    def is_lost(self, trial: int) -> bool:
        """Return whether another sweep has taken a trial of this sweep. For any thread."""

    def may_run(self) -> bool:
        """Return whether trials of other sweeps may run though the last message saw none. They may
        if the database cannot be asked now, or if new trials of theirs were read since."""

    def add_news(self) -> int:
        """Take in what was read of other sweeps, an edit included. Return how many trials the study
        has."""


class NoPeers:
    """Answers `PeerQuestions` for a study on which one sweep works."""

    n_edits = 0

    def is_lost(self, trial: int) -> bool:
        """Return False, since no other sweep takes trials."""
        return False

    def may_run(self) -> bool:
        """Return False, since every trial is this sweep's."""
        return False

    def add_news(self) -> int:
        """Return 0, since nobody else asks for trials."""
        return 0
