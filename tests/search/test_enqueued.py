"""Points that a user adds to a study while sweeps run."""

from __future__ import annotations

from typing import Any

import pytest

from automl.errors import ConfigError
from automl.search.samplers.cmaes import CMAES
from automl.search.samplers.grid import GridSampler
from automl.search.samplers.qmc import QMC
from automl.search.samplers.random import IndependentSampler
from automl.search.samplers.sampler import Sampler
from automl.search.samplers.tpe import TPE
from automl.search.search_space import EnqueuedPoint, parse_space
from automl.trial import FinishedOutcome
from tests.search.conftest import Studies

SPACE = parse_space(
    {"lr": {"low": 0.0, "high": 1.0}, "opt": {"choices": ["sgd", "adam"]}, "depth": 3}
)


def point(outside: bool = False, **params: Any) -> EnqueuedPoint:
    return EnqueuedPoint(params, "a-request:0", outside)


def test_a_point_in_the_space_is_taken_whole_or_in_part() -> None:
    for good in (point(lr=0.5), point(lr=1.0, opt="sgd", depth=3)):
        good.check(SPACE)
        assert good.outside(SPACE) == {}


@pytest.mark.parametrize("params", [{"lr": 2.0}, {"opt": "rmsprop"}, {"depth": 4}])
def test_a_value_outside_the_space_has_to_be_allowed(params: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"must be .* outside=true"):
        point(**params).check(SPACE)
    allowed = point(outside=True, **params)
    allowed.check(SPACE)
    assert allowed.outside(SPACE) == params


@pytest.mark.parametrize("outside", [False, True])
def test_a_param_that_the_space_lacks_is_refused(outside: bool) -> None:
    with pytest.raises(ConfigError, match=r"params\.width: no such param") as caught:
        point(outside, width=3, lr=0.5).check(SPACE)
    assert "outside=true" not in str(caught.value)


def test_an_enqueued_trial_is_known_again_and_is_asked_for_once(studies: Studies) -> None:
    study = studies.open()
    (trial,) = study.enqueue([EnqueuedPoint({"lr": 0.05}, "a-request:0")])
    assert (trial.number, trial.params["lr"]) == (0, 0.05)
    assert study.n_asked == 1
    study = studies.reopen(study)
    assert study.by_request == {"a-request:0": 0}
    assert study.interrupted() == (trial,), "it begins with the next sweep"


def test_points_are_enqueued_all_or_none(studies: Studies) -> None:
    study = studies.open()
    points = [EnqueuedPoint({"lr": lr}, f"r:{lr}") for lr in (0.05, 7.0)]
    with pytest.raises(ConfigError, match=r"params\.lr=7\.0"):
        study.enqueue(points)
    assert study.n_asked == 0


@pytest.mark.parametrize("sampler", [TPE(), IndependentSampler(), QMC(), CMAES()])
def test_samplers_go_on_beside_a_trial_outside_the_space(
    studies: Studies, sampler: Sampler
) -> None:
    entries = {"lr": {"low": 0.0, "high": 1.0}, "width": {"low": 0.0, "high": 4.0}}
    study = studies.open(entries=entries, sampler=sampler)
    point = EnqueuedPoint({"lr": 7.0}, "a-request:0", may_be_outside=True)
    (far,) = study.enqueue([point])
    study.tell(far.number, FinishedOutcome(far.number, 1.0, -5.0))
    study = studies.reopen(study, entries=entries, sampler=sampler)
    assert study.params(far.number)["lr"] == 7.0
    for _ in range(15):
        asked = study.ask()
        assert asked is not None
        lr = asked.params["lr"]
        assert isinstance(lr, float)
        assert 0 <= lr <= 1
        study.tell(asked.number, FinishedOutcome(asked.number, 1.0, lr))
    best = study.best()
    assert best is not None
    assert best.number == far.number, "it has its rank"


def test_a_value_other_than_the_fixed_one_is_there_when_the_study_is_opened_again(
    studies: Studies,
) -> None:
    study = studies.open()
    (far,) = study.enqueue([EnqueuedPoint({"dropout": 0.5}, "r:0", may_be_outside=True)])
    (kept,) = studies.reopen(study).interrupted()
    assert far.params["dropout"] == kept.params["dropout"] == 0.5


def test_a_grid_tries_each_point_though_others_are_enqueued_between(studies: Studies) -> None:
    entries = {"depth": {"low": 1, "high": 4}}
    study = studies.open(entries=entries, sampler=GridSampler())
    tried: list[object] = []
    while (asked := study.ask()) is not None:
        tried.append(asked.params["depth"])
        if len(tried) == 2:
            study.enqueue([EnqueuedPoint({"depth": 1}, "a-request:0")])
    assert len(tried) == 4
    assert set(tried) == {1, 2, 3, 4}
