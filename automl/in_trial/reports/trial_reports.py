"""Turns a trial's reports into events, the best so far, checkpoints, and the verdict.

`last.pt` and `best.pt` are written together, so that `last.pt` is never ahead: a trial that
continues from it knows the best of all its reports. Until then the best state stays in memory,
because a file for each better epoch of a small network would cost more than the epoch. How a trial
ended is decided in `outcomes.py`.
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

from automl.config.metrics import MEASURED_METRICS, MODEL_BYTES, TRAIN_SECONDS
from automl.errors import StorageError
from automl.in_trial.checkpoints.last_checkpoint import (
    BestReport,
    CheckpointFiles,
    GetScores,
    GetState,
    ReportGetters,
    checkpoint_files,
    find_last_checkpoint,
    keep_previous,
)
from automl.in_trial.goal import FinalReport, StudyGoal
from automl.in_trial.reports import step_counter
from automl.in_trial.reports.further_metrics import FurtherMetrics
from automl.in_trial.reports.memory_peaks import PeakReporter
from automl.in_trial.reports.report_values import (
    is_same_metric_value,
    parse_metric_name,
    parse_metric_value,
    parse_step,
    parse_tag,
    refuse_too_many_tags,
)
from automl.in_trial.trial_context import TrialInterrupted, TrialPruned
from automl.record.lease import FolderTakenOverError, TrialFolderFence
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
from automl.trial.step_runs import StepRuns

logger = logging.getLogger(__name__)
_MAX_REPEATED = 10_000
"""Number of the newest reports that `last.pt` holds. They are emitted again after an interruption,
since the event log may lack the reports of a fraction of a second. A checkpoint with 100,000
reports would take 0.25 s more."""


@dataclass
class TrialReports:
    """The reports of one trial behind its `TrialContext`, which the objective does not see."""

    spec: TrialSpec
    goal: StudyGoal
    on_event: OnEvent
    checkpoint_every_seconds: float
    monotonic: Callable[[], float] = time.monotonic
    peak_reporter: PeakReporter = field(default_factory=PeakReporter)
    on_gpu: bool = False
    without_torch: bool = False
    """The checkpoints have the format of families without torch."""
    line: SweepChannel | None = None
    """The channel to the sweep, for an objective that asks it; None: nothing answers."""
    reports: OrderedDict[int, dict[str, float]] = field(default_factory=OrderedDict)
    """Metrics by step of the newest reports, also from before an interruption."""
    n_reports: int = 0
    """Number of all reports of the trial, also from before an interruption."""
    metric_names: set[str] = field(default_factory=set)
    """Names of the metrics in all reports, and in values that a library logged."""
    verdict: Verdict = Verdict.GO_ON
    """The sweep's verdict. PRUNE or STOP stays, so that an objective that swallows the exception
    meets it again."""
    reports_itself: bool = False
    """The objective calls `report` with the study's metric."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    """The lock for calls from another thread than the trial's."""
    broken: Exception | None = None
    """An error outside of the trial (the event log, the disk), which is not the trial's failure."""
    _n_steps: int = field(default_factory=step_counter.n_steps_taken)
    """Number of steps that this process had taken at the last report."""
    _best: BestReport | None = None
    _reported_now: StepRuns = field(default_factory=StepRuns)
    _getters: ReportGetters = field(default_factory=ReportGetters)
    """The getters of the newest report."""
    _has_warned_of_repeat: bool = False
    """The warning that a step was reported again with another value was given."""
    _tags: dict[str, str] = field(default_factory=dict)
    _unwritten: tuple[int, GetState] | None = None
    """The newest report that can still become `last.pt`."""
    part_values: tuple[float, ...] = ()
    """The values of the trial's folds, once they are known."""
    final_metrics: Mapping[str, float] = field(default_factory=dict)
    """The finite metrics of the trial's end, once they are known."""

    def __post_init__(self) -> None:
        self._began_seconds = self.monotonic()
        self.further = FurtherMetrics(self.goal.more_metrics)
        self._due_seconds = self.monotonic() + self.checkpoint_every_seconds

    @property
    def best_value(self) -> float | None:
        """The best finite value of the study's metric so far."""
        return None if self._best is None else self._best.value

    @property
    def best_step(self) -> int | None:
        """The step at which the best value was reported first."""
        return None if self._best is None else self._best.step

    def set_best(self, step: int, value: float) -> None:
        """Set the best report from before an interruption, for a trial without `last.pt`."""
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
        """Take a report of the objective's; `TrialContext.report` documents it."""
        with self.lock:
            self.raise_verdict()
            step = parse_step(step)
            numbers = {
                parse_metric_name(name): parse_metric_value(name, value)
                for name, value in metrics.items()
            }
            self.reports_itself |= self.goal.metric in numbers
            self._take_report(step, numbers, ReportGetters(get_checkpoint, get_best, get_scores))
            self.write_if_due()
            self.raise_verdict()

    def conclude(self, metrics: Mapping[Any, Any]) -> set[str]:
        """Report the metrics that an objective returned, at its last step.

        Return the names of those that this step has with another value, which stays; the study's
        metrics are not among them, since a returned one is the trial's value. The sweep's verdict
        has no effect, because the trial is over. Raises TypeError or ValueError.
        """
        numbers = {
            parse_metric_name(name): parse_metric_value(name, value)
            for name, value in metrics.items()
        }
        self.further.returned |= {name: v for name, v in numbers.items() if math.isfinite(v)}
        verdict, step = self.verdict, self.last_step or 0
        known = self.reports.get(step, {})
        news = {name: value for name, value in numbers.items() if name not in known}
        self._take_report(step, news, ReportGetters())
        self.verdict = verdict
        others = {
            n for n in numbers.keys() & known if not is_same_metric_value(numbers[n], known[n])
        }
        return others - {self.goal.metric, *self.goal.more_metrics}

    def note_metric(self, name: str, value: float) -> None:
        """Log a further metric of the study, which no report has, at the trial's last step."""
        with self.lock:
            self._log_metrics(self.last_step or 0, {parse_metric_name(name): value})

    def take_final_report(self, final: FinalReport) -> float:
        """Log the metrics of a trial's end, keep its model for `best.pt`, and return its value."""
        assert self.goal.value_at_end, "the plan says so"
        value = final.metrics[self.goal.metric]
        self._log_metrics(
            final.step, {n: v for n, v in final.metrics.items() if n not in self.metric_names}
        )
        content = self._header(final.step) | {
            "value": value,
            "metrics": dict(final.metrics),
            "state": self._files.snapshot(final.state),
        }
        self._best = BestReport(final.step, value, content, has_state=True)
        self.part_values = final.part_values
        self.final_metrics = {n: v for n, v in final.metrics.items() if math.isfinite(v)}
        self.further.returned |= self.final_metrics
        return value

    def emit_suggested(self, name: str) -> None:
        """Emit that the objective asked for a param that was drawn ahead of the trial."""
        params = {name: self.spec.params[name]}
        self._emit(ParamsSuggested(self.spec.number, time.time(), params))

    def set_tag(self, name: str, value: object) -> None:
        """Record a tag of the trial; `TrialContext.set_tag` documents it."""
        name, text = parse_tag(name, value)
        if self._tags.get(name) == text:
            return
        refuse_too_many_tags(name, self._tags)
        with self.lock:
            self._tags[name] = text
            self._keep_verdict(self._emit(TrialTagged(self.spec.number, time.time(), name, text)))

    def restore(self) -> dict[str, Any] | None:
        """Return the state in `last.pt`, and emit its reports again, as `TrialContext.restore`."""
        last = find_last_checkpoint(Path(self.spec.checkpoint_dir), self._files, self.spec.trial)
        if last is None:
            return None
        for step, metrics in last.reports.items():
            self._store_report(step, metrics)
        self.n_reports = last.n_reports
        self.metric_names.update(last.metric_names)
        self._best = last.best
        self.further.seconds_before = self.further.newest.get(TRAIN_SECONDS, 0.0)
        verdicts = [
            self._emit(MetricsReported(self.spec.number, time.time(), step, metrics))
            for step, metrics in self.reports.items()
        ]
        # The trial may have been killed after its pruning, before that was recorded. The study's
        # log may not judge it again.
        verdicts.append(last.verdict)
        self.verdict = next((v for v in verdicts if v is not Verdict.GO_ON), Verdict.GO_ON)
        self.raise_verdict()
        return last.state

    # --- what is called for a library that the objective logs through -----------------------------

    def report_without_state(self, step: int, metrics: dict[str, float]) -> None:
        """Report metrics without a state. The verdict before and after raises nothing here."""
        self._take_report(step, metrics, ReportGetters())

    def log(self, logged: ValuesLogged) -> None:
        """Emit logged values, which are no report. The sweep may answer with a verdict to stop."""
        self.metric_names.update(point.name for point in logged.points)
        self._keep_verdict(self._emit(logged))

    def write_if_due(self) -> None:
        """Write checkpoints if the trial ends or the interval is over, in the trial's thread."""
        if self.verdict is not Verdict.GO_ON or self.monotonic() >= self._due_seconds:
            self.write()

    # --- what the session calls -----------------------------------------------------------------

    def ask(self) -> None:
        """Ask between two reports whether to continue. Raises TrialPruned or TrialInterrupted."""
        self._keep_verdict(self._emit(StillRunning(self.spec.number, time.time())))
        self.raise_verdict()

    def finish(self) -> None:
        """Write the checkpoints of a trial that has trained to its end, and measure its metrics."""
        self.write()
        keep_previous(Path(self.spec.checkpoint_dir), goes_on=False)
        measured, step = self._measured(), self.last_step or 0
        self.further.take(measured)
        known = self.reports.get(step, {})
        self._log_metrics(step, {n: value for n, value in measured.items() if n not in known})

    def write(self) -> None:
        """Write `best.pt` and `last.pt` if they are older than the newest report."""
        contents: dict[CheckpointKind, dict[str, Any]] = {}
        if self._best is not None and self._best.content is not None:
            self._log_best_scores(self._best)
            contents[CheckpointKind.BEST] = self._best.content
        if self._unwritten is not None:
            contents[CheckpointKind.LAST] = self._state_to_go_on_from(*self._unwritten)
        if contents:
            self._save(contents)
        if self._best is not None:
            self._best = replace(self._best, content=None, get_scores=None)
        self._unwritten = None
        self._due_seconds = self.monotonic() + self.checkpoint_every_seconds

    # --- inside ---------------------------------------------------------------------------------

    def _take_report(self, step: int, numbers: dict[str, float], get: ReportGetters) -> None:
        """Emit a report, and keep it if it is the best.

        Values that were reported for this step before stay; the new ones join the same report.
        """
        is_repeated = step in self._reported_now
        if is_repeated:
            numbers = self._new_metrics(step, numbers)
        else:
            self._reported_now.add(step)
            self._n_steps = step_counter.count_report(self._n_steps)
        # A late part of an older report brings no newer state to continue from.
        self.further.own |= numbers.keys() & MEASURED_METRICS
        if self.goal.more_metrics and self.goal.metric in numbers:
            numbers |= {n: v for n, v in self._measured().items() if n not in numbers}
        is_newest = not is_repeated or step == self.last_step
        self._store_report(step, numbers)
        number, now = self.spec.number, time.time()
        is_news = bool(numbers) or not is_repeated
        news = MetricsReported(number, now, step, numbers) if is_news else StillRunning(number, now)
        self._keep_verdict(self._emit(news))
        if self.goal.metric in numbers:
            # The memory peak, measured in this process since the trial began or continued.
            for peak in self.peak_reporter.grown(self.spec.number):
                self._keep_verdict(self._emit(peak))
        if is_newest:
            get = self._getters = get.or_else(self._getters) if is_repeated else get
        self._keep_if_best(step, get)
        if is_newest:
            self._unwritten = None if get.checkpoint is None else (step, get.checkpoint)

    def _measured(self) -> dict[str, float]:
        """Return the further metrics that the trial measures itself."""
        model = Path(self.spec.checkpoint_dir) / CHECKPOINT_NAMES[CheckpointKind.BEST]
        if MODEL_BYTES in self.goal.more_metrics and not model.exists():
            self.write()
        seconds = self.monotonic() - self._began_seconds
        found = model if model.exists() else None
        return self.further.measured(seconds, self.peak_reporter.held_bytes, found)

    def _new_metrics(self, step: int, numbers: dict[str, float]) -> dict[str, float]:
        """Return the metrics that were not reported for this step before."""
        known = self.reports.get(step, {})
        for name in numbers.keys() & known.keys():
            is_other = not is_same_metric_value(numbers[name], known[name])
            if is_other and not self._has_warned_of_repeat:
                self._has_warned_of_repeat = True
                logger.warning(
                    "trial %d: report(step=%d) says %s again, and otherwise (%g, then %g): the "
                    "first counts. Count steps up.",
                    self.spec.trial,
                    step,
                    name,
                    known[name],
                    numbers[name],
                )
        return {name: value for name, value in numbers.items() if name not in known}

    def _store_report(self, step: int, metrics: dict[str, float]) -> None:
        self.metric_names.update(metrics)
        self.further.take(metrics)
        if (known := self.reports.get(step)) is not None:
            self.reports[step] = {**metrics, **known}
            return
        self.reports[step] = metrics
        self.n_reports += 1
        if len(self.reports) > _MAX_REPEATED:
            self.reports.popitem(last=False)

    def _log_best_scores(self, best: BestReport) -> None:
        """Log the metrics that only a best report has. Reported metrics keep their values."""
        if best.get_scores is None or best.content is None:
            return
        metrics = best.content["metrics"]
        more = {
            parse_metric_name(name): parse_metric_value(name, value)
            for name, value in best.get_scores().items()
            if name not in metrics
        }
        metrics |= more
        self._log_metrics(best.step, more)

    def _log_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log metrics of a step that were not in its report."""
        self.further.take(metrics)
        now_ms = int(time.time() * 1000)
        points = tuple(LoggedPoint(name, v, step, now_ms) for name, v in metrics.items())
        if points:
            self.log(ValuesLogged(self.spec.number, time.time(), points, {}))

    def _keep_if_best(self, step: int, get: ReportGetters) -> None:
        """Keep the state of a step if it is better than all before it. A tie is not better."""
        get_state = None if self.goal.value_at_end else get.best
        metrics = self.reports[step]
        value = metrics.get(self.goal.metric, math.nan)
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
        """Return whether to keep a report: it is the best, or brings the state of the best."""
        best = self._best
        if best is None or self.goal.direction.better(value, best.value):
            return True
        if self.goal.keeps_last and step > best.step:
            return True
        return best.step == step and not best.has_state and get_state is not None

    def _header(self, step: int) -> dict[str, Any]:
        return {"trial": self.spec.trial, "params": dict(self.spec.params), "step": step}

    def _state_to_go_on_from(self, step: int, get_state: GetState) -> dict[str, Any]:
        # A trial that must stop continues later.
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
            if CheckpointKind.LAST in contents:
                keep_previous(folder, goes_on=self.verdict is not Verdict.PRUNE)
            self._files.save(folder, files, TrialFolderFence(folder, self.spec.attempt))
        except FolderTakenOverError:
            return  # another sweep has the trial, as the next verdict will say
        except StorageError as error:
            self.broken = error
            raise
        for kind, content in contents.items():
            path = str(folder / CHECKPOINT_NAMES[kind])
            number, step = self.spec.number, content["step"]
            self._emit(CheckpointWritten(number, time.time(), step, path, kind))

    def _keep_verdict(self, verdict: Verdict) -> None:
        """Keep the first verdict that ends the trial."""
        self.verdict = verdict if self.verdict is Verdict.GO_ON else self.verdict

    def _emit(self, event: TrialEvent) -> Verdict:
        try:
            return self.on_event(event)
        except Exception as error:  # the objective may swallow it; the session raises it again
            self.broken = error
            raise

    def raise_verdict(self) -> None:
        """Raise `broken` if it is set, else TrialPruned or TrialInterrupted if the trial ends."""
        if self.broken is not None:
            raise self.broken
        if self.verdict is Verdict.PRUNE:
            raise TrialPruned(f"pruned after step {self.last_step}")
        if self.verdict is Verdict.STOP:
            raise TrialInterrupted(f"the sweep stops; interrupted after step {self.last_step}")
