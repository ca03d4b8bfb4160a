"""A study of a week in virtual time, made small; the large one: `experiments/026-long-studies`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.running.loop.long_week import DAY, HOUR, WeekPlan, grown_objects, live_through

PER_TRIAL = {"FinishedOutcome", "TrialRecordBuilder", "TrialRecord"}
"""What the record and its view keep of each trial."""


@pytest.mark.slow
def test_what_a_sweep_holds_does_not_grow_through_all_that_happens(tmp_path: Path) -> None:
    week = WeekPlan(
        n_trials=40,
        trial_seconds=1.2 * HOUR,
        kills=[2.3 * HOUR, 7.1 * HOUR],
        disk_full=[(3 * HOUR, 5 * HOUR)],
        mlflow_away=[(6 * HOUR, 9 * HOUR)],
        clock_changes=[(4 * HOUR, HOUR), (8 * HOUR, -3 * HOUR)],
        look_seconds=HOUR,
    )
    held = live_through(week, tmp_path)
    first, last = held[0], held[-1]
    assert last.n_ended == 40
    assert last.seconds < DAY
    assert last.n_files <= first.n_files
    assert last.n_threads <= first.n_threads
    assert {name for name, *_ in grown_objects(first, last, more_than=12)} <= PER_TRIAL
