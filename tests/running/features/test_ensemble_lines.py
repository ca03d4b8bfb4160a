"""What is said of an ensemble."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from automl.record.study_record import record_from_events
from automl.running.features.ensemble import (
    MAX_MODELS,
    N_OF_EACH,
    ensemble_candidates,
    ensemble_lines,
    importance_seconds,
    kept_pictures_seconds,
)
from automl.search.trial_standings import RankedTrial
from automl.trial import (
    EnsembleBuilt,
    Event,
    FinishedOutcome,
    MetricsReported,
    SweepStarted,
    TrialStarted,
    TrialState,
)


def said(metric: str, members: dict[int, float]) -> str:
    events: list[Event] = [SweepStarted(0.0, "s", "u", {"study.metric": metric})]
    for number, family in enumerate(("mlp", "trees", "mlp")):
        events.append(TrialStarted(number, 1.0, {"family": family}, "cpu"))
        events.append(MetricsReported(number, 2.0, 0, {metric: 0.5}))
        events.append(FinishedOutcome(number, 3.0, 0.5))
    made = EnsembleBuilt(9.0, 1000, members, {"loss": 0.25, "error": 0.125}, {})
    return ensemble_lines(made, record_from_events(events), "family", Path("studies/s"))[0]


def test_of_each_family_some_models_are_looked_at_however_many_are_better() -> None:
    """And no more than so many in all."""
    families = [*["kernel"] * 150, *["mlp"] * 20]
    ranking = [
        RankedTrial(number, 0.1, {"family": family}, TrialState.FINISHED)
        for number, family in enumerate(families)
    ]
    chosen = ensemble_candidates(ranking)
    assert chosen == [*range(MAX_MODELS - N_OF_EACH), *range(150, 150 + N_OF_EACH)]
    assert ensemble_candidates(ranking[:30]) == [*range(30)]


def test_it_is_said_by_the_metric_of_the_study() -> None:
    rows = "on 1,000 rows that none of them trained on; the best trial's"
    of = "ensemble of 3 models (2 mlp, 1 trees)"
    three = {0: 0.5, 1: 0.3, 2: 0.2}
    assert said("val_loss", three) == f"{of}: loss 0.25 {rows} val_loss is 0.5"
    assert said("val_error", three) == f"{of}: error 0.125 {rows} val_error is 0.5"
    assert said("train_loss", three) == f"{of}: loss 0.25 {rows} train_loss is 0.5"


def test_the_best_trial_is_measured_as_the_ensemble_is() -> None:
    """Its value, 0.5, is the mean over divisions of the rows; the ensemble is of their mean."""
    events: list[Event] = [SweepStarted(0.0, "s", "u", {"study.metric": "val_loss"})]
    for number, value in enumerate((0.5, 0.6)):
        events.append(TrialStarted(number, 1.0, {}, "cpu"))
        events.append(MetricsReported(number, 2.0, 0, {"val_loss": value}))
        events.append(FinishedOutcome(number, 3.0, value))
    made = EnsembleBuilt(9.0, 9, {0: 0.5, 1: 0.5}, {"loss": 0.25}, {}, {0: {"loss": 0.2}})
    record = record_from_events([*events, made])
    assert ensemble_lines(made, record, None, Path("studies/s"))[0].endswith(
        "the best trial's loss is 0.2"
    )
    assert record.best_ensemble is None, "the best trial is better"
    assert record_from_events([*events, replace(made, alone={})]).best_ensemble is not None


def test_where_its_pictures_are_is_said(tmp_path: Path) -> None:
    made = EnsembleBuilt(9.0, 1000, {0: 1.0}, {"loss": 0.25}, {})
    record = record_from_events([SweepStarted(0.0, "s", "u", {"study.metric": "val_loss"})])
    assert len(ensemble_lines(made, record, None, tmp_path)) == 2
    (tmp_path / "plots").mkdir()
    said = ensemble_lines(made, record, None, tmp_path)[-1]
    assert said.startswith("what it found: ")
    assert said.endswith("/plots")


def test_one_alone_is_no_mean() -> None:
    assert said("val_loss", {1: 1.0}).startswith("ensemble of trial 1 alone, which no other makes")


@pytest.mark.parametrize(
    ("limit_seconds", "kept_seconds"), [(30, 0), (59, 0), (60, 6), (90, 9), (120, 12), (3600, 20)]
)
def test_a_sweep_that_draws_keeps_time_for_it(limit_seconds: float, kept_seconds: float) -> None:
    assert kept_pictures_seconds(limit_seconds) == pytest.approx(kept_seconds)


@pytest.mark.parametrize(("left", "seconds"), [(-5, 1), (9, 4.5), (100, 20), (math.inf, 20)])
def test_finding_what_matters_leaves_time_for_the_pictures(left: float, seconds: float) -> None:
    assert importance_seconds(left) == seconds
