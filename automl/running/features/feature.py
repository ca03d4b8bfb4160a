"""What a sweep does besides its trials: the hooks of a feature, and all that it sees of its sweep.

A feature hears what happens and adds to what is shown. It decides nothing about trials but that no
more are wanted. `table.py` lists all features of a sweep and calls their hooks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from automl.record.event_log import EventLog
from automl.record.studies import read_study
from automl.record.study_files import StudyFiles
from automl.record.study_record import StudyRecord
from automl.record.texts import Say
from automl.running.loop.messages import PlannedTrial, StopReason
from automl.terminal.view import SweepView
from automl.trial import EnsembleBuilt, Params, TrialOutcome, TrialState

if TYPE_CHECKING:  # they load Optuna, and `report` needs none of them
    from automl.running.prepare.prepared_config import PreparedStudy
    from automl.running.prepare.refit_task import RefitTask
    from automl.search.trial_standings import RankedTrial

LONG_SWEEP_SECONDS = 60.0
"""A sweep of at least this length draws pictures of its ensemble."""
CLOSING_FRACTION = 0.5
"""Time for the end of a sweep over any family, as a multiple of its loading time: 4 s and 8 s on
white wine on a busy machine."""
MIN_TRIALS_FRACTION = 0.5
"""The least fraction of a sweep's time limit that its trials get, however long it loaded."""

RunRefit: TypeAlias = "Callable[[RefitTask, PreparedStudy], int]"
"""Trains the refit and writes `refit.pt`. Returns the exit code. Raises AutoMLError if it
failed."""


@dataclass(frozen=True)
class SweepClock:
    """Says how long a sweep has taken, and when its trials have to be done. Times are monotonic."""

    called_seconds: float
    """When the sweep's time began to count."""
    loaded_seconds: float
    """When the sweep had loaded what it works with."""
    has_long_end: bool = False
    """Whether the sweep chooses the family, so that its end loads libraries as its begin does."""

    def is_long(self, kept_seconds: float) -> bool:
        """Return whether what takes about a second at the end is a small part of the sweep.

        `kept_seconds`: the part of its time limit that was kept for the end.
        """
        return time.monotonic() + kept_seconds - self.called_seconds >= LONG_SWEEP_SECONDS

    def end_seconds(self, limit_seconds: float) -> float:
        """Return when a sweep with this time limit has to be over."""
        return self.called_seconds + limit_seconds

    def trials_until(self, limit_seconds: float, kept_seconds: float) -> float:
        """Return when the trials of a sweep with this time limit have to be done.

        Features keep `kept_seconds` for its end. A long end gets time in proportion to the loading:
        on a busy machine both take longer. Trials get `MIN_TRIALS_FRACTION` of the limit at least.
        """
        loading = self.loaded_seconds - self.called_seconds
        closing = CLOSING_FRACTION * loading if self.has_long_end else 0.0
        wanted = self.end_seconds(limit_seconds) - max(closing, kept_seconds)
        return max(wanted, self.loaded_seconds + MIN_TRIALS_FRACTION * limit_seconds)


class PauseReader(Protocol):
    """The paused trials of a study, to be read."""

    def comparable_keys(self) -> list[float]:
        """Return the keys of ended and paused trials, in the order of their numbers."""


class StudyReader(Protocol):
    """A study, to be read: features change nothing of it."""

    @property
    def n_asked(self) -> int: ...

    @property
    def pauses(self) -> PauseReader: ...

    def best(self) -> RankedTrial | None: ...

    def leader(self) -> tuple[int, float] | None: ...

    def ranking(self, n: int) -> tuple[RankedTrial, ...]: ...

    def front(self) -> tuple[RankedTrial, ...]: ...

    def counts(self) -> Mapping[TrialState, int]: ...

    def params(self, number: int) -> Params: ...


@dataclass(frozen=True)
class SweepSite:
    """All that a feature sees of its sweep."""

    study: StudyReader
    log: EventLog
    files: StudyFiles
    say: Say
    clock: SweepClock
    prepared: Callable[[], PreparedStudy]
    """Returns the study as it is now. An edit makes it anew, so nobody may keep the answer."""
    n_places: Callable[[], int]
    """Returns the largest number of trials, or packs, at once."""
    train_again: RunRefit | None = None
    """Trains the result of the sweep again. None if the caller wants no refit."""
    free_workers: Callable[[], None] = lambda: None
    """Ends the processes that trained the trials. Only for the end of the sweep."""


@dataclass
class SweepEnding:
    """The end of one sweep. Features tell each other of it by these fields alone."""

    path: Path
    """The study's folder."""
    stop: StopReason | None = None
    """Why no new trial was started any more. None if there was no more to do."""
    error: BaseException | None = None
    """The error that broke the sweep off. It is raised when all has been said."""
    joined: EnsembleBuilt | None = None
    """The ensemble that was made."""
    refit: Path | None = None
    """The refitted model, if it was made and has not seen the test rows."""
    report: Path | None = None
    """The page on the study."""
    exit_code: int = 0
    """Exit code of a step that was interrupted."""
    answer: dict[str, object] = field(default_factory=lambda: {"ensemble": None, "report": None})
    """What features add to the answer for programs (`--json`)."""

    @property
    def has_result(self) -> bool:
        """Whether the sweep came to its end. An interrupted sweep will go on."""
        return self.stop in (None, StopReason.TIMEOUT)

    @cached_property
    def record(self) -> StudyRecord:
        """The record as the last trial left it. Reading it takes longer the longer the log is."""
        return read_study(self.path)

    def break_off(self, error: BaseException) -> None:
        """Have the sweep raise the error at its very end. The first error counts."""
        self.stop, self.error = StopReason.BROKEN, self.error or error


@dataclass(frozen=True)
class ClosingTable:
    """A table among the closing lines. Its first two columns are names, the others figures."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


class SweepFeature:
    """Does one thing that one sweep does besides its trials. Every hook here does nothing. For the
    main thread.

    A StorageError breaks the sweep off. Another error of `end` is logged once and passed over, as
    is any error of `look` and `closing`; from the other hooks it breaks the sweep off.
    """

    def begin(self) -> None:
        """Begin, after `SweepStarted` and before the first trial."""

    def trial_asked(self, trial: PlannedTrial) -> Iterable[str]:
        """Hear of a new trial. Return lines for people."""
        return ()

    def trial_began(self, trial: PlannedTrial, now_seconds: float) -> None:
        """Hear of a trial that starts, perhaps not for the first time."""

    def trial_paused(self, number: int) -> None:
        """Hear of a trial that stopped at a rung, and goes on if it is promoted."""

    def trial_ended(self, outcome: TrialOutcome) -> Iterable[str]:
        """Hear of the end of a trial, of which the study knows. Return lines for people."""
        return ()

    def why_no_more(self) -> str | None:
        """Return why no more trials are wanted, or None. Asked after each outcome."""
        return None

    def kept_seconds(self) -> float:
        """Return the seconds of the sweep's time limit that are kept for the end."""
        return 0.0

    def look(self, view: SweepView) -> SweepView:
        """Return the view of the sweep with what the feature adds. Asked once a second, and several
        times at the end, when `view.ended` is set."""
        return view

    def trials_over(self) -> None:
        """Hear that no trial runs or will run, before `SweepEnded`."""

    def end(self, ending: SweepEnding) -> None:
        """Do what is to be done after the trials, after `SweepEnded`; in no sweep that broke."""

    def closing(self, ending: SweepEnding) -> Iterable[str | ClosingTable]:
        """Return closing lines, after the delivery to MLflow; for each sweep."""
        return ()

    def close(self) -> None:
        """Release what the feature holds, however the sweep ended."""
