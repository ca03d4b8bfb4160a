"""An objective written for Optuna, unchanged, without a space, killed while it is found out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from automl.trial import FinishedOutcome, PrunedOutcome
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Done, Program
from tests.end_to_end.records import Records

pytestmark = pytest.mark.slow

N_TRIALS = 7
WORDS = (
    "study.name=asks",
    f"study.n_trials={N_TRIALS}",
    "objective=optuna",
    "objective.target=tests.end_to_end.optunas:objective",
    "pruner=median",
    "pruner.n_startup_trials=1",
    "pruner.n_warmup_steps=0",
    "devices.only=cpu",
)


@pytest.fixture(scope="module")
def ended(module_program: Program) -> Done:
    """The second sweep of the two."""
    sweep = module_program.start(*WORDS)
    sweep.wait_until((module_program.folder / "hangs").exists, "the second trial")
    sweep.kill()
    (module_program.folder / "killed").touch()
    return module_program.call("resume", "study.name=asks")


@pytest.fixture
def records(module_program: Program) -> Records:
    return Records(module_program.folder, "asks")


def given(folder: Path, number: int) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / f"given-{number}").read_text().splitlines()]


def test_it_goes_on_after_a_kill_and_all_is_done(ended: Done) -> None:
    assert (ended.code, ended.stderr) == (0, "")
    assert f"asks: 1 finished, {N_TRIALS - 1} pruned" in ended.stdout
    assert "  lr: log:1e-05..0.1\n" in ended.stdout
    assert "  # its range depends on the other values" in ended.stdout


def test_a_trial_that_was_killed_is_given_the_same_again(
    ended: Done, module_program: Program
) -> None:
    before, after = given(module_program.folder, 1)
    assert before == after
    assert before.keys() == {"n", "b", "lr"}


def test_a_trial_is_pruned_at_the_report_just_made(ended: Done, records: Records) -> None:
    outcomes = records.outcomes()
    assert isinstance(outcomes.pop(0), FinishedOutcome)
    assert all(isinstance(outcome, PrunedOutcome) for outcome in outcomes.values())
    steps = sorted((trial, step) for trial, step in records.losses() if trial)
    assert steps == [(trial, 0) for trial in range(1, N_TRIALS)]


def test_each_trial_has_the_params_that_it_asked_for_and_no_others(
    ended: Done, records: Records, module_program: Program
) -> None:
    params = records.params()
    for number in range(N_TRIALS):
        first = given(module_program.folder, number)[-1]
        assert params[number].items() >= first.items()
        assert params[number].keys() - first.keys() == ({"kind"} if first["n"] != 1 else set())


def test_optuna_and_mlflow_have_what_the_trial_was_given(
    ended: Done, records: Records, module_program: Program
) -> None:
    trials, runs = records.optuna_study().trials, records.trial_runs()
    for number in range(N_TRIALS):
        asked = given(module_program.folder, number)[-1]
        assert trials[number].params.items() >= asked.items()
        assert trials[number].user_attrs["by"] == f"objective {number}"
        run = runs[number].data
        assert run.params.items() >= {name: str(value) for name, value in asked.items()}.items()
        assert run.tags["by"] == f"objective {number}"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("objective.target=tests.end_to_end.optunas:nothing",), "has no nothing"),
        (("objective.target=shutil:copyfile",), "missing a required argument"),
        (("sampler=grid",), "sampler=grid: goes over the space that is written"),
        ((), "objective=optuna needs objective.target=module:function"),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_trial(
    call: Call, folder: Path, words: tuple[str, ...], said: str
) -> None:
    target = () if not words or "target" in words[0] else WORDS[3:4]
    done = call("objective=optuna", *target, *words)
    assert done.code == 2
    assert said in done.stderr
    assert not (folder / "studies").exists()
