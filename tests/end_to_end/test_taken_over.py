"""What a trial is known for outlives its sweep: a process that died, memory that ran out."""

from __future__ import annotations

import math

import pytest

from automl.record.studies import read_study
from automl.search.samplers.memory_wall import AT_LEAST_KEY
from automl.trial import FailedOutcome, TooLargeOutcome, TrialStarted, TrialState
from tests.end_to_end.program import Program, objective_words
from tests.end_to_end.records import Records

WORDS = (
    "study.name=known",
    "study.n_trials=2",
    "sampler=grid",
    "devices.only=cpu",
    "admission.request=64MiB",
    "admission.max_concurrent_trials=2",
    *objective_words("ends_oddly"),
    "space={how: {choices: [dies, no_room]}}",
)


@pytest.mark.slow
def test_a_resume_knows_who_died_and_who_ran_out_of_memory(program: Program) -> None:
    records = Records(program.folder, "known")
    first = program.start(*WORDS)
    hanging = records.path / "checkpoints"
    first.wait_until(lambda: len(list(hanging.glob("*/hangs"))) == 2, "two trials that hang")
    first.kill()

    ended = program.call("resume", "study.name=known")
    assert ended.code == 1
    assert "known: 1 pruned, 1 failed" in ended.stdout
    assert "declare admission.request=96MiB" in first.stdout + ended.stdout
    params, outcomes = records.params(), records.outcomes()
    by_how = {params[number]["how"]: number for number in outcomes}
    died, no_room = outcomes[by_how["dies"]], outcomes[by_how["no_room"]]
    assert isinstance(died, FailedOutcome)
    assert died.cause.endswith("(2 times)")
    assert isinstance(no_room, TooLargeOutcome)
    assert "does not fit, even alone" in no_room.cause
    assert no_room.excess == pytest.approx(math.log(1.5))
    assert no_room.at_least
    check_pruned(records, by_how["no_room"], no_room)
    assert n_runs(records, by_how["dies"]) == 3
    assert n_runs(records, by_how["no_room"]) == 5, "declared, larger, larger again, alone twice"


def check_pruned(records: Records, number: int, outcome: TooLargeOutcome) -> None:
    """What fits nowhere is pruned for everybody, and says why."""
    trial = records.optuna_study().trials[number]
    assert trial.state.name == "PRUNED"
    assert trial.constraints == {AT_LEAST_KEY: outcome.excess}
    run = records.trial_runs()[number]
    assert run.info.status == "KILLED"
    assert run.data.tags["automl.state"] == "pruned"
    assert run.data.tags["automl.cause"] == outcome.cause
    record = read_study(records.path).trials[number]
    assert (record.state, record.cause, record.value) == (TrialState.PRUNED, outcome.cause, None)
    assert records.parent().data.metrics["trials_pruned"] == 1


def n_runs(records: Records, number: int) -> int:
    """Executions, without the entry that a failure makes which the sweep itself decides."""
    starts = [event for event in records.of_trial(number) if isinstance(event, TrialStarted)]
    return sum(start.device != "none" for start in starts)
