"""What the main loop talks of: trials that wait or run, and the messages that reach it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from automl.admission.reasons import Refusal
from automl.devices.device import Reading
from automl.training.survey.found import Survey, Unsurveyed
from automl.trial import (
    DeviceKind,
    MemoryPeak,
    Outcome,
    Params,
    Placement,
    Question,
    Reply,
    Request,
)


@dataclass(frozen=True)
class Asked:
    """A trial that the study wants run: a new one, or one taken over."""

    number: int
    params: Params


@dataclass(frozen=True)
class TakenOver:
    """A trial that an earlier sweep left, and what happened to it there."""

    trial: Asked
    n_ran_out: int = 0
    """Times it ran out of memory."""
    deaths: int = 0
    """Processes that died under it."""
    kind: DeviceKind | None = None
    """On which it ran there; None: on none."""

    def waits(self, kind: DeviceKind | None) -> Waiting:
        """It waits again, for that kind of device; None: for any."""
        is_new = self.n_ran_out == self.deaths == 0
        return Waiting(self.trial, is_new, n_ran_out=self.n_ran_out, deaths=self.deaths, kind=kind)


@dataclass(frozen=True)
class Kind:
    """What can go together in a pack."""

    key: Hashable
    n_lanes: int
    """The most trials of this kind in one pack, at least 2."""


_NOT_YET = Refusal("waiting: not looked at yet")


@dataclass(frozen=True)
class Waiting:
    """A trial that has not been admitted yet."""

    trial: Asked
    may_pack: bool = True
    """False: it trains alone."""
    refusal: Refusal = _NOT_YET
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
class DoesNotFit:
    """What is found of a trial that no device can hold."""

    cause: str
    excess: float
    """As `admission/excess.py` counts it."""
    at_least: bool = False
    """It may be more."""


@dataclass(frozen=True)
class Running:
    """A trial that runs, alone or in a lane of a pack."""

    waiting: Waiting
    placement: Placement
    since_seconds: float
    request: Request
    """Its own, or its pack's."""


@dataclass
class Execution:
    """One admission: a trial, or a pack of them, that holds one reservation."""

    key: int
    """Number of its first trial."""
    request: Request
    placement: Placement
    kind: Kind | None
    members: dict[int, Waiting]
    """All trials ever given to it, those that it began with first."""
    n_lanes: int = 1
    """How many it began with."""
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    peak_bytes: int = 0
    """The most that it was seen to hold."""
    disturbed: bool = False
    """Meanwhile others held more of its devices than at their least."""

    @property
    def live(self) -> list[Waiting]:
        """Its trials that have not ended."""
        return [m for number, m in self.members.items() if number not in self.outcomes]

    def has_room_for(self, request: Request) -> bool:
        """Whether what was reserved is enough for a pack with this request."""
        if self.placement.exclusive:
            return True
        if request.memory_bytes is None:
            return self.placement.on_host
        reserved = min(share.reservation_bytes for share in self.placement.shares)
        return request.memory_bytes <= reserved


class Start(NamedTuple):
    """Trials that begin together as one execution."""

    group: Sequence[Waiting]
    request: Request
    placement: Placement

    @property
    def key(self) -> int:
        """The execution is known by its first trial's number."""
        return self.group[0].trial.number


@dataclass(frozen=True)
class Lack:
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
class Ended:
    """A trial's execution came to its outcome."""

    outcome: Outcome


@dataclass(frozen=True)
class Measured:
    """What a running trial, or the pack that it is in, was seen to hold."""

    peak: MemoryPeak


@dataclass(frozen=True)
class Asks:
    """A running trial asks, and its thread waits for the reply."""

    question: Question
    reply: Callable[[Reply], None]


@dataclass(frozen=True)
class Surveyed:
    """What a survey saw of a trial that waits."""

    trial: Asked
    found: Survey | Unsurveyed


@dataclass(frozen=True)
class Probed:
    """The CPU was timed."""

    steps: tuple[tuple[Params, float], ...] = ()
    """Params, and seconds of a step of a trial with these."""


@dataclass(frozen=True)
class Released:
    """An execution is over, and its reservation was given back."""

    key: int
    """Number of its first trial."""


@dataclass(frozen=True)
class DevicesRead:
    reading: Reading


@dataclass(frozen=True)
class Signalled:
    reason: StopReason


@dataclass(frozen=True)
class Broke:
    """The study cannot be recorded any more, or our own code failed: running trials are stopped."""

    error: BaseException


@dataclass(frozen=True)
class Others:
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
class Tick:
    """Time passed."""


Message: TypeAlias = (
    Ended
    | Measured
    | Asks
    | Surveyed
    | Probed
    | Released
    | DevicesRead
    | Signalled
    | Broke
    | Others
    | Tick
)
