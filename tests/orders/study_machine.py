"""Gives one study commands in any order, and compares all answers with the reference model after
each: Hypothesis chooses the order.

A sweep at work is a program of its own, whose trials hold after their first report. So each command
comes at a known point, which the event log tells, and so does each kill.
"""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from tests.orders.answers import read_page
from tests.orders.commanded_study import N_AT_ONCE, CommandedStudy
from tests.orders.logged_study import LoggedStudy, sleep_through
from tests.orders.objective import N_STEPS, reported
from tests.orders.reference import Reference, Settings

X = {"low": 0.0, "high": 1.0}
NARROW_X = {"low": 0.2, "high": 0.8}
WORDS = (
    "objective=python",
    "objective.target=tests.orders.objective:walks",
    "space={x: {low: 0.0, high: 1.0}}",
    "devices.only=cpu",
    "execution=inline",
    f"admission.max_concurrent_trials={N_AT_ONCE}",
    "admission.request=1MiB",
    "training.checkpoint_every_seconds=3600",  # a trial that holds is to log nothing
    "sampler=random",
    "pruner=none",
)
_POINTS = st.sampled_from([0.05, 0.15, 0.3, 0.55, 0.75, 0.9])
_WHICH = st.integers(0, 7)

not_at_work = precondition(lambda self: not self.model.is_at_work)
at_work = precondition(lambda self: self.model.is_at_work)
has_own_sweeps = precondition(lambda self: not self.is_outside_study)


class StudyMachine(CommandedStudy):
    """Chooses the commands of one study."""

    # --- the beginning ---------------------------------------------------------------------------

    @initialize(
        kind=st.sampled_from(["sweep", "sweep", "held", "held", "ask"]),
        n_trials=st.integers(2, 5),
        has_runs=st.sampled_from([False, False, False, True]),
        may_refit=st.sampled_from([False] * 7 + [True]),
    )
    def begin(self, kind: str, n_trials: int, has_runs: bool, may_refit: bool) -> None:
        self.may_refit = may_refit
        self._begin(kind, n_trials, has_runs, "first")

    def _begin(self, kind: str, n_trials: int, has_runs: bool, name: str) -> None:
        self.model = Reference(name, Settings(n_trials, {"x": X}))
        self.go_on, self.is_outside_study, self.has_runs = (), kind == "ask", has_runs
        words = [*WORDS, f"study.n_trials={n_trials}"]
        words += [] if has_runs else ["tracking.uri=none"]
        if kind == "ask":
            self.do("ask", words[2], words[-1], f"study.n_trials={n_trials}", "sampler=random")
        elif kind == "sweep":
            self._sweep_begins()
            self.do("sweep", *words)
            self._sweep_is_done()
        else:
            self._start(0, "sweep", *words)
        self.check()

    # --- sweeps ----------------------------------------------------------------------------------

    @has_own_sweeps
    @not_at_work
    @rule()
    def sweep_to_the_end(self) -> None:
        if any(trial.is_outside for trial in self.log().trials.values()):
            return  # it would wait for them
        words = self._go_on_words()
        self._sweep_begins()
        self.do("resume", *words)
        self._sweep_is_done()
        self.check()

    @has_own_sweeps
    @not_at_work
    @rule(first_held=_WHICH)
    def start_a_sweep(self, first_held: int) -> None:
        study = self.log()
        first_held = min([first_held, *(n for n, t in study.trials.items() if not t.is_final)])
        if not self._may_run(study, first_held, self.model.stops):
            return  # it would end at once
        self._start(first_held, "resume", *self._go_on_words())
        self.check()

    @at_work
    @rule(n=st.integers(1, 3))
    def let_trials_go(self, n: int) -> None:
        """Some trials go on to their end; those behind them hold."""
        inside = self._inside()
        if inside and self._may_run(self.log(), inside[0] + n, self.left):  # else the sweep ends
            self._hold(inside[0] + n)
            self.check()

    def _may_run(self, study: LoggedStudy, first: int, but: set[int]) -> bool:
        """Return whether a sweep has a trial to run of this number or a larger one."""
        gone = {n for n, trial in study.trials.items() if trial.is_final or trial.is_outside} | but
        return bool({*range(first, self.model.settings.n_trials)} - gone)

    def _inside(self) -> list[int]:
        study = self.log()
        return [n for n, t in study.trials.items() if t.state == "running" and not t.is_outside]

    @at_work
    @rule()
    def finish(self) -> None:
        """The trials outside are told, and the others go on to their end."""
        for number in self._outside():
            self._tell(number, "value")
        if self.model.is_paused:
            self.resume_paused()
        self._hold(None)
        assert self.sweep is not None
        done = self.sweep.wait()
        assert self.left or done.code == 0, f"exit {done.code}: {done.stderr[-600:]}"
        self._sweep_is_done()
        self.check()

    @at_work
    @rule()
    def kill(self) -> None:
        assert self.sweep is not None
        self.sweep.kill()
        self._sweep_has_ended("interrupted")
        self.check()

    @at_work
    @rule(how=st.sampled_from(["SIGINT", "SIGTERM", "stop"]))
    def stop_the_sweep(self, how: str) -> None:
        assert self.sweep is not None
        if how == "stop":
            self.do("stop")
        else:
            self.sweep.signal(signal.Signals[how])
        code = 143 if how == "SIGTERM" else 130
        done = self.sweep.wait()
        assert done.code == code, f"{how}: exit {done.code}: {done.stderr[-600:]}"
        self._sweep_has_ended("terminated" if how == "SIGTERM" else "interrupted")
        self.check()

    # --- steering --------------------------------------------------------------------------------

    @rule(x=_POINTS)
    def enqueue(self, x: float) -> None:
        words = ("enqueue", f"params={{x: {x}}}", "--json")
        space, n_asked = self.model.settings.space, self.model.n_asked(self.log())
        n_left = self.model.settings.n_trials - n_asked
        is_inside = "x" in space and space["x"]["low"] <= x <= space["x"]["high"]
        if not is_inside or (self.model.is_at_work and n_left <= 0):
            self.refuse(*words)
            return
        answer = json.loads(self.do(*words).stdout)
        assert answer["answered"] == self.model.is_at_work, answer
        self.model.points.append({"x": x})
        if not self.model.is_at_work:
            self.model.n_requested += 1
            self.go_on = tuple(shlex.split(answer["answer"].partition(self.name)[2]))
        self.check()

    @rule(which=_WHICH, outcome=st.sampled_from(["pruned", "pruned", "interrupted"]))
    def stop_a_trial(self, which: int, outcome: str) -> None:
        trials = self.log().trials
        if not trials:
            return
        number = sorted(trials)[which % len(trials)]
        words = ("stop", f"trial={number}", f"as={outcome}", "--json")
        trial = trials[number]
        if trial.is_final:
            self.refuse(*words)
        elif not self.model.is_at_work and not trial.is_outside and outcome == "pruned":
            if trial.attempts[-1].device == "outside":
                return  # no page says who has it, the next `ask` or the sweep
            assert not json.loads(self.do(*words).stdout)["answered"]
            self.model.stops.add(number)
        elif self.model.is_at_work and number not in self.left:
            if trial.is_outside and outcome == "interrupted":
                return  # the sweep runs it next
            assert json.loads(self.do(*words).stdout)["answered"]
            if outcome == "pruned":
                self.model.stopped.add(number)
            else:
                self.left.add(number)
        if not self.model.is_at_work or self._is_left_something():
            self.check()
        else:
            self._wait_for_the_end()

    def _is_left_something(self) -> bool:
        """Return whether the sweep at work has a trial to run or to wait for."""
        trials = self.log().trials
        open_numbers = {n for n, t in trials.items() if not t.is_final} - self.model.stopped
        n_never = self.model.settings.n_trials - len(trials)
        return n_never > 0 or bool(open_numbers - self.left)

    def _wait_for_the_end(self) -> None:
        """The last trial was stopped, so that the sweep ends."""
        assert self.sweep is not None
        done = self.sweep.wait()
        assert self.left or done.code == 0, f"exit {done.code}: {done.stderr[-600:]}"
        self._sweep_is_done()
        self.check()

    @at_work
    @rule()
    def pause(self) -> None:
        if not self.model.is_paused:
            self.do("pause")
            self.model.is_paused = True
            self.check()

    @at_work
    @rule()
    def resume_paused(self) -> None:
        if self.model.is_paused:
            self.do("resume")
            self.model.is_paused = False
            self.check()
        else:
            self.refuse("resume")

    @rule(
        what=st.sampled_from(["more", "more", "fewer", "narrow", "wide", "add", "take out", "undo"])
    )
    def edit(self, what: str) -> None:
        now = self.model.settings
        space = deepcopy(now.space)
        n_open = now.n_trials - self.model.n_asked(self.log())
        if what == "undo":
            self._undo()
            return
        if what == "more" and now.n_trials < 9:
            word, new = f"study.n_trials={now.n_trials + 1}", Settings(now.n_trials + 1, space)
        elif what == "fewer" and n_open > N_AT_ONCE and not self.model.n_requested:
            word, new = f"study.n_trials={now.n_trials - 1}", Settings(now.n_trials - 1, space)
        elif what == "narrow" and space["x"] != NARROW_X and not self.model.n_requested:
            word, new = (
                "space.x={low: 0.2, high: 0.8}",
                Settings(now.n_trials, space | {"x": NARROW_X}),
            )
        elif what == "wide" and space["x"] != X:
            word, new = "space.x={low: 0.0, high: 1.0}", Settings(now.n_trials, space | {"x": X})
        elif what == "add" and "y" not in space:
            word = "space.y={low: 0.0, high: 1.0, default: 0.5}"
            new = Settings(now.n_trials, space | {"y": X})
        elif what == "take out" and "y" in space:
            word, new = "~space.y", Settings(now.n_trials, {"x": space["x"]})
        else:
            self.refuse("edit", f"study.n_trials={now.n_trials}")
            return
        self.do("edit", word)
        self.model.edit(new)
        self.check()

    def _undo(self) -> None:
        if not self.model.edits:
            return
        before = self.model.edits[-1]
        if before.n_trials < self.model.n_asked(self.log()) + N_AT_ONCE or self.model.n_requested:
            return  # a total below what was asked for is another matter
        self.do("edit", "undo=true")
        self.model.undo()
        self.check()

    # --- experiments elsewhere -------------------------------------------------------------------

    @rule(n=st.integers(1, 2), lease=st.sampled_from(["86400", "900", "null"]))
    def ask(self, n: int, lease: str) -> None:
        study = self.log()
        before = {n for n, t in study.trials.items() if t.is_outside}
        back = [
            n
            for n, t in study.trials.items()
            if not t.is_final and t.attempts[-1].device == "outside" and n not in before
        ]
        if self.is_outside_study or not self.model.is_at_work:
            n_free = len(back) + self.model.settings.n_trials - self.model.n_asked(self.log())
        else:
            n_free = self.model.settings.n_trials - self.model.n_asked(self.log())
        if n_free <= 0:
            self.refuse("ask", f"n={n}", f"lease={lease}")
            return
        if self.model.is_at_work and n_free <= n:
            return  # the sweep would wait for these alone
        answer = json.loads(self.do("ask", f"n={n}", f"lease={lease}", "--json").stdout)
        numbers = [trial["trial"] for trial in answer["trials"]]
        assert len(numbers) == min(n, n_free), f"ask: {numbers} of {n_free}"
        assert not {*numbers} & before, "ask: given out twice"
        trials = self.log().trials
        for trial in answer["trials"]:
            assert trial["params"] == trials[trial["trial"]].params
        self._note_end(None)
        self.check()

    def _outside(self) -> list[int]:
        return [number for number, trial in self.log().trials.items() if trial.is_outside]

    @rule(
        which=_WHICH,
        what=st.sampled_from(["value", "value", "step", "finished", "failed", "pruned", "back"]),
    )
    def tell(self, which: int, what: str) -> None:
        numbers = self._outside()
        may_end = not self.model.is_at_work or bool(self._inside())
        if numbers and (may_end or what == "step"):
            self._tell(numbers[which % len(numbers)], what)
            self.check()

    def _tell(self, number: int, what: str) -> None:
        trial = self.log().trials[number]
        best = min(trial.reports.values(), default=None)
        words: Callable[..., tuple[str, ...]] = lambda *w: ("tell", f"trial={number}", *w)  # noqa: E731
        self._note_end(None)
        match what:
            case "value":
                value = 0.25 + number / 8
                self.do(*words(f"value={value}"))
                self.model.told[number] = ("finished", value)
            case "step":
                step = len(trial.reports)
                if step < N_STEPS:
                    value = reported(float(trial.params["x"]), step)
                    self.do(*words(f"step={step}", f"value={value!r}"))
            case "finished" if best is None:
                self.refuse(*words("state=finished"))
            case "finished":
                self.do(*words("state=finished"))
                self.model.told[number] = ("finished", best)
            case "failed":
                self.do(*words("state=failed", "reason=broken"))
                self.model.told[number] = ("failed", None)
            case "pruned":
                self.do(*words("state=pruned"))
                self.model.stopped.add(number)
            case "back":
                self.do(*words("state=interrupted"))

    def _note_end(self, end: str | None) -> None:
        if not self.model.is_at_work:
            self.model.end = end

    @precondition(lambda self: self.model.told)
    @rule(which=_WHICH)
    def tell_again(self, which: int) -> None:
        numbers = sorted(self.model.told)
        number = numbers[which % len(numbers)]
        state, value = self.model.told[number]
        same = ("state=failed", "reason=broken") if value is None else (f"value={value!r}",)
        said = json.loads(self.do("tell", f"trial={number}", *same, "--json").stdout)
        assert (said["trial"], said["state"], said["value"]) == (number, state, value)
        self.refuse("tell", f"trial={number}", "value=77.5")
        self._note_end(None)
        self.check()

    # --- upkeep ----------------------------------------------------------------------------------

    @rule(new_name=st.sampled_from(["first", "second", "third"]))
    def rename(self, new_name: str) -> None:
        if self.model.is_at_work or new_name == self.model.name:
            self.refuse("rename", f"name={new_name}")
            return
        self.do("rename", f"name={new_name}")
        assert not self.directory.exists()
        self.model.name = new_name
        self.check()

    @rule(stays=st.booleans())
    def archive_and_restore(self, stays: bool) -> None:
        """The restored study is the same; then it goes on in place of the original, or is gone."""
        if self.model.is_at_work:
            self.refuse("archive", "to=study.tar.gz")
            return
        self.do("archive", "to=study.tar.gz")
        original, restored = self.model, deepcopy(self.model)
        restored.name = "twin"
        restored.n_requested, restored.stops = 0, set()
        if original.n_requested:
            restored.points = restored.points[: -original.n_requested]
        self.model = restored
        done = self.program.call("restore", "file=study.tar.gz", self.name)
        assert done.code == 0, done.stderr[-600:]
        self.check()
        if stays:
            self.model = original
            self._delete()
            self.go_on, self.model = (), restored
            self.do("rename", f"name={original.name}")
            self.model.name = original.name
        else:
            self._delete()
            self.model = original
        self.check()

    def _delete(self) -> None:
        self.do("delete", "--yes")
        assert not self.directory.exists()

    @not_at_work
    @rule(kind=st.sampled_from(["sweep", "held", "ask"]), n_trials=st.integers(1, 4))
    def delete_and_begin_anew(self, kind: str, n_trials: int) -> None:
        self._delete()
        status = self.program.call("status", self.name)
        assert status.code == 2
        self._begin(kind, n_trials, self.has_runs, self.model.name)

    # --- the rest --------------------------------------------------------------------------------

    @precondition(lambda self: self.may_refit and not self.is_outside_study)
    @not_at_work
    @precondition(lambda self: any(t.state == "finished" for t in self.model.ended.values()))
    @rule()
    def refit(self) -> None:
        self.may_refit = False  # once in an order: it starts processes
        done = self.program.call("refit", self.name)
        assert done.code == 0, done.stderr[-600:]
        self.check()

    @precondition(lambda self: not self.has_runs)
    @not_at_work
    @rule(seconds=st.sampled_from([40, 1000, 30_000]))
    def sleep(self, seconds: int) -> None:
        """The machine is off for a while."""
        sleep_through(self.directory, seconds)
        study = self.log()
        self.model.ended = {number: study.trials[number] for number in self.model.ended}
        self.check()

    @rule()
    def report(self) -> None:
        self.model.check_page(read_page(self.folder, self.model.name), self.log())

    @not_at_work
    @rule(
        words=st.sampled_from(
            [("pause",), ("stop",), ("edit", "study.metric=other"), ("tell", "trial=99", "value=1")]
        )
    )
    def what_is_never_taken(self, words: tuple[str, ...]) -> None:
        self.refuse(*words)
        self.check()


def machine_with(database: Path) -> type[StudyMachine]:
    """Return the machine whose studies begin with a copy of this store of MLflow."""
    return type("Orders", (StudyMachine,), {"database": database})
