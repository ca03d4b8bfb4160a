"""Objectives that expect of their process what they must not, or leave it damaged."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from automl.trial import FailedOutcome, FinishedOutcome, MetricsReported, PrunedOutcome
from tests.end_to_end import unruly
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Program, objective_words
from tests.end_to_end.records import Records

pytestmark = pytest.mark.slow


def unruly_one(name: str) -> tuple[str, ...]:
    """The words for a function of `unruly.py`, one trial at a time."""
    return (
        *objective_words(name),
        f"objective.target={unruly.__name__}:{name}",
        "admission.max_concurrent_trials=1",
        "devices.only=cpu",
        f"study.name={name}",
    )


def test_a_trial_that_reports_without_end_is_timed_out(program: Program) -> None:
    limit = "execution.trial_timeout_seconds=0.3"
    running = program.start(*unruly_one("reports_without_end"), limit, "study.n_trials=1")
    assert running.wait().code == 1
    (outcome,) = Records(program.folder, "reports_without_end").outcomes().values()
    assert isinstance(outcome, FailedOutcome)
    assert outcome.cause == "exceeded execution.trial_timeout_seconds=0.3"


def test_what_a_trial_does_to_its_process_is_not_the_next_ones_trouble(
    folder: Path, call: Call
) -> None:
    done = call(*unruly_one("breaks_its_process"), "study.n_trials=8")
    assert done.code == 0, done.stderr
    records = Records(folder, "breaks_its_process")
    assert {n: type(o) for n, o in records.outcomes().items()} == dict.fromkeys(
        range(8), FinishedOutcome
    )
    log = records.path / "logs" / f"trial-{unruly.WELL_BEHAVED:05d}.log"
    assert log.read_text() == f"said by trial {unruly.WELL_BEHAVED}\n"
    (told,) = re.findall(r"worker \d+ ended .*", done.stdout)
    assert "after its last trial" in told
    assert "RuntimeError: the driver is gone" in told


@pytest.mark.usefixtures("folder")
def test_of_many_reports_optuna_is_given_a_bounded_number(call: Call, program: Program) -> None:
    """It copies a trial's values for each one added; the event log has them all."""
    done = call(*unruly_one("reports_often"), "study.n_trials=1", "execution=inline")
    assert done.code == 0, done.stderr
    records = Records(program.folder, "reports_often")
    reports = [event for event in records.events() if isinstance(event, MetricsReported)]
    assert [report.step for report in reports] == list(range(unruly.N_REPORTS))
    kept = records.optuna_values(0)
    assert len(kept) < 0.8 * unruly.N_REPORTS
    assert all(value == reports[step].metrics["val_loss"] for step, value in kept.items())
    assert {0, 1, 999, 1_501, unruly.N_REPORTS - 1} <= set(kept), "the best and the last, too"


@pytest.mark.parametrize("execution", ["workers", "inline"])
@pytest.mark.usefixtures("folder")
def test_a_script_that_parses_arguments_and_prunes_by_optuna_is_an_objective(
    execution: str, call: Call, program: Program
) -> None:
    words = list(sys.argv)
    sys.modules.pop("tests.end_to_end.script", None)
    target = (
        *objective_words("train"),
        "objective.target=tests.end_to_end.script:train",
        "study.name=script",
    )
    done = call(*target, f"execution={execution}", "study.n_trials=2", "pruner=none")
    assert done.code == 0, done.stderr
    outcomes = Records(program.folder, "script").outcomes()
    assert isinstance(outcomes[0], FinishedOutcome)
    assert isinstance(outcomes[1], PrunedOutcome)
    assert (outcomes[1].step, outcomes[1].value) == (0, 2.0)
    assert sys.argv == words
