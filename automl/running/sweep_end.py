"""Finishes a sweep: its features' part of the end, the last events to MLflow, the closing table,
the exit code.

What ensemble, refit, scores and report do is in `features/`. A step that fails does not keep the
later ones from running.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext

from automl.config import ObjectiveKind
from automl.errors import AutoMLError, StorageError, SweepFailedError
from automl.record.signal_receiver import (
    ENDED_PHASE,
    INTERRUPTED_CODE,
    SignalReceiver,
    StopPhase,
    signal_receiver,
)
from automl.record.study_directory import study_command
from automl.record.study_files import STATUS_FILE
from automl.record.texts import counted, duration_text
from automl.running.features.feature import SweepEnding
from automl.running.features.scores import baseline_scores
from automl.running.features.table import SweepFeatures
from automl.running.loop.messages import EXIT_CODES, LoopSnapshot, StopReason
from automl.running.opening.parts import SweepParts
from automl.running.sweep_view import SweepViewer
from automl.running.trials.param_questions import NoParamQuestions, ParamQuestions
from automl.search.trial_standings import RankedTrial
from automl.terminal.best_table import print_best
from automl.terminal.console import open_console
from automl.terminal.live_display import Display, ViewFailureLog
from automl.terminal.machine_output import write_answer
from automl.terminal.rendering import failure_lines
from automl.terminal.view import SweepView, write_view
from automl.tracking.long_step import long_step
from automl.trial import CheckpointKind, SweepEnded, TrialState

DRAIN_SECONDS = 600.0
"""How long the end waits for MLflow while it takes events. `sync` delivers the rest."""
SETTLE_SECONDS = 30.0
"""How long the end waits for the database of a shared study."""
N_BEST_SHOWN, N_FRONT_SHOWN = 5, 10


class SweepFinisher:
    """Finishes one sweep, step by step, and prints its results."""

    def __init__(
        self,
        parts: SweepParts,
        loop: LoopSnapshot,
        display: Display,
        viewer: SweepViewer,
        view_failures: ViewFailureLog,
        features: SweepFeatures,
        questions: ParamQuestions | NoParamQuestions,
    ) -> None:
        self._parts = parts
        self._loop = loop
        """The state of the loop when all trials had ended."""
        self._ending = SweepEnding(parts.directory.path, loop.stop, loop.error)
        self._questions = questions
        self._display = display
        self._say = display.say
        self._viewer, self._view = viewer, viewer.view
        self._view_failures = view_failures
        self._features = features
        self._signals = signal_receiver()
        self._delivers = False
        """Whether nothing is left but the delivery to MLflow."""

    def finish(self) -> int:
        """Finish the sweep and return the exit code. Raises AutoMLError if the sweep failed."""
        self._signals.enter(StopPhase(self._hurry, self._leave))
        with self._view_failures.of("the display"):
            self._display.show(self._view(self._how()))  # the last trials to end are in it, too
        self._display.end()
        if self._stop is not StopReason.BROKEN:
            self._record_end()
            self._settle()
        if self._stop is not StopReason.BROKEN:
            self._features.end(self._ending)
            self._write_status()  # who is killed while it delivers has ended all the same
            self._deliver()
        self._write_status()
        with self._view_failures.of("the results"):
            self._show_results()
            self._show_closing()
        for waiting in self._loop.deferred:
            shown = self._view(self._how()).shown(waiting.trial.number)
            self._say(f"trial {shown} is interrupted, {waiting.refusal.reason}")
        if self._stop is not None or self._loop.deferred:
            self._say(f"go on with: {self._parts.prepared.how_to_go_on()}")
        stands_alone = self._parts.prepared.purpose.stands_alone
        if self._parts.config.tracking.uses_mlflow and stands_alone:
            address = self._parts.delivery.address()
            self._say(f"see it all: {address or study_command('ui', self._parts.config.study)}")
        self._raise_failure()
        self._write_answer()
        stop_signal = self._signals.first  # of one that comes later nobody would be told
        self._signals.enter(ENDED_PHASE)
        if stop_signal is not None:
            return stop_signal.exit_code
        return self._ending.exit_code or (EXIT_CODES.get(self._stop, 0) if self._stop else 0)

    @property
    def _stop(self) -> StopReason | None:
        return self._ending.stop

    def _write_status(self) -> None:
        with self._view_failures.of(STATUS_FILE):
            write_view(self._parts.directory.files.status, self._view(self._how()))

    def _hurry(self, number: signal.Signals) -> None:
        """Give what is left its time after a signal."""
        seconds = self._parts.config.study.grace_seconds
        if self._delivers:  # otherwise its time begins with it
            self._parts.delivery.hurry(seconds)
        self._say(
            f"{number.name}: the trials have ended; what is left gets {seconds:g} s; once more: at "
            "once"
        )

    def _leave(self) -> None:
        """Stop at once after a second signal, and say what brings the rest."""
        self._parts.delivery.hurry(0.0)
        if not self._signals.owns_process:
            return
        lines = [self._undelivered_line()] if self._parts.delivery.lag() else []
        if not self._delivers or self._stop is not None or self._loop.deferred:
            lines.append(f"go on with: {self._parts.prepared.how_to_go_on()}")
        leave_at_once(self._display, self._signals, *lines)

    def _undelivered_line(self) -> str:
        lag, why = self._parts.delivery.lag(), self._parts.delivery.trouble() or "its time is up"
        command = study_command("sync", self._parts.config.study)
        return (
            f"MLflow has not taken {counted(lag, 'event')} ({why}); nothing is lost. Deliver them "
            f"with: {command}"
        )

    def _how(self) -> str:
        """Return the word that `list` shows for how the sweep ended."""
        if self._stop is not None:
            return self._stop.value
        return "done" if self._counts().get(TrialState.FINISHED) else "failed"

    def _record_end(self) -> None:
        best = self._parts.study.best()
        baseline, scores = ({}, {}) if best is None else self._baseline()
        ended = SweepEnded(
            time=time.time(),
            done=self._stop in (None, StopReason.TIMEOUT),
            failed=self._stop is StopReason.FAILING,
            reason=self._loop.asking_ended or "",
            n_by_state=self._counts(),
            best_trial=None if best is None else best.number,
            best_value=None if best is None else best.value,
            front=() if best is None or best.point is None else self._front_numbers(),
            baseline=baseline,
            baseline_scores=scores,
        )
        try:
            self._parts.log.append(ended)
        except StorageError as error:  # raised once the command that resumes has been printed
            self._ending.break_off(error)

    def _front_numbers(self) -> tuple[int, ...]:
        return tuple(trial.number for trial in self._parts.study.front())

    def _baseline(self) -> tuple[Mapping[str, float], Mapping[str, float]]:
        """Return the study's metric of the constant prediction, by its name, and all its metrics;
        both are empty where they are unknown."""
        prepared, metric = self._parts.prepared, self._parts.config.study.leading_metric
        if prepared.dataset is None or not prepared.purpose.stands_alone:
            return {}, {}
        name, scores = baseline_scores(prepared.dataset)
        value = scores.get(metric.removeprefix("val_"))
        return ({}, {}) if value is None else ({name: value}, scores)

    def _settle(self) -> None:
        """Wait until the database of a shared study has what this sweep did."""
        if (why := self._parts.store.peers.settle(SETTLE_SECONDS)) is not None:
            command = study_command("sync", self._parts.config.study)
            self._say(
                f"the database has not taken all that this sweep did ({why}); nothing is lost: it "
                f"lies in {self._parts.directory.path} and goes there by: {command}"
            )

    def _deliver(self) -> None:
        self._delivers, delivery = True, self._parts.delivery
        if self._signals.first is not None and self._stop not in EXIT_CODES:
            delivery.hurry(self._parts.config.study.grace_seconds)
        lag, to_go = delivery.lag(), lambda: f"{delivery.lag()} to go"
        name = f"delivering {counted(lag, 'event')} to MLflow"
        with long_step(name, self._say, detail=to_go) if lag else nullcontext():
            delivered = delivery.drain(DRAIN_SECONDS)
        if not delivered:
            self._say(self._undelivered_line())

    def _show_results(self) -> None:
        study, refit = self._parts.study, self._parts.prepared.plan.refit
        if self._ending.report is not None:
            self._say(f"report: {os.path.relpath(self._ending.report)}")
        points = {trial.number: trial.point for trial in study.front()}
        front = [n for n, point in points.items() if point is not None and not point.excess]
        n_shown = max(N_BEST_SHOWN, min(len(front), N_FRONT_SHOWN))
        ranking, view = study.ranking(n_shown), self._view(self._how())
        if ranking and not (refit and refit.members):  # the losses of members are no ranking
            rows = [
                (self._viewer.row_of(r), "on the front" if r.number in front else r.state.value)
                for r in ranking
            ]
            print_best(
                rows,
                self._parts.config.study.leading_metric,
                {view.shown(number): of for number, of in self._metrics_of(ranking).items()},
                out_of_fold=self._parts.prepared.plan.n_models > 1,
            )
        for line in self._questions.found(at_end=True):
            self._say(line)
        for line in () if self._is_named_at_end(view) else failure_lines(view):
            self._say(line)
        counts = ", ".join(f"{n} {state.value}" for state, n in self._counts().items() if n)
        self._say(f"{self._name}: {counts} in {duration_text(view.seconds)}")
        if self._loop.memory is not None:
            self._say(self._loop.memory)
        best = study.best()
        if best is not None and self._parts.prepared.purpose.stands_alone:
            files = self._parts.directory.files
            paths = (files.winner, files.checkpoint(best.number, CheckpointKind.BEST))
            if (path := next((path for path in paths if path.exists()), None)) is not None:
                self._say(f"best model: {os.path.relpath(path)}")

    def _show_closing(self) -> None:
        for line in self._features.closing(self._ending):
            if isinstance(line, str):
                self._say(line)
            else:
                open_console().table(line.columns, line.rows, n_left=2)

    def _is_named_at_end(self, view: SweepView) -> bool:
        """Return whether the error that ends the sweep names the only cause of failures."""
        return self._loop.is_hopeless and len(view.failures) == 1

    def _write_answer(self) -> None:
        """Write how the sweep ended for a program, if one has asked (`--json`)."""
        best = self._parts.study.best()
        trial = None if best is None else self._viewer.row_of(best)
        write_answer(
            {
                "study": self._name,
                "directory": os.path.relpath(self._parts.directory.path),
                "ended": self._how(),
                "reason": self._loop.asking_ended,
                "counts": {state.value: n for state, n in self._counts().items()},
                "metric": self._parts.config.study.leading_metric,
                "best": trial,
                **self._ending.answer,
            }
        )

    def _metrics_of(self, ranking: Sequence[RankedTrial]) -> Mapping[int, Mapping[str, float]]:
        """Return the other metrics of these trials' best reports, if the metrics are ours."""
        if self._parts.config.objective.kind is not ObjectiveKind.builtin:
            return {}
        trials = self._ending.record.trials
        return {row.number: trials[row.number].best_metrics for row in ranking}

    def _counts(self) -> dict[TrialState, int]:
        """Return the number of trials by state, when the sweep runs none any more."""
        return {
            **self._parts.study.counts(),
            TrialState.RUNNING: len(self._parts.outside.trials)
            + self._parts.store.peers.n_running(),
            TrialState.INTERRUPTED: self._parts.n_interrupted,
        }

    @property
    def _name(self) -> str:
        return self._parts.study.name

    def _raise_failure(self) -> None:
        error, last_failure = self._ending.error, self._loop.last_failure
        if self._stop is StopReason.BROKEN:
            assert error is not None
            if isinstance(error, AutoMLError):
                raise error
            raise AutoMLError(f"{type(error).__name__}: {error}") from error
        if self._stop is StopReason.FAILING:
            is_hopeless = self._loop.is_hopeless
            how = "any trial would fail so" if is_hopeless else "trials keep failing with one error"
            raise SweepFailedError(f"stopped: {how}: {last_failure}")
        if self._stop in EXIT_CODES or self._counts().get(TrialState.FINISHED):
            return
        cause = "" if last_failure is None else f"; the last error: {last_failure}"
        raise SweepFailedError(f"no trial finished{cause}")


def leave_at_once(display: Display, signals: SignalReceiver, *lines: str) -> None:
    """End this process after a second signal; `lines` say how to go on. All records are on disk."""
    try:
        display.end()
        for line in lines:
            display.say(line)
    finally:
        os._exit(INTERRUPTED_CODE if signals.first is None else signals.first.exit_code)
