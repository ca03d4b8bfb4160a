"""What an event log says of each trial: summed up once, when the log is opened."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from automl.trial import (
    Event,
    Failed,
    Interrupted,
    Outcome,
    Reported,
    Started,
    SweepEnded,
    SweepStarted,
)


@dataclass(frozen=True)
class TrialHistory:
    """What the log says of a trial that an earlier sweep ran."""

    started: float
    """When it was first started (Unix seconds)."""
    n_starts: int
    n_worker_deaths: int
    """Executions that ended because the process died under them."""
    outcome: Outcome | None
    """How its last execution ended; None: it was running when the log ends."""
    steps: frozenset[int]
    """Steps reported so far; reporting one again is dropped."""


@dataclass
class _TrialTally:
    started: float
    n_starts: int = 0
    n_worker_deaths: int = 0
    outcome: Outcome | None = None
    steps: set[int] = field(default_factory=set)


class Tally:
    """Sums events up by trial."""

    def __init__(self) -> None:
        self.trials: dict[int, _TrialTally] = {}

    def take(self, event: Event) -> None:
        if isinstance(event, SweepStarted | SweepEnded):
            return
        trial = self.trials.setdefault(event.trial, _TrialTally(event.time))
        if isinstance(event, Reported):
            trial.steps.add(event.step)
        elif isinstance(event, Started):
            trial.n_starts += 1
            trial.outcome = None
        elif isinstance(event, Outcome):
            # Nobody asks for its traceback here, and there may be ten thousand of them.
            trial.outcome = replace(event, details="") if isinstance(event, Failed) else event
            trial.n_worker_deaths += isinstance(event, Interrupted) and event.by_worker_death

    def frozen(self) -> dict[int, TrialHistory]:
        return {
            number: TrialHistory(
                started=trial.started,
                n_starts=trial.n_starts,
                n_worker_deaths=trial.n_worker_deaths,
                outcome=trial.outcome,
                steps=frozenset(trial.steps),
            )
            for number, trial in self.trials.items()
        }
