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
