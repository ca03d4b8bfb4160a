"""What a trial returns beside its reports: which value counts, and that a difference is known."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automl.in_trial.goal import StudyGoal
from automl.in_trial.reports.outcomes import outcome_of_return
from automl.in_trial.reports.trial_reports import TrialReports
from automl.objectives.repeats.repeated_trial import RepeatsProgress
from automl.objectives.training_session import TrainingSession
from automl.running.features.notices import ReturnedValues
from automl.trial import Direction, FinishedOutcome, TrialStarted
from tests.in_trial.reporting import Clock
from tests.models.conftest import HOST, Listener, make_plan, make_spec

METRICS = ("val_loss", "ms")
values = st.sampled_from([-2.0, 0.0, 0.046, 0.0461, 0.954, 1.0, 7.0])
report = st.dictionaries(st.sampled_from([*METRICS, "other"]), values)


def differ(value: float, reported: float) -> bool:
    return not math.isclose(value, reported, rel_tol=0.01)


@given(
    reports=st.lists(report, max_size=4),
    returned=st.none() | values | st.dictionaries(st.sampled_from([*METRICS, "other"]), values),
    direction=st.sampled_from(Direction),
)
def test_a_difference_between_returned_and_reported_values_is_in_the_outcome(
    reports: list[dict[str, float]],
    returned: float | dict[str, float] | None,
    direction: Direction,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        goal = StudyGoal(
            "val_loss", direction, more_directions=(Direction.minimize,), more_metrics=("ms",)
        )
        record = TrialReports(make_spec(Path(folder), {}), goal, Listener(), 60.0, Clock())
        for step, metrics in enumerate(reports):
            record.report(step, metrics, None, None)
        if isinstance(returned, dict):
            record.conclude(returned)
        outcome = outcome_of_return(returned, record)
    if not isinstance(outcome, FinishedOutcome):
        return
    of_returned = returned if isinstance(returned, dict) else {"val_loss": returned}
    for name, value in of_returned.items():
        if name in METRICS and value is not None:
            assert outcome.values[name] == value
    losses = [m["val_loss"] for m in record.reports.values() if "val_loss" in m]
    best = None
    if losses:
        best = min(losses) if direction is Direction.minimize else max(losses)
    is_contradicted = best is not None and differ(outcome.value, best)
    assert outcome.reported.get("val_loss") == (best if is_contradicted else None)
    told = [m["ms"] for m in reports if "ms" in m]
    if "ms" in outcome.reported:
        assert outcome.reported["ms"] in told
        assert differ(outcome.values["ms"], outcome.reported["ms"])
    if told and all(differ(outcome.values["ms"], reported) for reported in told):
        newest_holds_it = isinstance(returned, dict) and "ms" not in reports[-1]
        assert "ms" in outcome.reported or newest_holds_it
    if returned is None:
        assert not outcome.reported


def test_repeats_differ_by_their_means(tmp_path: Path) -> None:
    progress = RepeatsProgress(3, 2, "val_loss")
    progress.end(0, FinishedOutcome(6, 0.0, 0.9, reported={"val_loss": 0.1}))
    progress.end(1, FinishedOutcome(7, 0.0, 0.5))
    outcome = progress.outcome()
    assert isinstance(outcome, FinishedOutcome)
    assert (outcome.value, outcome.reported) == (0.7, {"val_loss": 0.3})


def test_the_metrics_of_folds_count_with_the_mean_of_the_repeats() -> None:
    progress = RepeatsProgress(3, 2, "val_loss")
    progress.end(0, FinishedOutcome(6, 0.0, 0.9, metrics={"val_loss": 0.9, "val_auc": 0.5}))
    progress.end(1, FinishedOutcome(7, 0.0, 0.5, metrics={"val_loss": 0.5, "val_error": 0.25}))
    outcome = progress.outcome()
    assert isinstance(outcome, FinishedOutcome)
    assert outcome.metrics == {"val_loss": 0.7}


def test_the_first_difference_of_a_study_is_told_once() -> None:
    notice = ReturnedValues([])
    assert notice.line(FinishedOutcome(0, 0.0, 0.5), "val_loss") is None
    line = notice.line(FinishedOutcome(1, 0.0, 0.954, reported={"val_loss": 0.046}), "val_loss")
    assert line is not None
    assert line.startswith("trial 1 returned val_loss 0.954, and its best report has 0.046")
    assert "return None" in line
    assert "report what is returned" in line
    again = FinishedOutcome(2, 0.0, 0.9, reported={"val_loss": 0.1})
    assert notice.line(again, "val_loss") is None


def test_of_several_metrics_the_one_that_differs_is_named() -> None:
    outcome = FinishedOutcome(4, 0.0, 0.1, (), {"val_loss": 0.1, "ms": 9.0}, {"ms": 3.0})
    line = ReturnedValues([]).line(outcome, "val_loss")
    assert line is not None
    assert line.startswith("trial 4 returned ms 9, and its best report has 3 ")


def test_a_returned_metric_that_is_not_kept_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def objective(trial: object) -> dict[str, float]:
        trial.report(0, {"val_loss": 0.25, "accuracy": 0.5})  # type: ignore[attr-defined]
        return {"val_loss": 0.9, "accuracy": 0.7}

    session = TrainingSession(make_plan(space=("lr", "width")), objective)
    for number in range(2):
        listener = Listener()
        listener(TrialStarted(number, 0.0, {}, "cpu"))
        session.run(make_spec(tmp_path, {"lr": 0.1, "width": 8}, number=number), HOST, listener)
        assert isinstance(listener.outcome, FinishedOutcome)
        assert listener.outcome.reported == {"val_loss": 0.25}
    assert [record.getMessage() for record in caplog.records] == [
        "the objective returns accuracy with another value than it reported at its last step: the "
        "report counts"
    ]
