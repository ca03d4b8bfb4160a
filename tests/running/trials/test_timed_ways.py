"""Tests which ways of training are timed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from automl.config import ObjectiveConfig, ObjectiveKind, Precision, TrainingConfig
from automl.measure.gain.gain_messages import TrainingWay
from automl.objectives.training_plan import TrainingPlan
from automl.running.trials.step_timing import thread_counts, unvaried_reason, ways_to_time
from tests.models.conftest import make_plan
from tests.models.toy_family import MeanFamily

SMALL = {"depth": 1, "width": 8, "batch_size": 32}
LARGE = {"depth": 1, "width": 4096, "batch_size": 32}


@pytest.mark.parametrize(
    ("n_cores", "counts"),
    [(1, (1,)), (2, (1, 2)), (3, (1, 2, 3)), (6, (1, 2, 3, 4, 6)), (16, (1, 2, 3, 4, 8, 16))],
)
def test_threads_from_one_to_all_cores(n_cores: int, counts: tuple[int, ...]) -> None:
    assert thread_counts(n_cores) == counts


def test_each_way_differs_from_the_first_in_one_thing() -> None:
    first, *others = ways_to_time(make_plan(), SMALL, on_host=True, n_cores=2, pack="auto")
    assert first == TrainingWay()
    assert others == [
        TrainingWay(n_threads=2),
        TrainingWay(precision=Precision.bfloat16),
        TrainingWay(n_lanes=8),
        TrainingWay(n_lanes=32),
        TrainingWay(copies=True),
    ]


def test_threads_are_of_the_host_and_packs_of_what_fits_into_one() -> None:
    found = ways_to_time(make_plan(), LARGE, on_host=False, n_cores=8, pack="auto")
    assert found == (
        TrainingWay(),
        TrainingWay(precision=Precision.bfloat16),
        TrainingWay(copies=True),
    )


@pytest.mark.parametrize(("pack", "lanes"), [("none", {8, 32}), (6, {6}), (8, {2, 8})])
def test_packs_are_as_large_as_they_would_be(pack: int, lanes: set[int]) -> None:
    found = ways_to_time(make_plan(), SMALL, on_host=True, n_cores=1, pack=pack)
    assert {way.n_lanes for way in found if way.n_lanes > 1} == lanes


def test_weights_that_have_to_be_wide_are_what_others_are_compared_with() -> None:
    wide = make_plan(training=TrainingConfig(precision=Precision.float64))
    first, *others = ways_to_time(wide, LARGE, on_host=True, n_cores=1, pack="auto")
    assert first.precision is Precision.float64
    assert {way.precision for way in others} == {*Precision}


def users() -> TrainingPlan:
    return make_plan(objective=ObjectiveConfig(ObjectiveKind.python, "module:function"))


@pytest.mark.parametrize("plan", [users(), replace(make_plan(), family=MeanFamily())])
def test_what_is_not_ours_to_vary_is_said(plan: TrainingPlan) -> None:
    assert set(ways_to_time(plan, {}, on_host=True, n_cores=2, pack="auto")) == {
        TrainingWay(),
        TrainingWay(n_threads=2),
    }
    assert "not varied" in str(unvaried_reason(plan))
    assert unvaried_reason(make_plan()) is None
