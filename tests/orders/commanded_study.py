"""Gives commands to one study, waits for its sweep, and compares all answers with the reference
model. It chooses nothing: the rules of `study_machine.py` do.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import ClassVar

from hypothesis.stateful import RuleBasedStateMachine

from tests.end_to_end.program import Done, Program, Running
from tests.end_to_end.records import Records
from tests.orders.answers import ask_all, ask_trial
from tests.orders.logged_study import LoggedStudy, read_log
from tests.orders.objective import HOLD_FILE
from tests.orders.reference import Reference, Settings

N_AT_ONCE = 2
RUN_STATUS = {"finished": "FINISHED", "pruned": "KILLED", "failed": "FAILED"}


class CommandedStudy(RuleBasedStateMachine):
    """One study in a folder of its own. `StudyMachine` has the rules that choose its commands."""

    database: ClassVar[Path]
    """An empty store of MLflow; see `machine_with`."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="orders-"))
        shutil.copyfile(self.database, self.folder / "mlflow.db")
        self.program = Program(self.folder)
        self.sweep: Running | None = None
        self.model = Reference("", Settings(1, {}))
        self.is_outside_study = self.has_runs = self.may_refit = False
        self.left = set[int]()
        """Trials that the sweep at work has left to the next one."""
        self.go_on: tuple[str, ...] = ()
        """The words that the answer to the last `enqueue` named besides the study's name."""

    def teardown(self) -> None:
        self.program.end_all()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- calls -----------------------------------------------------------------------------------

    @property
    def directory(self) -> Path:
        return self.folder / "studies" / self.model.name

    @property
    def name(self) -> str:
        return f"study.name={self.model.name}"

    def log(self) -> LoggedStudy:
        return read_log(self.directory / "events.log", is_at_work=self.model.is_at_work)

    def do(self, *words: str) -> Done:
        """Give a command that must be done."""
        done = self.program.call(*words, self.name)
        assert done.code == 0, f"{words}: exit {done.code}: {done.stderr[-600:]}"
        return done

    def refuse(self, *words: str) -> str:
        """Give a command that must be refused, and change nothing."""
        before = (self.directory / "events.log").read_bytes()
        done = self.program.call(*words, self.name)
        assert done.code == 2, f"{words}: exit {done.code}: {done.stdout[-300:]}"
        assert done.stderr.startswith("automl: "), done.stderr[-300:]
        if not self.model.is_at_work:
            assert (self.directory / "events.log").read_bytes() == before
        return done.stderr

    def check(self) -> None:
        """Compare everything with the model; at work once the sweep has nothing more to do."""
        if self.model.is_at_work:
            self._wait_for_quiet()
        study = self.log()
        self.model.check_log(study)
        answers = ask_all(self.folder, self.model.name)
        self.model.check_answers(answers, study, time.time())
        if study.trials:
            number = max(study.trials)
            shown = ask_trial(self.folder, self.model.name, number)
            self.model.check_trial(shown, study.trials[number], number)

    # --- a sweep at work -------------------------------------------------------------------------

    def _hold(self, first: int | None) -> None:
        path = self.folder / HOLD_FILE
        if first is None:
            path.unlink(missing_ok=True)
        else:
            new = path.with_name(f"{HOLD_FILE}.new")  # a trial that reads it must find a number
            new.write_text(str(first))
            new.replace(path)

    def _wait_for_quiet(self) -> None:
        """Wait until every trial that runs holds, no more can start, and the view is newer."""
        assert self.sweep is not None
        now = time.time()
        self.sweep.wait_until(lambda: self._is_quiet(now), "its trials hold, or none is left")

    def _is_quiet(self, since: float) -> bool:
        if list((self.directory / "requests").glob("*.request")):
            return False
        study = self.log()
        if study.n_sweeps == 0:
            return False
        inside = [t for t in study.trials.values() if t.state == "running" and not t.is_outside]
        if any(t.state != "pruned" for n, t in study.trials.items() if n in self.model.stopped):
            return False
        if any(study.trials[number].state == "running" for number in self.left):
            return False
        n_outside = sum(trial.is_outside for trial in study.trials.values())
        n_final = sum(trial.is_final for trial in study.trials.values())
        n_left = self.model.settings.n_trials - n_final - n_outside - len(self.left)
        n_held = sum(trial.attempts[-1].is_held for trial in inside)
        if n_held < len(inside) or (n_held < min(N_AT_ONCE, n_left) and not self.model.is_paused):
            return False
        view = json.loads((self.directory / "status.json").read_bytes())
        times = [e for t in study.trials.values() for e in (t.ended or 0.0, t.attempts[-1].last)]
        return bool(view["time"] > max([since, *times]) and view["ended"] is None)

    def _go_on_words(self) -> tuple[str, ...]:
        """Return the words that a user gives `resume` now, and note what they change."""
        words, self.go_on = self.go_on, ()
        for word in words:
            n_trials = int(word.removeprefix("study.n_trials="))
            if n_trials > self.model.settings.n_trials:
                self.model.settings = Settings(n_trials, self.model.settings.space)
                self.model.edits.clear()  # no page says what an undo does with this
                return words
        return ()

    def _sweep_begins(self) -> None:
        self.model.stopped |= self.model.stops
        self.model.stops.clear()
        self.model.n_requested = 0
        self.left.clear()
        self.model.end = None

    def _sweep_has_ended(self, end: str | None) -> None:
        self.sweep, self.model.is_at_work, self.model.is_paused = None, False, False
        self.model.end = end
        self._hold(None)

    def _start(self, first_held: int, *words: str) -> None:
        self._hold(first_held)
        self._sweep_begins()
        self.sweep = self.program.start(*words, self.name)
        self.model.is_at_work = True

    def _sweep_is_done(self) -> None:
        """Check that every trial of the study has ended."""
        study = self.log()
        n_final = sum(trial.is_final for trial in study.trials.values())
        assert n_final == self.model.settings.n_trials - len(self.left), "all trials have ended"
        assert not self.model.untried(study), "points that were enqueued and not tried"
        self._sweep_has_ended(None if self.left else "done")
        if self.has_runs:
            self._check_runs(study)

    def _check_runs(self, study: LoggedStudy) -> None:
        records = Records(self.folder, self.model.name)
        runs = records.trial_runs()
        assert runs.keys() == study.trials.keys(), "MLflow: runs"
        for number, trial in study.trials.items():
            if trial.is_final:
                assert runs[number].info.status == RUN_STATUS[trial.state], f"MLflow: {number}"
                value = runs[number].data.metrics.get("value")
                assert value == trial.value or trial.value != trial.value, f"MLflow: {number}"
        metrics = records.parent().data.metrics
        for state in RUN_STATUS:
            n = sum(trial.state == state for trial in study.trials.values())
            assert metrics.get(f"trials_{state}", 0) == n, f"MLflow: trials_{state}"
