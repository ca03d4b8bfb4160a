"""A study in parts, after Ctrl-C and after kill -9, ends as one that was never interrupted."""

from __future__ import annotations

import signal
from dataclasses import dataclass

import pytest

from automl.trial import FinishedOutcome, MemoryPeakMeasured, RequestSource
from tests.end_to_end.program import Done, Program
from tests.end_to_end.records import Records

N_TRIALS, N_EPOCHS = 4, 60
WORDS = (
    f"study.n_trials={N_TRIALS}",
    "study.seed=5",
    f"training.epochs={N_EPOCHS}",
    "data.n_train=300",
    "data.n_validation=100",
    "space.width.high=32",
    "space.dropout=0.2",
    "sampler=random",
    "pruner=none",
    "devices.only=cpu",
    "execution.pack=off",
)


@dataclass(frozen=True)
class Story:
    """What was seen on the way."""

    whole: Records
    halves: Records
    interrupted: Done
    status_after: dict[int, str]
    """Of each trial's run in MLflow, after Ctrl-C."""
    n_interrupted: int
    parent_after: str
    ended: Done


@pytest.fixture(scope="module")
def told(module_program: Program) -> Story:
    whole, halves = (
        Records(module_program.folder, "whole"),
        Records(module_program.folder, "halves"),
    )
    assert module_program.call("study.name=whole", *WORDS).code == 0

    first = module_program.start("study.name=halves", *WORDS)
    first.wait_until(lambda: halves.n_lines() > 10, "ten events")
    first.signal(signal.SIGINT)
    interrupted = first.wait()
    n_interrupted = len(halves.interrupted())
    status = {number: run.info.status for number, run in halves.trial_runs().items()}
    parent = halves.parent().info.status

    second = module_program.start("resume", "study.name=halves")
    n_lines = halves.n_lines()
    second.wait_until(lambda: halves.n_lines() > n_lines + 20, "twenty more events")
    second.kill()

    ended = module_program.call("resume", "study.name=halves")
    halves.check_exact(N_TRIALS, N_EPOCHS, ["train_loss", "val_loss"])
    return Story(
        whole=whole,
        halves=halves,
        interrupted=interrupted,
        status_after=status,
        n_interrupted=n_interrupted,
        parent_after=parent,
        ended=ended,
    )


def test_ctrl_c_ends_with_the_line_that_resumes(told: Story) -> None:
    assert (told.interrupted.code, told.interrupted.stderr) == (130, "")
    assert "go on with: python -m automl resume halves" in told.interrupted.stdout


def test_an_interrupted_trial_is_scheduled_in_mlflow(told: Story) -> None:
    assert told.n_interrupted >= 1
    statuses = list(told.status_after.values())
    assert statuses.count("SCHEDULED") == told.n_interrupted
    assert set(statuses) <= {"SCHEDULED", "FINISHED"}
    assert told.parent_after == "SCHEDULED"


def test_it_ends_once_the_rest_is_done(told: Story) -> None:
    assert (told.ended.code, told.ended.stderr) == (0, "")
    assert f"halves: {N_TRIALS} finished" in told.ended.stdout


def test_the_halves_have_bit_for_bit_the_losses_of_the_whole(told: Story) -> None:
    numbers = range(N_TRIALS)
    params, whole_params = told.halves.params(), told.whole.params()
    assert [params[n] for n in numbers] == [whole_params[n] for n in numbers]
    losses, whole_losses = told.halves.losses(), told.whole.losses()
    assert {key: losses[key] for key in whole_losses} == whole_losses
    outcomes, whole_outcomes = told.halves.outcomes(), told.whole.outcomes()
    for number in numbers:
        ours, theirs = outcomes[number], whole_outcomes[number]
        assert isinstance(ours, FinishedOutcome)
        assert isinstance(theirs, FinishedOutcome)
        assert ours.value == theirs.value


def test_a_resumed_sweep_knows_the_memory_that_earlier_trials_took(program: Program) -> None:
    words = ("data.n_train=200", "training.epochs=3", "pruner=none", "tracking.uri=none")
    assert program.call("study.name=a", "study.n_trials=3", "devices.only=cpu", *words).code == 0
    assert program.call("resume", "study.name=a", "study.n_trials=4").code == 0
    peaks = [
        e for e in Records(program.folder, "a").of_trial(3) if isinstance(e, MemoryPeakMeasured)
    ]
    assert {peak.source for peak in peaks} <= {RequestSource.LEARNED, RequestSource.SEEN}
    assert peaks
