"""What becomes of a trial's reports: events, the best so far, checkpoints, and the verdict.

One `TrialReports` serves one execution of one trial, in one thread. `last.pt` is never ahead of
`best.pt`: both are written together, so a trial that goes on from `last.pt` finds the best of all
reports in it. Until then the best state waits in memory, because most epochs of a small network
improve and a file for each would cost more than the epoch.
"""

from __future__ import annotations

import logging
import math
import operator
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, SupportsIndex, TypeAlias

from automl.errors import StorageError
from automl.record.files import CHECKPOINT_NAMES, LAST
from automl.training import checkpoint, steps
from automl.training.objective import TrialInterrupted, TrialPruned
from automl.training.peaks import PeakTeller
from automl.trial import (
    MAX_STEP,
    Checkpointed,
    CheckpointKind,
    Direction,
    Line,
    OnEvent,
    Reported,
    TrialEvent,
    TrialSpec,
    Verdict,
)

logger = logging.getLogger(__name__)
GetState: TypeAlias = Callable[[], Mapping[str, Any]]
_MAX_REPEATED = 10_000
"""So many of the newest reports are in `last.pt`, to be repeated: the event log may lack those of a
fraction of a second. All of them would make each checkpoint dearer (0.25 s at 100,000)."""
MAX_NAME_CHARACTERS = 250
"""Of a metric: what every tracker takes."""


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
class TrialReports:
    """The side of a `TrialContext` that the objective does not see."""

    spec: TrialSpec
    goal: Goal
    on_event: OnEvent
    checkpoint_every_seconds: float
    monotonic: Callable[[], float] = time.monotonic
    teller: PeakTeller = field(default_factory=PeakTeller)
    on_gpu: bool = False
    line: Line | None = None
    """To the sweep, for an objective that asks; None: nobody answers."""
    reports: OrderedDict[int, dict[str, float]] = field(default_factory=OrderedDict)
    """The newest, metrics by step; those from before an interruption included."""
    n_reports: int = 0
    """Of all."""
    metric_names: set[str] = field(default_factory=set)
    """Of all reports."""
    verdict: Verdict = Verdict.GO_ON
    """PRUNE or STOP stays: an objective that swallows the exception meets it again."""
    broken: Exception | None = None
    """What went wrong outside of the trial (the event log, the disk): not the trial's failure."""
    _n_steps: int = field(default_factory=steps.n_taken)
    """Taken in this process by the last report."""
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
        step: SupportsIndex,
        metrics: Mapping[str, float],
        get_checkpoint: GetState | None,
        get_best: GetState | None,
    ) -> None:
        """See `TrialContext.report`."""
        self._raise_verdict()
        step = self._checked_step(step)
        numbers = {_metric_name(name): _number(name, value) for name, value in metrics.items()}
        self._reported_now.add(step)
        self._n_steps = steps.reported(self._n_steps)
        self._keep(step, numbers)
        self.verdict = self._emit(Reported(self.spec.number, time.time(), step, numbers))
        if self.goal.metric in numbers:
            self._tell_peak()
        self._take_best(step, numbers, get_best or get_checkpoint)
        self._unwritten = None if get_checkpoint is None else (step, get_checkpoint)
        if self.verdict is not Verdict.GO_ON or self._is_due():
            self.write()
        self._raise_verdict()

    def restore(self) -> dict[str, Any] | None:
        """See `TrialContext.restore`. Emits the reports that `last.pt` holds."""
        path = Path(self.spec.checkpoint_dir) / LAST
        try:
            content = checkpoint.load(path)
        except FileNotFoundError:
            return None
        except ValueError as error:
            logger.warning("trial %d starts anew: %s", self.spec.number, error)
            return None
        try:
            last = _read_last(content)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            logger.warning(
                "trial %d starts anew: %s is no %s of automl (%s: %s)",
                *(self.spec.number, path, LAST, type(error).__name__, str(error)[:200]),
            )
            return None
        for step, metrics in last.reports.items():
            self._keep(step, metrics)
        self.n_reports = last.n_reports
        self.metric_names.update(last.metric_names)
        self._best = last.best
        verdicts = [
            self._emit(Reported(self.spec.number, time.time(), step, metrics))
            for step, metrics in self.reports.items()
        ]
        # Pruned, but killed before that was recorded: the study's log may not judge it again.
        verdicts.append(last.verdict)
        self.verdict = next((v for v in verdicts if v is not Verdict.GO_ON), Verdict.GO_ON)
        self._raise_verdict()
        return last.state

    # --- what the session calls -----------------------------------------------------------------

    def write(self) -> None:
        """Write `best.pt` and `last.pt` where they are behind the newest report."""
        contents: dict[CheckpointKind, dict[str, Any]] = {}
        if self._best is not None and self._best.content is not None:
            contents[CheckpointKind.BEST] = self._best.content
        if self._unwritten is not None:
            contents[CheckpointKind.LAST] = self._state_to_go_on_from(*self._unwritten)
        if contents:
            self._save(contents)
        if self._best is not None:
            self._best = _Best(self._best.step, self._best.value)
        self._unwritten = None
        self._written_seconds = self.monotonic()

    # --- inside ---------------------------------------------------------------------------------

    def _keep(self, step: int, metrics: dict[str, float]) -> None:
        if step in self.reports:
            return
        self.reports[step] = metrics
        self.n_reports += 1
        self.metric_names.update(metrics)
        if len(self.reports) > _MAX_REPEATED:
            self.reports.popitem(last=False)

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

    def _state_to_go_on_from(self, step: int, get_state: GetState) -> dict[str, Any]:
        # A trial that was told to stop is one that goes on.
        verdict = Verdict.PRUNE if self.verdict is Verdict.PRUNE else Verdict.GO_ON
        return self._header(step) | {
            "reports": dict(self.reports),
            "n_reports": self.n_reports,
            "metric_names": sorted(self.metric_names),
            "best": None if self._best is None else (self._best.step, self._best.value),
            "verdict": verdict.value,
            "state": checkpoint.snapshot(get_state()),
        }

    def _save(self, contents: Mapping[CheckpointKind, dict[str, Any]]) -> None:
        folder = Path(self.spec.checkpoint_dir)
        files = {CHECKPOINT_NAMES[kind]: content for kind, content in contents.items()}
        try:
            checkpoint.save(folder, files)
        except StorageError as error:
            self.broken = error
            raise
        for kind, content in contents.items():
            path = str(folder / CHECKPOINT_NAMES[kind])
            number, step = self.spec.number, content["step"]
            self._emit(Checkpointed(number, time.time(), step, path, kind))

    def _tell_peak(self) -> None:
        """Of what trained here: reports from before an interruption say nothing of memory."""
        for peak in self.teller.grown(self.spec.number):
            verdict = self._emit(peak)
            self.verdict = verdict if self.verdict is Verdict.GO_ON else self.verdict

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

    def _checked_step(self, step: SupportsIndex) -> int:
        number = _whole(step)
        if number is None or not 0 <= number <= MAX_STEP:
            raise ValueError(
                f"report(step={step!r}): a step is a whole number from 0 to {MAX_STEP} (2**53); "
                "count epochs or batches from 0."
            )
        if number in self._reported_now:
            raise ValueError(
                f"report(step={number}): this step was reported before; count steps up, and report "
                "all metrics of one step together."
            )
        return number


def _whole(value: object) -> int | None:
    """A whole number of whatever library (numpy's, a tensor of one); None: it is not one."""
    if type(value) is int:
        return value
    truth = "bool" in str(getattr(value, "dtype", type(value).__name__))
    try:
        return None if truth else operator.index(value)  # type: ignore[arg-type]  # the except clause is the check
    except TypeError:
        return None


class _Last(NamedTuple):
    """What a `last.pt` holds."""

    reports: dict[int, dict[str, float]]
    n_reports: int
    metric_names: frozenset[str]
    best: _Best | None
    verdict: Verdict
    state: dict[str, Any]


def _read_last(content: Mapping[str, Any]) -> _Last:
    """Raises KeyError, TypeError, ValueError or AttributeError for what is no `last.pt`."""
    reports = {
        int(step): {_metric_name(name): _number(name, value) for name, value in metrics.items()}
        for step, metrics in content["reports"].items()
    }
    return _Last(
        reports=reports,
        n_reports=int(content.get("n_reports", len(reports))),  # none before all were counted
        metric_names=frozenset(map(_metric_name, content.get("metric_names", ()))),
        best=None if content["best"] is None else _Best(*content["best"]),
        verdict=Verdict(str(content["verdict"])),
        state=content["state"],
    )


def _metric_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"report(metrics): the name {name!r} is no string.")
    if len(name) > MAX_NAME_CHARACTERS:
        raise ValueError(
            f"report(metrics): the name {name[:40]!r}… has {len(name)} characters; give it at most "
            f"{MAX_NAME_CHARACTERS}."
        )
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
