"""Where halving judges, whoever trains, what becomes of trials that pause there, and when a sweep
asks for no more."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import TypeVar

import pytest

from automl.trial import (
    FinishedOutcome,
    MetricsReported,
    PausedOutcome,
    PrunedOutcome,
    SweepEnded,
    TrialStarted,
)
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Program, objective_words
from tests.end_to_end.records import Records

Kind = TypeVar("Kind")
WORDS = (
    "study.name=rungs",
    "study.n_trials=2",
    "sampler=random",
    "pruner.min_steps=2",
    "pruner.min_trials=2",
    "devices.only=cpu",
    "execution=inline",  # where every report is judged at once
    "admission.max_concurrent_trials=1",
)
BUILTIN = (
    "training.epochs=9",
    "data.n_train=100",
    "data.n_validation=50",
    "space={lr: {low: 1e-9, high: 1, log: true}, width: 16}",
    "study.enqueue=[{lr: 0.2}, {lr: 1e-9}]",
)


def n_reports(records: Records, number: int) -> int:
    return sum(isinstance(event, MetricsReported) for event in records.of_trial(number))


@pytest.mark.parametrize(
    ("words", "n_steps"),
    [
        (BUILTIN, 3),
        ((*objective_words("stands_still"), "pruner.max_steps=9"), 3),
        (objective_words("stands_still"), 2),  # how many steps there are is not known
    ],
)
def test_the_worse_of_two_trials_stops_at_the_rung(
    folder: Path, call: Call, words: tuple[str, ...], n_steps: int
) -> None:
    done = call(*WORDS, *words)
    assert (done.code, done.stderr) == (0, "")
    records = Records(folder, "rungs")
    kinds = {number: type(outcome) for number, outcome in records.outcomes().items()}
    assert kinds == {0: FinishedOutcome, 1: PrunedOutcome}
    assert [n_reports(records, number) for number in (0, 1)] == [9, n_steps]


ASHA = (
    "study.n_trials=8",
    "pruner=asha",
    "pruner.factor=2",
    "pruner.min_steps=3",
    "pruner.max_steps=12",  # rungs after 3 and 6 steps
    "training.checkpoint_every_seconds=0",
    "devices.only=cpu",
    "execution=inline",
    "admission.max_concurrent_trials=1",
    "tracking.uri=none",
    *objective_words("counts"),
)


@pytest.mark.slow
def test_paused_trials_are_promoted_by_later_sweeps_as_by_one_that_goes_through(
    program: Program,
) -> None:
    """Whether the sweep before got Ctrl-C or was killed. Nothing that was trained is trained again,
    and what is paused in the end is pruned."""
    whole, broken = (Records(program.folder, name) for name in ("whole", "broken"))
    assert program.call(*ASHA, "study.name=whole").code == 0
    sweep = program.start(*ASHA, "study.name=broken")
    sweep.wait_until(lambda: len(of_kind(broken, PausedOutcome)) >= 2, "some are paused")
    sweep.signal(signal.SIGINT)
    assert sweep.wait().code == 130
    assert not of_kind(broken, PrunedOutcome)
    assert " paused" in sweep.stdout
    sweep = program.start("resume", "study.name=broken")
    sweep.wait_until(lambda: len(of_kind(broken, PausedOutcome)) >= 5, "more are paused")
    sweep.kill()
    n_before, known = broken.n_lines(), {e.trial for e in of_kind(broken, PausedOutcome)}
    assert program.call("resume", "study.name=broken").code == 0
    went_on = {e.trial for e in broken.events()[n_before:] if isinstance(e, TrialStarted)}
    assert known & went_on, "one was promoted"
    n_starts = [len(of_kind(records, TrialStarted)) for records in (whole, broken)]
    assert n_starts[1] <= n_starts[0] + 2, "each break interrupts the trial that runs"
    assert broken.losses() == whole.losses()
    assert len(broken.losses()) == 8 * 3 + 4 * 3 + 2 * 6, "half go on at each rung"
    kinds = {number: type(outcome) for number, outcome in broken.outcomes().items()}
    assert kinds == {number: type(outcome) for number, outcome in whole.outcomes().items()}
    assert kinds[0] is FinishedOutcome
    for number in range(8):
        trained = broken.path / "checkpoints" / f"trial-{number:05d}" / "trained"
        n_repeated = trained.read_text().count("\n") - n_reports(broken, number)
        assert 0 <= n_repeated <= 1


def test_a_sweep_that_gains_nothing_ends_early_and_says_why(folder: Path, call: Call) -> None:
    words = (
        "devices.only=cpu",
        "execution=inline",
        "tracking.uri=none",
        *objective_words("says_where_it_may_write"),
        "admission.max_concurrent_trials=1",  # several end at once where the machine is busy
    )
    done = call(*words, "study.name=flat", "study.n_trials=40", "study.stop_gain=0.01")
    assert (done.code, done.stderr) == (0, "")
    why = re.findall(
        r"no more trials: (as many trials again \(.*study\.stop_gain=0\.01)", done.stdout
    )
    records = Records(folder, "flat")
    (ended,) = of_kind(records, SweepEnded)
    assert [ended.reason] == why
    assert ended.done
    assert 20 <= len(records.outcomes()) <= 22, "those that run end"
    assert "no more trials: as many" in call("status", "study.name=flat").stdout
    assert why[0] in (records.path / "report.html").read_text()
    more = call("resume", "study.name=flat", "study.stop_gain=null", "study.n_trials=25")
    assert "flat: 25 finished" in more.stdout
    assert not of_kind(records, SweepEnded)[-1].reason


def test_a_sweep_ends_at_a_value_that_is_good_enough_and_stays_ended(
    folder: Path, call: Call
) -> None:
    words = (
        *("devices.only=cpu", "execution=inline", "tracking.uri=none", "pruner=none"),
        "admission.max_concurrent_trials=1",  # so that trial 0 ends first
        *objective_words("says_where_it_may_write"),
    )
    done = call(*words, "study.name=good", "study.n_trials=8", "study.stop_value=1")
    reason = "val_loss 1 of trial 0 reaches study.stop_value=1"
    told = f"no more trials: {reason}; to go on: python -m automl resume"
    assert (done.code, done.stderr) == (0, "")
    assert done.stdout.count(told) == 1
    records = Records(folder, "good")
    assert len(records.outcomes()) <= 2, "those that run end"
    assert f"no more trials: {reason}" in call("status", "study.name=good").stdout
    assert reason in (records.path / "report.html").read_text()
    n_outcomes = len(records.outcomes())
    again = call("resume", "study.name=good")
    assert (again.code, again.stdout.count(told)) == (0, 1)
    assert len(records.outcomes()) == n_outcomes
    assert [ended.reason for ended in of_kind(records, SweepEnded)] == [reason, reason]
    assert call("edit", "study.name=good", "study.stop_value=0.5").code == 0
    assert "good: 8 finished" in call("resume", "study.name=good").stdout
    assert not of_kind(records, SweepEnded)[-1].reason


def of_kind(records: Records, kind: type[Kind]) -> list[Kind]:
    exists = (records.path / "events.log").exists()
    return [event for event in records.events() if isinstance(event, kind)] if exists else []
