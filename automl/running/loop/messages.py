"""What the main loop talks of: trials that wait or run, and the messages that reach it.

What the loop can have done: by `sweep.py` with the real parts, by the tests in virtual time.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from automl.admission.memory_caps import Caps
from automl.admission.placement_policy import Idle
from automl.admission.refusals import AdmissionRefusal
from automl.devices.device_reading import DeviceReading, Elsewhere
from automl.devices.memory_promises import MemoryPromise
from automl.measure.survey.survey_result import InconclusiveSurvey, SurveyResult
from automl.trial import (
    DeviceId,
    DeviceKind,
    MemoryPeakMeasured,
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


@dataclass(frozen=True)
class TakenOverTrial:
    """A trial that an earlier sweep left, and what happened to it there."""

    trial: PlannedTrial
    n_ran_out: int = 0
    """Times it ran out of memory."""
    deaths: int = 0
    """Processes that died under it."""
    kind: DeviceKind | None = None
    """On which it ran there; None: on none."""

    def waits(self, kind: DeviceKind | None) -> WaitingTrial:
        """It waits again, for that kind of device; None: for any."""
        is_new = self.n_ran_out == self.deaths == 0
        return WaitingTrial(
            self.trial, is_new, n_ran_out=self.n_ran_out, deaths=self.deaths, kind=kind
        )


@dataclass(frozen=True)
class PackKind:
    """What can go together in a pack."""

    key: Hashable
    n_lanes: int
    """The most trials of this kind in one pack, at least 2."""


_NOT_YET = AdmissionRefusal("waiting: not looked at yet")


@dataclass(frozen=True)
class WaitingTrial:
    """A trial that has not been admitted yet."""

    trial: PlannedTrial
    may_pack: bool = True
    """False: it trains alone."""
    refusal: AdmissionRefusal = _NOT_YET
    n_ran_out: int = 0
    """Times it ran out of memory."""
    n_alone: int = 0
    """Of them, with a device to itself, and others held as little of it as ever."""
    undisturbed: bool = False
    """It ran out with a device to itself while others held more of it: it waits until they do not,
    and lets others pass."""
    deaths: int = 0
    """Processes that died under it."""
    kind: DeviceKind | None = None
    """Of the device on which it has started: there it stays. None: it has not."""
    chosen: DeviceKind | None = None
    """For which it waits for now; None: for any."""

    @property
    def where(self) -> DeviceKind | None:
        """The kind of device that it is to go to; None: any."""
        return self.kind or self.chosen

    def may_go(self, kind: DeviceKind) -> bool:
        return self.where in (None, kind)


@dataclass(frozen=True)
class UnfitTrialFinding:
    """What is found of a trial that no device can hold."""

    cause: str
    excess: float
    """As `admission/excess.py` counts it."""
    at_least: bool = False
    """It may be more."""


@dataclass(frozen=True)
class RunningTrial:
    """A trial that runs, alone or in a lane of a pack."""

    waiting: WaitingTrial
    placement: Placement
    since_seconds: float
    request: ResourceRequest
    """Its own, or its pack's."""


@dataclass
class AdmittedExecution:
    """One admission: a trial, or a pack of them, that holds one reservation."""

    key: int
    """Number of its first trial."""
    request: ResourceRequest
    placement: Placement
    kind: PackKind | None
    members: dict[int, WaitingTrial]
    """All trials ever given to it, those that it began with first."""
    n_lanes: int = 1
    """How many it began with."""
    outcomes: dict[int, TrialOutcome] = field(default_factory=dict)
    peak_bytes: int = 0
    """The most that it was seen to hold."""
    disturbed: bool = False
    """Meanwhile others held more of its devices than at their least."""

    @property
    def live(self) -> list[WaitingTrial]:
        """Its trials that have not ended."""
        return [m for number, m in self.members.items() if number not in self.outcomes]

    def has_room_for(self, request: ResourceRequest) -> bool:
        """Whether what was reserved is enough for a pack with this request."""
        if self.placement.exclusive:
            return True
        if request.memory_bytes is None:
            return self.placement.on_host
        reserved = min(share.reservation_bytes for share in self.placement.shares)
        return request.memory_bytes <= reserved


class ExecutionStart(NamedTuple):
    """Trials that begin together as one execution."""

    group: Sequence[WaitingTrial]
    request: ResourceRequest
    placement: Placement

    @property
    def key(self) -> int:
        """The execution is known by its first trial's number."""
        return self.group[0].trial.number


@dataclass(frozen=True)
class DeviceShortage:
    """The head waits, and would start if there were more devices."""

    kinds: frozenset[DeviceKind]
    n: int
    """Trials that could start with it, itself included."""


class StopReason(enum.Enum):
    """Why no new trial is started any more."""

    INTERRUPTED = "interrupted"
    TERMINATED = "terminated"
    TIMEOUT = "timeout"
    FAILING = "failing"
    BROKEN = "broken"


# --- messages: all that can happen to the loop --------------------------------------------------


@dataclass(frozen=True)
class TrialEnded:
    """A trial's execution came to its outcome."""

    outcome: TrialOutcome


@dataclass(frozen=True)
class TrialMemoryMeasured:
    """What a running trial, or the pack that it is in, was seen to hold."""

    peak: MemoryPeakMeasured


@dataclass(frozen=True)
class QuestionAsked:
    """A running trial asks, and its thread waits for the reply."""

    question: Question
    reply: Callable[[Reply], None]


@dataclass(frozen=True)
class TrialSurveyed:
    """What a survey saw of a trial that waits."""

    trial: PlannedTrial
    found: SurveyResult | InconclusiveSurvey


@dataclass(frozen=True)
class CpuProbed:
    """The CPU was timed."""

    steps: tuple[tuple[Params, float], ...] = ()
    """Params, and seconds of a step of a trial with these."""


@dataclass(frozen=True)
class ReservationReleased:
    """An execution is over, and its reservation was given back."""

    key: int
    """Number of its first trial."""


@dataclass(frozen=True)
class DevicesRead:
    reading: DeviceReading


@dataclass(frozen=True)
class SignalReceived:
    reason: StopReason


@dataclass(frozen=True)
class SweepFailed:
    """The study cannot be recorded any more, or our own code failed: running trials are stopped."""

    error: BaseException


@dataclass(frozen=True)
class PeerSweepsObserved:
    """What other sweeps of the study do, as far as is known; it says so once a second."""

    n_trials: int = 0
    """What the total was raised to; 0: not known."""
    n_left: int = 0
    """Trials that nobody holds any more: they are asked for as new ones are."""
    run: bool = False
    """Trials have not ended that are not this sweep's."""
    held: Callable[[int], bool] = lambda trial: True
    """Whether a trial that waits is still this sweep's."""
    may_run: Callable[[], bool] = bool
    """Whether their trials may run though `run` does not know: they cannot be heard of now, nor
    anything be asked for, or trials were heard of since that are theirs."""
    hear: Callable[[], int] = int
    """Takes in what they did; returns how many trials the study has."""


@dataclass(frozen=True)
class TimePassed:
    """Time passed."""


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
    | TimePassed
)


class LoopPorts(Protocol):
    """What the loop can have done."""

    def ask(self) -> PlannedTrial | None:
        """A new trial, or None when the search space is exhausted."""

    def n_may_pend(self) -> int | None:
        """How many trials may be asked for and not ended, without harm to the sampler; None: any
        number."""

    def kind_of(self, trial: PlannedTrial, *, on_host: bool) -> PackKind | None:
        """What it can go together with on such a device; None: it trains alone there."""

    def show_promises(self, promises: Sequence[MemoryPromise]) -> None:
        """Show other sweeps what NVML does not show yet."""

    def promised_elsewhere(self, begun_seconds: float) -> Elsewhere:
        """What other sweeps show now, and a reading begun then may have missed."""

    def submit(self, trials: Sequence[PlannedTrial], placement: Placement, n_lanes: int) -> None:
        """Start them in the pool as one execution, known by its first trial's number."""

    def feed(self, key: int, trial: PlannedTrial) -> None:
        """Give a running pack another trial, for a lane that came free."""

    def tell(self, outcome: TrialOutcome) -> None:
        """Give the study an outcome that the executor saw: finished, pruned or failed."""

    def fail(self, trial: PlannedTrial, cause: str) -> None:
        """Record and tell a failure that was decided here."""

    def too_large(self, trial: PlannedTrial, found: UnfitTrialFinding) -> None:
        """The same of a trial that no device can hold: it is pruned."""

    def stop_trials(self) -> None:
        """Running trials write a checkpoint at their next report and stop."""

    def is_surveying(self, trial: PlannedTrial) -> bool:
        """Whether what the trial will want of memory is being found out: a message tells it."""

    def surveyed(self, surveyed: TrialSurveyed) -> None:
        """It was; requests know it from now on."""

    def cap_memory(self, caps: Caps) -> None:
        """From now on processes take no more of their devices than that; for executions that are
        not named what they were told last stays."""

    def n_steps(self) -> Mapping[int, int]:
        """Steps of training that the process of each execution has taken, by the execution's key;
        who is not named does not tell."""

    def idle(self) -> Idle:
        """Processes kept warm for trials to come."""

    def end_idle(self, devices: Collection[DeviceId]) -> None:
        """Those of these devices end, and give their memory back."""
