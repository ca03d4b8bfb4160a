"""What becomes of a trial's reports: events, the best so far, checkpoints, and the verdict.

One `TrialRecord` serves one execution of one trial, in one thread. `last.pt` is never ahead of
`best.pt`: both are written together, so a trial that goes on from `last.pt` finds the best of all
reports in it. Until then the best state waits in memory, because most epochs of a small network
improve and a file for each would cost more than the epoch.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from automl.errors import StorageError
from automl.training import checkpoint
from automl.training.objective import TrialInterrupted, TrialPruned
from automl.trial import (
    Checkpointed,
    CheckpointKind,
    Direction,
    OnEvent,
    Reported,
    TrialEvent,
    TrialSpec,
    Verdict,
)

logger = logging.getLogger(__name__)
GetState: TypeAlias = Callable[[], Mapping[str, Any]]


@dataclass(frozen=True)
class Goal:
    """What the study optimises, over which params."""

    metric: str
    direction: Direction
    space: tuple[str, ...] = ()
    """Names of the params in the space; a trial may lack those whose `when` is not met."""


@dataclass(frozen=True)
class _Best:
    """The best report so far; `content` waits for `best.pt` to be written."""

    step: int
    value: float
    content: dict[str, Any] | None = None


@dataclass
class TrialRecord:
    """The side of a `TrialContext` that the objective does not see."""

    spec: TrialSpec
    goal: Goal
    on_event: OnEvent
    checkpoint_every_seconds: float
    monotonic: Callable[[], float] = time.monotonic
    reports: dict[int, dict[str, float]] = field(default_factory=dict)
    """Metrics by step, those from before an interruption included."""
    verdict: Verdict = Verdict.GO_ON
    """PRUNE or STOP stays: an objective that swallows the exception meets it again."""
    broken: Exception | None = None
    """What went wrong outside of the trial (the event log, the disk): not the trial's failure."""
    _best: _Best | None = None
    _reported_now: set[int] = field(default_factory=set)
    _unwritten: tuple[int, GetState] | None = None
    """The newest report that can still become `last.pt`."""

    def __post_init__(self) -> None:
        self._written_seconds = self.monotonic()

    @property
    def best_value(self) -> float | None:
        """The best finite value of the study's metric so far."""
        return None if self._best is None else self._best.value

    @property
    def last_step(self) -> int | None:
        """The step that was reported last."""
        return next(reversed(self.reports), None)

    # --- what the context calls -----------------------------------------------------------------

    def report(
        self,
        step: int,
        metrics: Mapping[str, float],
        get_checkpoint: GetState | None,
        get_best: GetState | None,
    ) -> None:
        """See `TrialContext.report`."""
        self._raise_verdict()
        self._check_step(step)
        numbers = {_metric_name(name): _number(name, value) for name, value in metrics.items()}
        self._reported_now.add(step)
        self.reports.setdefault(step, numbers)
        self.verdict = self._emit(Reported(self.spec.number, time.time(), step, numbers))
        self._take_best(step, numbers, get_best or get_checkpoint)
        self._unwritten = None if get_checkpoint is None else (step, get_checkpoint)
        if self.verdict is not Verdict.GO_ON or self._is_due():
            self.write()
        self._raise_verdict()

    def restore(self) -> dict[str, Any] | None:
        """See `TrialContext.restore`. Emits the reports that `last.pt` holds."""
        path = self._path(checkpoint.LAST)
        try:
            content = checkpoint.load(path)
        except FileNotFoundError:
            return None
        except ValueError as error:
            logger.warning("trial %d starts anew: %s", self.spec.number, error)
            return None
        try:
            reports, best, verdict, state = _read_last(content)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            logger.warning(
                "trial %d starts anew: %s is no last.pt of automl (%s: %s)",
                *(self.spec.number, path, type(error).__name__, str(error)[:200]),
            )
            return None
        self.reports, self._best = reports, best
        verdicts = [
            self._emit(Reported(self.spec.number, time.time(), step, metrics))
            for step, metrics in self.reports.items()
        ]
        # Pruned, but killed before that was recorded: the study's log may not judge it again.
        verdicts.append(verdict)
        self.verdict = next((v for v in verdicts if v is not Verdict.GO_ON), Verdict.GO_ON)
        self._raise_verdict()
        return state

    # --- what the session calls -----------------------------------------------------------------

    def write(self) -> None:
        """Write `best.pt` and `last.pt` where they are behind the newest report."""
        if self._best is not None and self._best.content is not None:
            self._save(checkpoint.BEST, CheckpointKind.BEST, self._best.step, self._best.content)
            self._best = _Best(self._best.step, self._best.value)
        if self._unwritten is not None:
            step, get_checkpoint = self._unwritten
            content = self._header(step) | {
                "reports": self.reports,
                "best": None if self._best is None else (self._best.step, self._best.value),
                # A trial that was told to stop is one that goes on.
                "verdict": (
                    Verdict.PRUNE if self.verdict is Verdict.PRUNE else Verdict.GO_ON
                ).value,
                "state": checkpoint.snapshot(get_checkpoint()),
            }
            self._save(checkpoint.LAST, CheckpointKind.LAST, step, content)
            self._unwritten = None
        self._written_seconds = self.monotonic()

    # --- inside ---------------------------------------------------------------------------------

    def _take_best(
        self, step: int, metrics: Mapping[str, float], get_state: GetState | None
    ) -> None:
        """Keep the state of a step that is better than all before it. A tie is not better."""
        value = metrics.get(self.goal.metric, math.nan)
        if not math.isfinite(value):
            return
        if self._best is not None and not self.goal.direction.better(value, self._best.value):
            return
        content = None
        if get_state is not None:
            content = self._header(step) | {
                "value": value,
                "metrics": dict(metrics),
                "state": checkpoint.snapshot(get_state()),
            }
        self._best = _Best(step, value, content)

    def _header(self, step: int) -> dict[str, Any]:
        return {"trial": self.spec.number, "params": dict(self.spec.params), "step": step}

    def _save(self, name: str, kind: CheckpointKind, step: int, content: dict[str, Any]) -> None:
        path = self._path(name)
        try:
            checkpoint.save(path, content)
        except StorageError as error:
            self.broken = error
            raise
        self._emit(Checkpointed(self.spec.number, time.time(), step, str(path), kind))

    def _emit(self, event: TrialEvent) -> Verdict:
        try:
            return self.on_event(event)
        except Exception as error:  # an objective may swallow it: remembered for the session
            self.broken = error
            raise

    def _is_due(self) -> bool:
        return self.monotonic() - self._written_seconds >= self.checkpoint_every_seconds

    def _raise_verdict(self) -> None:
        if self.broken is not None:
            raise self.broken
        if self.verdict is Verdict.PRUNE:
            raise TrialPruned(f"pruned after step {self.last_step}")
        if self.verdict is Verdict.STOP:
            raise TrialInterrupted(f"the sweep stops; interrupted after step {self.last_step}")

    def _check_step(self, step: object) -> None:
        if not isinstance(step, int) or isinstance(step, bool) or step < 0:
            raise ValueError(f"report(step={step!r}): a step is a whole number from 0.")
        if step in self._reported_now:
            raise ValueError(
                f"report(step={step}): this step was reported before; count steps up, and report "
                "all metrics of one step together."
            )

    def _path(self, name: str) -> Path:
        return Path(self.spec.checkpoint_dir) / name


def _read_last(
    content: Mapping[str, Any],
) -> tuple[dict[int, dict[str, float]], _Best | None, Verdict, dict[str, Any]]:
    """Reports, best, verdict and state; raises KeyError and the like for what is no `last.pt`."""
    reports = {
        int(step): {_metric_name(name): _number(name, value) for name, value in metrics.items()}
        for step, metrics in content["reports"].items()
    }
    best = None if content["best"] is None else _Best(*content["best"])
    return reports, best, Verdict(str(content["verdict"])), content["state"]


def _metric_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"report(metrics): the name {name!r} is no string.")
    return name


def _number(name: str, value: object) -> float:
    """A metric as float; tensors and arrays of one value count. Raises TypeError."""
    if not isinstance(value, str | bytes | bool | None):
        try:
            return float(value)  # type: ignore[arg-type]  # the except clause is the check
        except (TypeError, ValueError, RuntimeError):
            pass
    raise TypeError(
        f"report(metrics): {name!r} is {value!r} ({type(value).__name__}); a metric is a number."
    )
