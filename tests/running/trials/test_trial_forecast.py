"""How long a trial takes that was seen for a short time, and how many end."""

from __future__ import annotations

from itertools import cycle

import pytest

from automl.running.trials.trial_forecast import (
    ReportLimits,
    RowGrowth,
    TrialForecast,
    TrialObservation,
    extrapolate_part,
    extrapolate_trial,
    fill_from_arithmetic,
    schedule_trials,
)

FIXED = ReportLimits(n_most=20, n_likely=20, patience=None)
PATIENT = ReportLimits(n_most=200, n_likely=14, patience=14)


def seen(n_reports: int, n_to_best: int | None = None) -> TrialObservation:
    """Return a trial with reports after 3 s, 5 s, 7 s, …"""
    reports = tuple(3.0 + 2.0 * n for n in range(n_reports))
    return TrialObservation(reports, n_reports if n_to_best is None else n_to_best, None)


def test_a_trial_that_ended_is_known() -> None:
    observation = TrialObservation((1.0,), 1, ended_seconds=1.5, peaks=((0, 10), (1, 30)))
    found = extrapolate_trial(observation, FIXED)
    assert found is not None
    assert (found.seconds, found.peak_bytes) == (1.5, 30)


def test_the_rest_of_the_reports_take_as_long_as_those_seen() -> None:
    found = extrapolate_trial(seen(5), FIXED)
    assert found is not None
    assert found.seconds == pytest.approx(3 + 19 * 2)
    assert found.known_by == "5 of about 20 reports timed"


@pytest.mark.parametrize(
    ("n_reports", "n_to_best", "expected"),
    [
        (40, 40, 40 + 40 + 14),  # it improves on, for as long again
        (40, 33, round(33 + 33 / 2 + 14)),
        (40, 27, round(27 + 27 / 14 + 14)),  # its patience is nearly over
        (7, 7, round((7 + 7 + 14) / 2 + 3 * 14 / 2)),  # half of the patience was seen
        (150, 150, 200),  # never more than all
    ],
)
def test_patience_ends_a_trial_some_time_after_its_best_report(
    n_reports: int, n_to_best: int, expected: int
) -> None:
    found = extrapolate_trial(seen(n_reports, n_to_best), PATIENT)
    assert found is not None
    assert found.seconds == pytest.approx(3 + 2 * (expected - 1))


def test_memory_that_grows_with_each_report_grows_on() -> None:
    growing = TrialObservation((1.0, 2.0, 3.0), 3, None, peaks=((0, 5), (1, 100), (3, 140)))
    found = extrapolate_trial(growing, FIXED)
    assert found is not None
    assert found.peak_bytes == 140 + 17 * 20


def test_memory_of_a_trial_that_patience_ends_stays() -> None:
    growing = TrialObservation((1.0, 2.0, 3.0), 3, None, peaks=((0, 5), (1, 100), (3, 140)))
    found = extrapolate_trial(growing, PATIENT)
    assert found is not None
    assert found.peak_bytes == 140


def test_only_the_work_of_a_part_is_multiplied() -> None:
    assert extrapolate_part(1.5, share=1 / 15, fixed_seconds=0.5) == pytest.approx(15.5)
    assert extrapolate_part(0.2, share=1 / 15, fixed_seconds=0.5) == pytest.approx(0.2)


def test_a_trial_without_a_report_or_that_failed_tells_nothing() -> None:
    assert extrapolate_trial(seen(0, 0), FIXED) is None
    failed = TrialObservation((1.0,), 1, None, trouble="ValueError: no")
    assert extrapolate_trial(failed, FIXED) is None


def test_arithmetic_fills_in_by_how_far_it_was_off() -> None:
    short, long = TrialForecast(0.5, "timed"), TrialForecast(6.0, "timed")
    timed = {"short": short, "a": long, "b": None, "c": None}
    found = fill_from_arithmetic(timed, {"short": 0.05, "a": 3.2, "b": 10.0, "c": None})
    assert found["a"].known_by == "timed"
    assert found["b"].seconds == pytest.approx(20.0)
    assert "times 2" in found["b"].known_by
    assert found["c"].seconds is None
    assert fill_from_arithmetic({"b": None}, {"b": 10.0})["b"].seconds == 10.0


def test_trials_begin_where_one_ends() -> None:
    found = schedule_trials(cycle("ab"), {"a": 1.0, "b": 4.0}, 2, n_trials=5)
    # a 0-1, b 0-4, a 1-2, b 2-6, a 4-5
    assert found.seconds == 6.0
    assert found.n_by_kind == {"a": 3, "b": 2}
    assert found.trial_seconds == pytest.approx(11 / 5)


def test_within_a_limit_only_those_that_end_are_counted() -> None:
    found = schedule_trials(cycle("ab"), {"a": 1.0, "b": 4.0}, 1, limit_seconds=11.0)
    assert found.n_by_kind == {"a": 3, "b": 2}
    assert found.seconds == 11.0
    short = schedule_trials(cycle("ab"), {"a": 1.0, "b": 4.0}, 1, limit_seconds=10.5)
    assert short.n_by_kind == {"a": 2, "b": 2}


def test_some_trials_of_a_large_table_train_on_more_rows() -> None:
    growth = RowGrowth(50_000, 200_000)
    found = schedule_trials(cycle("a"), {"a": 1.0}, 1, n_trials=20, growth=growth)
    assert found.seconds == pytest.approx(18 * 1 + 2 * 4)
    limited = schedule_trials(cycle("a"), {"a": 1.0}, 1, limit_seconds=30.0, growth=growth)
    assert limited.n_trials == 10 + 20 // 4
