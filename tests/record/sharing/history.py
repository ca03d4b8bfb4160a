"""The history of a shared study, operation by operation, and what it may not contain. Plain values.

`recorder.py` takes a history down while sweeps work on a study. An end state hides a promise that
was broken on the way; a history does not.
"""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


class OperationKind(enum.Enum):
    """What was done to a trial."""

    ASKED = "asked"
    TAKEN_OVER = "taken over"
    GIVEN_BACK = "given back"
    RENEWED = "renewed"
    """Its lease ends at another time from now on."""
    LOGGED = "logged"
    """An event of it that is neither a report nor its end."""
    REPORTED = "reported"
    TOLD = "told"
    ENDED = "ended"
    """It is marked as ended, so that nobody takes it over."""


@dataclass(frozen=True)
class Operation:
    """One operation on a trial, with its times in seconds since the epoch."""

    kind: OperationKind
    trial: int
    owner: str
    """The sweep that did it; of a trial that is given back, the one that held it."""
    attempt: int
    began: float
    """When the sweep began it: of a report, when the trial made it."""
    done: float
    """When the database had it."""
    step: int | None = None
    metrics: tuple[str, ...] = ()
    lease_until: float = math.inf

    def __str__(self) -> str:
        step = "" if self.step is None else f" at step {self.step}"
        return f"{self.kind.value} by {self.owner[:8]}, attempt {self.attempt}{step}"


@dataclass
class _Trial:
    """A trial as its operations so far have it."""

    owner: str | None
    attempt: int
    since: float
    lease_until: float
    is_told: bool = False
    is_ended: bool = False
    reported: Counter[tuple[int | None, str]] = field(default_factory=Counter)


Deaths = dict[str, float]
"""When each sweep was killed that was, by its name."""


def violations(
    history: Sequence[Operation], n_trials: int, deaths: Deaths | None = None
) -> list[str]:
    """Return each broken promise of a study of `n_trials` that has ended.

    Operations come in the order in which the database took them.
    """
    trials: dict[int, _Trial] = {}
    found: list[str] = []
    for operation in history:
        broken = _broken_by(operation, trials, n_trials, deaths or {})
        found += [f"trial {operation.trial}: {what} ({operation})" for what in broken]
    if len(trials) != n_trials:
        found.append(f"{len(trials)} trials were asked for, not {n_trials}")
    untold = [number for number, trial in trials.items() if not (trial.is_told and trial.is_ended)]
    if untold:
        found.append(f"trials without an end: {untold}")
    return found


def _broken_by(
    operation: Operation, trials: dict[int, _Trial], n_trials: int, deaths: Deaths
) -> Iterator[str]:
    """Yield what the operation breaks, then let it take effect."""
    trial = trials.get(operation.trial)
    if operation.kind is OperationKind.ASKED:
        if trial is not None:
            yield "asked for twice"
        elif operation.trial != len(trials) or operation.trial >= n_trials:
            yield f"asked for as trial number {len(trials)} of {n_trials}"
        owner, attempt, until = operation.owner, operation.attempt, operation.lease_until
        trials[operation.trial] = _Trial(owner, attempt, operation.began, until)
    elif trial is None:
        yield "nobody asked for it"
    elif trial.is_ended:
        yield "it had ended"
    elif operation.kind is OperationKind.TAKEN_OVER:
        yield from _broken_by_take_over(operation, trial, deaths)
    else:
        yield from _broken_by_holder(operation, trial)


def _broken_by_take_over(taken: Operation, trial: _Trial, deaths: Deaths) -> Iterator[str]:
    if taken.attempt != trial.attempt + 1:
        yield f"attempt {taken.attempt} follows attempt {trial.attempt}"
    if trial.is_told:
        yield "it had been told of"
    left_seconds = trial.lease_until - taken.done
    is_free = trial.owner in (None, taken.owner) or left_seconds < 0
    if not is_free and deaths.get(trial.owner or "", math.inf) > taken.done:
        yield f"{(trial.owner or '')[:8]} held it for another {left_seconds:.3f} s"
    trial.owner, trial.attempt, trial.since = taken.owner, taken.attempt, taken.began
    trial.lease_until = taken.lease_until


def _broken_by_holder(operation: Operation, trial: _Trial) -> Iterator[str]:
    if (operation.owner, operation.attempt) != (trial.owner, trial.attempt):
        yield f"{(trial.owner or 'nobody')[:8]} has it, in attempt {trial.attempt}"
    if operation.began < trial.since:
        yield f"begun {trial.since - operation.began:.3f} s before its sweep had it"
    match operation.kind:
        case OperationKind.GIVEN_BACK:
            trial.owner = None
        case OperationKind.RENEWED:
            trial.lease_until = operation.lease_until
        case OperationKind.ENDED:
            trial.is_ended = True
        case OperationKind.TOLD if trial.is_told:
            yield "told of twice"
        case OperationKind.TOLD:
            trial.is_told = True
        case OperationKind.REPORTED:
            if trial.is_told:
                yield "a report after its end"
            trial.reported.update((operation.step, name) for name in operation.metrics)
            if any(trial.reported[operation.step, name] > 1 for name in operation.metrics):
                yield "a step twice"


@dataclass(frozen=True)
class Training:
    """A time in which a process trained an epoch of a trial."""

    trial: int
    process: str
    began: float
    done: float


def trained_at_once(trainings: Sequence[Training]) -> list[str]:
    """Return the trials that two processes trained at one time."""
    found = []
    ordered = sorted(trainings, key=lambda training: (training.trial, training.began))
    last: Training | None = None
    for training in ordered:
        if last is None or last.trial != training.trial or training.began >= last.done:
            last = training
        elif last.process != training.process:
            both = f"{last.process} and {training.process}"
            found.append(f"trial {training.trial}: {both} at once")
    return found
