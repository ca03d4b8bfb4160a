"""The time of devices, as events come."""

from __future__ import annotations

from pathlib import Path

import pytest

from automl.record.device_time import DeviceTime
from automl.report_page.findings import device_seconds
from automl.report_page.study_data import read_study_data
from automl.trial import (
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    MetricsReported,
    TrialEvent,
    TrialStarted,
)
from tests.report.studies import searched, write_study


def started(trial: int, time: float, device: str = "cpu") -> TrialStarted:
    return TrialStarted(trial, time, {}, device)


def seconds(*events: TrialEvent, now: float = 0.0) -> float:
    devices = DeviceTime()
    for event in events:
        devices.take(event)
    return devices.seconds(now)


def test_trials_that_share_a_device_count_once_and_devices_add_up() -> None:
    events = [
        started(0, 0.0),
        started(1, 2.0),
        started(2, 3.0, "gpu"),
        FinishedOutcome(0, 5.0, 1.0),
        FinishedOutcome(1, 8.0, 1.0),
        FailedOutcome(2, 10.0, "no"),
        started(3, 20.0),
        FinishedOutcome(3, 21.0, 1.0),
    ]
    assert seconds(*events) == 8 + 7 + 1


def test_a_trial_that_runs_counts_until_now() -> None:
    events = [started(0, 0.0), started(1, 4.0), FinishedOutcome(0, 6.0, 1.0)]
    assert seconds(*events) == 6
    assert seconds(*events, now=9.0) == 9
    more = [started(2, 20.0), MetricsReported(2, 25.0, 0, {})]
    assert seconds(*events, FinishedOutcome(1, 7.0, 1.0), *more) == 7 + 5


def test_the_time_between_a_kill_and_the_resume_does_not_count() -> None:
    killed = [event for n in (0, 1) for event in (started(n, 0.0), MetricsReported(n, 9.0, 0, {}))]
    again = [started(0, 90_000.0), FinishedOutcome(0, 90_010.0, 1.0)]
    later = [started(1, 90_020.0), FinishedOutcome(1, 90_025.0, 1.0)]
    assert seconds(*killed, *again, *later) == 9 + 10 + 5


def test_a_trial_that_ran_nowhere_takes_no_time() -> None:
    assert seconds(started(0, 1.0, "none"), FailedOutcome(0, 5.0, "no room")) == 0
    assert seconds(InterruptedOutcome(0, 5.0, "twice")) == 0


def test_the_record_and_the_report_know_the_same_time(tmp_path: Path) -> None:
    data = read_study_data(write_study(tmp_path / "any", searched(30)))
    expected = sum(device_seconds(data.executions).values())
    assert data.record.device_seconds == pytest.approx(expected)
