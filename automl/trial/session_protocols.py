"""How a trial is carried out: who hears of it, what it asks for, what a process trains with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from automl.trial.events import TrialEvent
from automl.trial.placement import Placement
from automl.trial.trial_spec import ParamValue, SpaceEntry, TrialSpec, Verdict

OnEvent: TypeAlias = Callable[[TrialEvent], Verdict]
"""Takes an event of a trial, in its own thread; returns the verdict known by then."""


OnEvents: TypeAlias = Callable[[Sequence[TrialEvent]], Mapping[int, Verdict]]
"""Takes events of one execution in their order; reports given together are judged together.
Returns the verdicts by trial number; a trial that is not named goes on."""


def run_one_by_one(on_events: OnEvents) -> OnEvent:
    """Who hears of each event of a single trial by itself."""
    return lambda event: on_events([event]).get(event.trial, Verdict.GO_ON)


# --- what a trial asks for while it runs --------------------------------------------------------


@dataclass(frozen=True)
class ParamQuestion:
    """An objective written for Optuna wants a value for a param that its trial has not yet."""

    trial: int
    name: str
    entry: SpaceEntry


@dataclass(frozen=True)
class ParamsNotSuggested:
    """A trial came to its end, and its objective never asked for these of its params."""

    trial: int
    names: tuple[str, ...]


Question: TypeAlias = "ParamQuestion | ParamsNotSuggested"


@dataclass(frozen=True)
class ParamAnswer:
    """The value of a param: the same whenever the trial asks again, in another process too."""

    value: ParamValue = None


@dataclass(frozen=True)
class ParamRefusal:
    """There is no such value; the text says the rule and the remedy."""

    cause: str


@dataclass(frozen=True)
class SweepStopping:
    """The sweep stops: the trial is interrupted, and asks again when it goes on."""


Reply: TypeAlias = "ParamAnswer | ParamRefusal | SweepStopping"


class SweepChannel(Protocol):
    """What a running trial asks its sweep. Each call waits for the answer."""

    def ask(self, question: Question) -> Reply:
        """The sweep's answer."""

    def verdict(self, trial: int) -> Verdict:
        """On all that the trial has reported; waited for where a report can end it."""


class TrialSource(Protocol):
    """Where an executor gets its trials from."""

    n_lanes: int
    """How many trials may run together as one pack; 1: one trial, alone."""

    def next(self) -> TrialSpec | None:
        """The first trial, then another of the same kind, or None when there is none now."""


class AnsweringTrialSource(TrialSource, Protocol):
    """A feed that knows what its trials ask for."""

    def ahead(self) -> Sequence[TrialSpec]:
        """What `next` will give, as far as that is known."""

    def answer(self, question: Question) -> Reply:
        """From any thread; waits for the main thread, which alone draws params."""


class TrialIsolation(Protocol):
    """Keeps what runs code of the user's apart from what runs in the same process after it."""

    @property
    def spent(self) -> bool:
        """Whether the process is fit for no other trial."""

    def __call__(self) -> AbstractContextManager[None]:
        """Around a trial, or a pack, in its own thread. Raises nothing of its own."""


class ObjectiveSession(Protocol):
    """An objective made ready once in a process, which then trains many trials there."""

    def run(
        self,
        spec: TrialSpec,
        placement: Placement,
        on_event: OnEvent,
        line: SweepChannel | None = None,
    ) -> None:
        """Carry out one trial; its last event is an `TrialOutcome`. Raises nothing a trial can
        cause.

        Without a line it has the params that it begins with, and no others.
        """

    def run_pack(self, feed: TrialSource, placement: Placement, on_events: OnEvents) -> None:
        """Train up to `feed.n_lanes` trials at a time as one batched model, until none is left.

        Each trial taken from the feed ends with an `TrialOutcome`; those that must go on alone with
        `InterruptedOutcome(pack_dissolved=True)`.
        """

    def held_bytes(self) -> Sequence[int]:
        """Memory that this process holds now of each device it sees, in their order, caches
        included; empty where it uses none."""

    @property
    def n_steps(self) -> int:
        """Steps of training that this process has taken so far; any thread."""

    @property
    def programs_bytes(self) -> int:
        """Main memory that programs hold which this process has started; any thread."""

    def cap_memory(self, caps_bytes: Sequence[int]) -> None:
        """Take no more than that of each device, in their order; 0: no cap. Any thread."""

    def keep_apart(self, apart: TrialIsolation) -> None:
        """Enter it from now on around each trial, or pack, that runs code of the user's here; where
        it is spent, none is begun any more."""

    def give_back_memory(self) -> None:
        """Empty caches between trials."""

    def close(self) -> None:
        """No trial runs any more in this process, which goes on."""


@dataclass(frozen=True)
class ProcessEntry:
    """What a (possibly other) process needs to train: `module:function` and its argument.

    The function takes `config` and returns a `ObjectiveSession`. Both sides see plain, picklable
    values, so
    that executors need not know what training is.
    """

    target: str
    config: object = field(default=None)
