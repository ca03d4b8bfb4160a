"""Orders that found a fault, by hand: what was wrong stands above each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.orders.study_machine import StudyMachine, machine_with

pytestmark = pytest.mark.slow


@pytest.fixture
def study(empty_database: Path) -> Iterator[StudyMachine]:
    machine = machine_with(empty_database)()
    yield machine
    machine.teardown()


def test_a_trial_that_repeats_a_report_can_be_stopped(study: StudyMachine) -> None:
    """It never learned that it should stop, and ran on until the grace was over."""
    study.begin(kind="held", n_trials=3, has_runs=False, may_refit=False)
    study.stop_a_trial(which=1, outcome="pruned")
    study.stop_the_sweep("SIGTERM")


def test_a_trial_that_is_left_to_the_next_sweep_runs_no_more(study: StudyMachine) -> None:
    """`status` had three trials that ran, where two may."""
    study.begin(kind="held", n_trials=3, has_runs=False, may_refit=False)
    study.stop_a_trial(which=1, outcome="interrupted")


def test_delete_finds_the_runs_in_the_second_folder_of_a_process(
    study: StudyMachine, empty_database: Path
) -> None:
    """It looked for them in the store of the first, and a trial of the next study had two runs."""
    study.begin(kind="ask", n_trials=2, has_runs=True, may_refit=False)
    study.delete_and_begin_anew(kind="ask", n_trials=2)
    second = machine_with(empty_database)()
    second.begin(kind="sweep", n_trials=2, has_runs=True, may_refit=False)
    second.delete_and_begin_anew(kind="sweep", n_trials=2)
    second.teardown()
