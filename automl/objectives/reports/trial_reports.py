"""What becomes of a trial's reports: events, the best so far, checkpoints, and the verdict.

Loads no torch before there is a checkpoint: a program as objective has none.

One `TrialReports` serves one execution of one trial, in one thread; what a library logs for the
objective may come from others, under `lock`. `last.pt` is never ahead of
`best.pt`: both are written together, so a trial that goes on from `last.pt` finds the best of all
reports in it. Until then the best state waits in memory, because most epochs of a small network
improve and a file for each would cost more than the epoch.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, SupportsIndex

from automl.errors import StorageError
from automl.objectives.checkpoints.last_checkpoint import (
    BestReport,
    CheckpointFiles,
    GetScores,
    GetState,
    ReportGetters,
    checkpoint_files,
    find_last_checkpoint,
)
from automl.objectives.goal import FinalReport, StudyGoal
from automl.objectives.reports import step_counter
from automl.objectives.reports.memory_peaks import PeakReporter
from automl.objectives.reports.report_values import (
    is_same_metric_value,
    parse_metric_name,
    parse_metric_value,
    parse_step,
    parse_tag,
    refuse_too_many_tags,
)
from automl.objectives.trial_context import TrialInterrupted, TrialPruned
from automl.record.lease import OthersFolderError, TrialFolderFence
from automl.record.study_files import CHECKPOINT_NAMES
from automl.trial import (
    CheckpointKind,
    CheckpointWritten,
    LoggedPoint,
    MetricsReported,
    OnEvent,
    ParamsSuggested,
    StillRunning,
    SweepChannel,
    TrialEvent,
    TrialSpec,
    TrialTagged,
    ValuesLogged,
    Verdict,
)

logger = logging.getLogger(__name__)
_MAX_REPEATED = 10_000
"""So many of the newest reports are in `last.pt`, to be repeated: the event log may lack those of a
fraction of a second. All of them would make each checkpoint dearer (0.25 s at 100,000)."""


@dataclass
class TrialReports:
    """The side of a `TrialContext` that the objective does not see."""

    spec: TrialSpec
    goal: StudyGoal
    on_event: OnEvent
    checkpoint_every_seconds: float
    monotonic: Callable[[], float] = time.monotonic
    teller: PeakReporter = field(default_factory=PeakReporter)
    on_gpu: bool = False
    without_torch: bool = False
    """Its checkpoints are such as a process without torch writes and reads."""
    line: SweepChannel | None = None
    """To the sweep, for an objective that asks; None: nobody answers."""
    reports: OrderedDict[int, dict[str, float]] = field(default_factory=OrderedDict)
    """The newest, metrics by step; those from before an interruption included."""
    n_reports: int = 0
    """Of all."""
    metric_names: set[str] = field(default_factory=set)
    """Of all reports."""
    verdict: Verdict = Verdict.GO_ON
    """PRUNE or STOP stays: an objective that swallows the exception meets it again."""
    reports_itself: bool = False
    """The objective calls `report` with the study's metric."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    """For whoever calls from another thread than the trial's."""
    broken: Exception | None = None
    """What went wrong outside of the trial (the event log, the disk): not the trial's failure."""
    _n_steps: int = field(default_factory=step_counter.n_steps_taken)
    """Taken in this process by the last report."""
    _best: BestReport | None = None
    _reported_now: set[int] = field(default_factory=set)
    _getters: ReportGetters = field(default_factory=ReportGetters)
    """Of the newest report."""
    _said_again: bool = False
    """That a step was reported again, with another value, is said once."""
    _tags: dict[str, str] = field(default_factory=dict)
    _unwritten: tuple[int, GetState] | None = None
    """The newest report that can still become `last.pt`."""

    def __post_init__(self) -> None:
        self._written_seconds = self.monotonic()

    @property
    def best_value(self) -> float | None:
        """The best finite value of the study's metric so far."""
        return None if self._best is None else self._best.value

    @property
    def best_step(self) -> int | None:
        """Where that was reported first."""
        return None if self._best is None else self._best.step

    def know_best(self, step: int, value: float) -> None:
        """What was the best before an interruption, where no `last.pt` tells."""
        self._best = BestReport(step, value)

    @property
    def n_tags(self) -> int:
        return len(self._tags)

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
        get_scores: GetScores | None = None,
    ) -> None:
        """See `TrialContext.report`."""
        with self.lock:
            self.raise_verdict()
            step = parse_step(step)
            numbers = {
                parse_metric_name(name): parse_metric_value(name, value)
                for name, value in metrics.items()
            }
            self.reports_itself |= self.goal.metric in numbers
            self._give(step, numbers, ReportGetters(get_checkpoint, get_best, get_scores))
            self.write_if_due()
            self.raise_verdict()

    def conclude(self, metrics: Mapping[Any, Any]) -> None:
        """Take the metrics that an objective returned: they belong to its last step. Whatever the
        study says to them, the trial is over. Raises TypeError or ValueError."""
        numbers = {
            parse_metric_name(name): parse_metric_value(name, value)
            for name, value in metrics.items()
        }
        verdict = self.verdict
        self._give(self.last_step or 0, numbers, ReportGetters())
        self.verdict = verdict

    def tell(self, told: FinalReport) -> float:
        """Keep what a trial comes to at its end, its model, too; returns its value."""
        assert self.goal.at_end, "the plan says so"
        value = told.metrics[self.goal.metric]
        self._log_beside(
            told.step, {n: v for n, v in told.metrics.items() if n not in self.metric_names}
        )
        content = self._header(told.step) | {
            "value": value,
            "metrics": dict(told.metrics),
            "state": self._files.snapshot(told.state),
        }
        self._best = BestReport(told.step, value, content, has_state=True)
        return value

    def tell_asked(self, name: str) -> None:
        """Record that the objective asked for a param that was drawn ahead of the trial."""
        params = {name: self.spec.params[name]}
        self._emit(ParamsSuggested(self.spec.number, time.time(), params))

    def set_tag(self, name: str, value: object) -> None:
        """See `TrialContext.set_tag`."""
        name, text = parse_tag(name, value)
        if self._tags.get(name) == text:
            return
        refuse_too_many_tags(name, self._tags)
        with self.lock:
            self._tags[name] = text
            self._note(self._emit(TrialTagged(self.spec.number, time.time(), name, text)))

    def restore(self) -> dict[str, Any] | None:
        """See `TrialContext.restore`. Emits the reports that `last.pt` holds."""
        folder = Path(self.spec.checkpoint_dir)
        last = find_last_checkpoint(folder, self._files, self.spec.number)
        if last is None:
            return None
        for step, metrics in last.reports.items():
            self._keep(step, metrics)
        self.n_reports = last.n_reports
        self.metric_names.update(last.metric_names)
        self._best = last.best
        verdicts = [
            self._emit(MetricsReported(self.spec.number, time.time(), step, metrics))
            for step, metrics in self.reports.items()
        ]
        # Pruned, but killed before that was recorded: the study's log may not judge it again.
        verdicts.append(last.verdict)
        self.verdict = next((v for v in verdicts if v is not Verdict.GO_ON), Verdict.GO_ON)
        self.raise_verdict()
        return last.state

    # --- what is called for a library that the objective logs through -----------------------------

    def take_part(self, step: int, metrics: dict[str, float]) -> None:
        """Report without a state, whatever the verdict is and will be."""
        self._give(step, metrics, ReportGetters())

    def log(self, logged: ValuesLogged) -> None:
        """Tell what is no report; the verdict on it may be that the sweep stops."""
        self.metric_names.update(point.name for point in logged.points)
        self._note(self._emit(logged))

    def write_if_due(self) -> None:
        """See `write`; in the trial's own thread, whose states it asks for."""
        if self.verdict is not Verdict.GO_ON or self._is_due():
            self.write()

    # --- what the session calls -----------------------------------------------------------------

    def ask(self) -> None:
        """Between two reports. Raises TrialPruned or TrialInterrupted where it need not go on."""
        self._note(self._emit(StillRunning(self.spec.number, time.time())))
        self.raise_verdict()

    def write(self) -> None:
        """Write `best.pt` and `last.pt` where they are behind the newest report."""
        contents: dict[CheckpointKind, dict[str, Any]] = {}
        if self._best is not None and self._best.content is not None:
            self._tell_scores(self._best)
            contents[CheckpointKind.BEST] = self._best.content
        if self._unwritten is not None:
            contents[CheckpointKind.LAST] = self._state_to_go_on_from(*self._unwritten)
        if contents:
            self._save(contents)
        if self._best is not None:
            self._best = replace(self._best, content=None, get_scores=None)
        self._unwritten = None
        self._written_seconds = self.monotonic()

    # --- inside ---------------------------------------------------------------------------------

    def _give(self, step: int, numbers: dict[str, float], get: ReportGetters) -> None:
        """Tell the study, and keep what may be the best. What was told of this step before stays,
        and what comes now is part of the same report."""
        again = step in self._reported_now
        if again:
            numbers = self._not_told(step, numbers)
        else:
            self._reported_now.add(step)
            self._n_steps = step_counter.count_report(self._n_steps)
        newest = not again or step == self.last_step  # else the state to go on from is another's
        self._keep(step, numbers)
        if numbers or not again:
            self._note(self._emit(MetricsReported(self.spec.number, time.time(), step, numbers)))
        if self.goal.metric in numbers:
            self._tell_peak()
        if newest:
            get = self._getters = get.or_else(self._getters) if again else get
        self._take_best(step, get)
        if newest:
            self._unwritten = None if get.checkpoint is None else (step, get.checkpoint)

    def _not_told(self, step: int, numbers: dict[str, float]) -> dict[str, float]:
        """Those of the numbers that were not told of this step before."""
        told = self.reports.get(step, {})
        for name in numbers.keys() & told.keys():
            if not self._said_again and not is_same_metric_value(numbers[name], told[name]):
                self._said_again = True
                logger.warning(
                    "trial %d: report(step=%d) says %s again, and otherwise (%g, then %g): the "
                    "first counts. Count steps up.",
                    *(self.spec.number, step, name, told[name], numbers[name]),
                )
        return {name: value for name, value in numbers.items() if name not in told}

    def _keep(self, step: int, metrics: dict[str, float]) -> None:
        self.metric_names.update(metrics)
        if (told := self.reports.get(step)) is not None:
            self.reports[step] = {**metrics, **told}
            return
        self.reports[step] = metrics
        self.n_reports += 1
        if len(self.reports) > _MAX_REPEATED:
            self.reports.popitem(last=False)

    def _tell_scores(self, best: BestReport) -> None:
        """The metrics that only a best report that is kept has; what was reported stays."""
        if best.get_scores is None or best.content is None:
            return
        told = best.content["metrics"]
        more = {
            parse_metric_name(name): parse_metric_value(name, value)
            for name, value in best.get_scores().items()
            if name not in told
        }
        told |= more
        self._log_beside(best.step, more)

    def _log_beside(self, step: int, metrics: Mapping[str, float]) -> None:
        """Tell metrics that are of a step and were not in its report."""
        now_ms = int(time.time() * 1000)
        points = tuple(LoggedPoint(name, v, step, now_ms) for name, v in metrics.items())
        if points:
            self.log(ValuesLogged(self.spec.number, time.time(), points, {}))

    def _take_best(self, step: int, get: ReportGetters) -> None:
        """Keep the state of a step that is better than all before it. A tie is not better."""
        get_state = get.best
        metrics = self.reports[step]
        value = metrics.get(self.goal.metric, math.nan)
        if self.goal.at_end:
            get_state = None
        if not math.isfinite(value) or not self._is_best(step, value, get_state):
            return
        content = None
        if get_state is not None:
            content = self._header(step) | {
                "value": value,
                "metrics": dict(metrics),
                "state": self._files.snapshot(get_state()),
            }
        has_state = content is not None
        self._best = BestReport(step, value, content, has_state, get.scores if has_state else None)

    def _is_best(self, step: int, value: float, get_state: GetState | None) -> bool:
        """Whether it is, or is its state, which came with a later part of the same report."""
        best = self._best
        if best is None or self.goal.direction.better(value, best.value):
            return True
        if self.goal.keeps_last and step > best.step:
            return True
        return best.step == step and not best.has_state and get_state is not None

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
            "state": self._files.snapshot(get_state()),
        }

    @property
    def _files(self) -> CheckpointFiles:
        return checkpoint_files(without_torch=self.without_torch)

    def _save(self, contents: Mapping[CheckpointKind, dict[str, Any]]) -> None:
        folder = Path(self.spec.checkpoint_dir)
        files = {CHECKPOINT_NAMES[kind]: content for kind, content in contents.items()}
        try:
            self._files.save(folder, files, TrialFolderFence(folder, self.spec.attempt))
        except OthersFolderError:
            return  # another sweep has the trial: the next verdict says so
        except StorageError as error:
            self.broken = error
            raise
        for kind, content in contents.items():
            path = str(folder / CHECKPOINT_NAMES[kind])
            number, step = self.spec.number, content["step"]
            self._emit(CheckpointWritten(number, time.time(), step, path, kind))

    def _tell_peak(self) -> None:
        """Of what trained here: reports from before an interruption say nothing of memory."""
        for peak in self.teller.grown(self.spec.number):
            self._note(self._emit(peak))

    def _note(self, verdict: Verdict) -> None:
        """The first that ends the trial stays."""
        self.verdict = verdict if self.verdict is Verdict.GO_ON else self.verdict

    def _emit(self, event: TrialEvent) -> Verdict:
        try:
            return self.on_event(event)
        except Exception as error:  # an objective may swallow it: remembered for the session
            self.broken = error
            raise

    def _is_due(self) -> bool:
        return self.monotonic() - self._written_seconds >= self.checkpoint_every_seconds

    def raise_verdict(self) -> None:
        """Raises TrialPruned or TrialInterrupted where the trial need not go on; and what broke."""
        if self.broken is not None:
            raise self.broken
        if self.verdict is Verdict.PRUNE:
            raise TrialPruned(f"pruned after step {self.last_step}")
        if self.verdict is Verdict.STOP:
            raise TrialInterrupted(f"the sweep stops; interrupted after step {self.last_step}")
