"""Defines how a trial is run: who receives its events, what it asks its sweep, what a process
needs.

These are protocols and plain messages. `automl/execution/` and `automl/objectives/` implement them.

Between a running trial and a logging library that its objective uses, such as MLflow, the code that
runs the trial offers a `LoggingTrial`. The code that replaces the library (a `LoggingRedirect`)
passes on what is logged, and closes what the objective leaves open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

from automl.trial.events import LoggedPoint, TrialEvent
from automl.trial.placement import Placement
from automl.trial.trial_spec import Params, ParamValue, SpaceEntry, TrialSpec, Verdict

OnEvent: TypeAlias = Callable[[TrialEvent], Verdict]
"""Takes an event of a trial, in the trial's own thread; returns the verdict known by then."""


OnEvents: TypeAlias = Callable[[Sequence[TrialEvent]], Mapping[int, Verdict]]
"""Takes events of one execution in their order; reports passed together are judged together.
Returns the verdicts by trial number; a trial without a verdict goes on."""


def single_event_handler(on_events: OnEvents) -> OnEvent:
    """Return a handler of single events that passes each to `on_events` by itself."""
    return lambda event: on_events([event]).get(event.trial, Verdict.GO_ON)


# --- what a trial asks for while it runs --------------------------------------------------------


@dataclass(frozen=True)
class ParamQuestion:
    """Asks for a param that the trial does not have yet, for an objective written for Optuna."""

    trial: int
    name: str
    entry: SpaceEntry


@dataclass(frozen=True)
class ParamsNotSuggested:
    """Tells that a trial has ended and its objective never asked for these of its params."""

    trial: int
    names: tuple[str, ...]


Question: TypeAlias = "ParamQuestion | ParamsNotSuggested"


@dataclass(frozen=True)
class ParamAnswer:
    """The value of a param, which stays the same whenever the trial asks again."""

    value: ParamValue = None


@dataclass(frozen=True)
class ParamRefusal:
    """Tells that a param has no such value; `cause` gives the rule and the remedy."""

    cause: str


@dataclass(frozen=True)
class SweepStopping:
    """Tells that the sweep stops: the trial is interrupted, and asks again when it goes on."""


Reply: TypeAlias = "ParamAnswer | ParamRefusal | SweepStopping"


class SweepChannel(Protocol):
    """Carries the questions of a running trial to its sweep. Each call waits for the answer."""

    def ask(self, question: Question) -> Reply:
        """Return the sweep's answer to a question."""

    def verdict(self, trial: int) -> Verdict:
        """Return the verdict on everything that the trial has reported. Wait for it where a report
        can end the trial."""


class TrialSource(Protocol):
    """Gives an executor the trials of one execution."""

    n_lanes: int
    """Number of trials that may run together as one pack; 1: one trial, alone."""

    def next(self) -> TrialSpec | None:
        """Return the first trial, then another of the same kind, or None when there is none now."""


class ExecutionFeed(TrialSource, Protocol):
    """A `TrialSource` that also answers the questions of its trials."""

    key: int
    """Key of the execution."""

    def ahead(self) -> Sequence[TrialSpec]:
        """Return the trials that `next` will return, as far as they are known."""

    def answer(self, question: Question) -> Reply:
        """Return the answer to a question, after the main thread has given it. For any thread."""


class TrialIsolation(Protocol):
    """Separates what runs user code from what runs in the same process after it."""

    @property
    def process_is_reusable(self) -> bool:
        """Whether the process is fit for another trial: all that a trial changed is put back."""

    def __call__(self) -> AbstractContextManager[None]:
        """Isolate a trial, or a pack, that runs inside in its own thread. Raises nothing itself."""


class ObjectiveSession(Protocol):
    """An objective that was prepared once in a process, which then trains many trials there."""

    def run(
        self,
        spec: TrialSpec,
        placement: Placement,
        on_event: OnEvent,
        line: SweepChannel | None = None,
    ) -> None:
        """Run one trial, whose last event is a `TrialOutcome`. Raises nothing that a trial can
        cause.

        Without a `line` the trial has the params that it starts with, and no others.
        """

    def run_pack(self, feed: TrialSource, placement: Placement, on_events: OnEvents) -> None:
        """Train up to `feed.n_lanes` trials at a time as one batched model, until none is left.

        Each trial taken from the feed ends with a `TrialOutcome`; a trial that must go on alone
        ends with `InterruptedOutcome(pack_dissolved=True)`.
        """

    def held_bytes(self) -> Sequence[int]:
        """Return the memory that this process holds now on each device that it sees, caches
        included.

        The order is that of the devices; the result is empty where the process uses none.
        """

    @property
    def n_steps(self) -> int:
        """Number of training steps that this process has taken so far; any thread may ask."""

    @property
    def programs_bytes(self) -> int:
        """Main memory of the programs that this process has started; any thread may ask."""

    def cap_memory(self, caps_bytes: Sequence[int]) -> None:
        """Take no more than this much of each device, in the order of the devices.

        0 means no cap. Any thread may call it.
        """

    def keep_apart(self, apart: TrialIsolation) -> None:
        """Enter `apart` from now on around each trial, or pack, that runs user code here.

        Once the process is not reusable, no further trial is started.
        """

    def give_back_memory(self) -> None:
        """Empty the caches between trials."""

    def close(self) -> None:
        """Release what the session holds. The process goes on, and runs no trial any more."""


@dataclass(frozen=True)
class ProcessEntry:
    """What a process, possibly another one, needs to train: `module:function` and its argument.

    The function takes `config` and returns an `ObjectiveSession`. Both sides see plain, picklable
    values, so executors need not know what training is.
    """

    target: str
    config: object = field(default=None)


class LoggingTrial(Protocol):
    """A running trial, as the library sees it; any thread of its process may use it."""

    @property
    def number(self) -> int: ...

    @property
    def params(self) -> Params:
        """Return the trial's params, which are values from the search space."""

    @property
    def folder(self) -> Path:
        """Return the folder for artifacts; the first writer creates it."""

    def log(
        self,
        points: Sequence[LoggedPoint] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Take what one call logs. Raise `TrialStopped` in the trial's own thread when the trial
        need not go on; other threads never get this exception."""


class LoggingRedirect(Protocol):
    """Replaces a logging library in a process that runs trials."""

    def importing(self) -> AbstractContextManager[None]:
        """Redirect the library while the user's code is imported."""

    def trial(self, side: LoggingTrial) -> AbstractContextManager[None]:
        """Redirect the library while an objective runs in this thread. Raises nothing itself."""

    def program(
        self, side: LoggingTrial, elsewhere: Path | None, ask: Callable[[], None]
    ) -> AbstractContextManager[Mapping[str, str]]:
        """Redirect the library while a program runs as the objective, and yield environment
        variables for it.

        `elsewhere` is the path of the program's environment, if that is another one: it lacks this
        package, and its library may not understand every variable. `ask` is called meanwhile, and
        may raise `TrialStopped`.
        """


class NoTrialIsolation:
    """A `TrialIsolation` for trials that need none."""

    process_is_reusable = True

    def __call__(self) -> AbstractContextManager[None]:
        return nullcontext()


class NoLoggingRedirect:
    """A `LoggingRedirect` that redirects nothing, for the package's own objectives."""

    def importing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def trial(self, side: LoggingTrial) -> AbstractContextManager[None]:
        return nullcontext()

    def program(
        self, side: LoggingTrial, elsewhere: Path | None, ask: Callable[[], None]
    ) -> AbstractContextManager[Mapping[str, str]]:
        return nullcontext({})
