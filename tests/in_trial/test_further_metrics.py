"""The further metrics of a trial: which value counts, what it measures, and what is missing."""

from __future__ import annotations

from pathlib import Path

from automl.in_trial.goal import StudyGoal
from automl.in_trial.reports.further_metrics import FurtherMetrics
from automl.in_trial.reports.outcomes import outcome_of_return
from automl.in_trial.reports.trial_reports import TrialReports
from automl.trial import Direction, FailedOutcome, FinishedOutcome, MetricsReported
from tests.in_trial.reporting import Clock
from tests.models.conftest import Listener, make_spec

NO_FILES = (None, None)


def make_record(folder: Path, *more: str, clock: Clock | None = None) -> TrialReports:
    goal = StudyGoal(
        "err", Direction.minimize, more_directions=(Direction.minimize,), more_metrics=more
    )
    return TrialReports(make_spec(folder, {}), goal, Listener(), 60.0, clock or Clock())


def test_a_value_is_that_of_the_report_that_counts_or_the_newest(tmp_path: Path) -> None:
    record = make_record(tmp_path, "ms", "size")
    for step, (err, ms) in enumerate([(3.0, 30.0), (1.0, 10.0), (2.0, 20.0)]):
        record.report(step, {"err": err, "ms": ms}, *NO_FILES)
    record.report(3, {"size": 7.0}, *NO_FILES)
    outcome = outcome_of_return(None, record)
    assert isinstance(outcome, FinishedOutcome)
    assert outcome.value == 1.0
    assert outcome.values == {"err": 1.0, "ms": 10.0, "size": 7.0}


def test_a_returned_value_counts_before_reported_ones(tmp_path: Path) -> None:
    record = make_record(tmp_path, "ms")
    record.report(0, {"err": 1.0, "ms": 10.0}, *NO_FILES)
    returned = {"err": 2.0, "ms": 5.0}
    record.conclude(returned)
    outcome = outcome_of_return(returned, record)
    assert isinstance(outcome, FinishedOutcome)
    assert outcome.values == {"err": 2.0, "ms": 5.0}


def test_a_metric_that_is_never_reported_is_named_and_ends_the_sweep(tmp_path: Path) -> None:
    record = make_record(tmp_path, "ms", "joule")
    record.report(0, {"err": 1.0, "ms": 10.0}, *NO_FILES)
    outcome = outcome_of_return(None, record)
    assert isinstance(outcome, FailedOutcome)
    assert "name joule, of which the trial has no finite value; reported: err, ms" in outcome.cause
    assert outcome.hopeless


def test_a_metric_that_is_not_finite_once_fails_its_trial_alone(tmp_path: Path) -> None:
    record = make_record(tmp_path, "ms")
    record.report(0, {"err": 1.0, "ms": float("nan")}, *NO_FILES)
    outcome = outcome_of_return(None, record)
    assert isinstance(outcome, FailedOutcome)
    assert not outcome.hopeless


def test_a_study_of_one_metric_has_no_further_values(tmp_path: Path) -> None:
    record = make_record(tmp_path)
    record.report(0, {"err": 1.0, "ms": 10.0}, *NO_FILES)
    outcome = outcome_of_return(None, record)
    assert isinstance(outcome, FinishedOutcome)
    assert outcome.values == {}


def test_a_trial_measures_its_seconds_and_its_model(tmp_path: Path) -> None:
    clock = Clock()
    record = make_record(tmp_path, "train_seconds", "model_bytes", clock=clock)
    clock.seconds = 2.0
    record.report(0, {"err": 1.0}, None, lambda: {"weights": [0.0] * 100})
    record.report(1, {"err": 2.0}, None, None)
    clock.seconds = 5.0
    record.finish()
    outcome = outcome_of_return(None, record)
    assert isinstance(outcome, FinishedOutcome)
    size = (tmp_path / "trial-00000" / "best.pt").stat().st_size
    assert outcome.values == {"err": 1.0, "train_seconds": 5.0, "model_bytes": float(size)}
    # Reports have them, too, so that the pruner can judge them; the first has no model yet.
    reports = [e for e in record.on_event.events if isinstance(e, MetricsReported)]  # type: ignore[attr-defined]
    assert reports[0].metrics["train_seconds"] == 2.0
    assert reports[1].metrics["model_bytes"] == size


def test_a_model_that_is_never_written_has_no_size(tmp_path: Path) -> None:
    record = make_record(tmp_path, "model_bytes")
    record.report(0, {"err": 1.0}, *NO_FILES)
    record.finish()
    outcome = outcome_of_return(None, record)
    assert isinstance(outcome, FailedOutcome)
    assert "It is the size of best.pt: report with a state" in outcome.cause


def test_a_metric_of_the_objective_is_not_measured_beside_it(tmp_path: Path) -> None:
    record = make_record(tmp_path, "train_seconds")
    record.report(0, {"err": 1.0, "train_seconds": 77.0}, *NO_FILES)
    record.finish()
    outcome = outcome_of_return(None, record)
    assert isinstance(outcome, FinishedOutcome)
    assert outcome.values["train_seconds"] == 77.0


def test_seconds_of_before_an_interruption_count() -> None:
    further = FurtherMetrics(("train_seconds",), seconds_before=10.0)
    assert further.measured(2.0, None, None) == {"train_seconds": 12.0}
