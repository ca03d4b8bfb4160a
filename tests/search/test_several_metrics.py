"""A study of several metrics: what is better, the front, and who stops at a rung."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import optuna
import pytest

from automl.config import StudyConfig
from automl.errors import ConfigError
from automl.record.study_record import record_from_events
from automl.record.trial_record import metrics_from_settings
from automl.search.pruners.halving import SuccessiveHalving
from automl.search.samplers.gp import GPSampler
from automl.search.samplers.nsga2 import NSGA2
from automl.search.samplers.nsga3 import NSGA3
from automl.search.samplers.sampler import Sampler
from automl.search.samplers.tpe import TPE
from automl.search.study import Study
from automl.trial import (
    Direction,
    FinishedOutcome,
    MetricPoint,
    MetricsReported,
    PrunedOutcome,
    StudyMetric,
    StudyMetrics,
    SweepStarted,
    TrialStarted,
    Verdict,
    count_better,
    find_front,
    find_knee,
)
from automl.trial.study_metrics import hypervolume
from tests.search.conftest import Studies, ask

TWO: Mapping[str, Any] = {"metric": ["err", "ms"]}
LIMITED: Mapping[str, Any] = {"metric": ["err", "ms"], "constraints": {"bytes": "1KiB"}}


def points(*keys: tuple[float, ...]) -> list[MetricPoint]:
    return [MetricPoint(key) for key in keys]


def order_points(all_points: list[MetricPoint]) -> list[int]:
    return [count_better(all_points, point) for point in all_points]


def end(study: Study, err: float, ms: float, **limited: float) -> int:
    number = ask(study).number
    study.tell(number, FinishedOutcome(number, 0.0, err, (), {"err": err, "ms": ms, **limited}))
    return number


def report(study: Study, trial: int, step: int, **metrics: float) -> Verdict:
    return study.report([MetricsReported(trial, 0.0, step, metrics)])[trial]


# --- what is better -------------------------------------------------------------------------------


def test_no_point_of_a_front_is_worse_than_another() -> None:
    found = find_front(points((1, 9), (2, 2), (9, 1), (2, 9), (3, 3), (2, 2)))
    assert found == [0, 1, 5, 2]


def test_a_trial_beyond_a_limit_is_worse_than_all_within() -> None:
    within, beyond, further = (
        MetricPoint((9, 9)),
        MetricPoint((0, 0), 0.1),
        MetricPoint((0, 0), 2.0),
    )
    assert find_front([further, beyond, within]) == [2]
    assert find_front([further, beyond]) == [1]
    assert order_points([further, beyond, within]) == [2, 1, 0]


def test_a_front_agrees_with_optuna_on_random_points() -> None:
    draw = random.Random(0)
    study = optuna.create_study(directions=["minimize"] * 3)
    drawn = [tuple(draw.randint(0, 6) / 1 for _ in range(3)) for _ in range(60)]
    study.add_trials([optuna.create_trial(values=key) for key in drawn])
    assert sorted(find_front(points(*drawn))) == [trial.number for trial in study.best_trials]


@pytest.mark.parametrize(
    ("keys", "volume"),
    [
        ([(0.0, 0.0)], 1.0),
        ([(0.5, 0.0), (0.0, 0.5), (0.5, 0.5)], 0.75),
        ([(0.0, 0.0, 0.5), (0.5, 0.5, 0.0)], 0.5 + 0.125),
        ([(2.0, 0.0)], 0.0),
    ],
)
def test_the_volume_of_a_front(keys: list[tuple[float, ...]], volume: float) -> None:
    assert hypervolume(keys, (1.0,) * len(keys[0])) == pytest.approx(volume)


def test_equal_points_and_large_fronts_cost_little() -> None:
    draw = random.Random(0)
    equal = points(*[(1.0, 2.0)] * 300)
    assert count_better(equal, equal[0]) == 0
    places = order_points(points(*[(x := draw.random(), 1 - x) for _ in range(30)]))
    assert sorted(places) == list(range(30))


def test_within_a_front_what_adds_most_to_its_volume_comes_first() -> None:
    ends_middle_and_crowded = points((0, 10), (10, 0), (4, 4), (4.1, 3.9), (20, 20))
    places = order_points(ends_middle_and_crowded)
    assert sorted(places[:2]) == [0, 1]
    assert sorted(places[2:4]) == [2, 3]
    assert places[4] == 4
    assert order_points(points((1, 1), (1, 1), (2, 2))) == [0, 0, 2]


def test_the_knee_is_a_compromise() -> None:
    assert find_knee(points((0, 100), (0.1, 20), (1, 0))) == 1
    assert find_knee(points((3, 3))) == 0


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "direction", [["minimize", "maximize"], {"acc": "maximize"}, {"ms": None, "acc": "maximize"}]
)
def test_directions_go_by_place_or_by_name(direction: Any) -> None:
    metrics = StudyConfig(metric=["ms", "acc"], direction=direction).metrics
    assert [m.direction.value for m in metrics.metrics] == ["minimize", "maximize"]


def test_one_metric_in_a_list_is_one_metric() -> None:
    assert StudyConfig(metric=["err"]).metrics == StudyConfig(metric="err").metrics


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metric": ["a", "a"]}, "different"),
        ({"metric": []}, "name of a metric"),
        ({"metric": ["a", "b"], "direction": {"c": "minimize"}}, "does not name c; it names a, b"),
        ({"metric": ["a", "b"], "direction": ["minimize"]}, "a direction for each"),
        ({"metric": ["a", "b"], "direction": "up"}, r"expected one of \[minimize, maximize\]"),
        ({"constraints": {"bytes": "big"}}, r"study\.constraints\.bytes=big"),
        ({"constraints": {"bytes": 0}}, "greater than 0"),
    ],
)
def test_metrics_that_make_no_sense_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        StudyConfig(**settings)


def test_settings_of_the_log_give_the_metrics_back() -> None:
    settings = {
        "study.metric": "err, acc",
        "study.direction": "minimize, maximize",
        "study.constraints.bytes": "1KiB",
    }
    metrics = metrics_from_settings(settings)
    assert [m.direction for m in metrics.metrics] == [Direction.minimize, Direction.maximize]
    assert metrics.more_names == ("acc", "bytes")
    assert metrics.limits[0].largest == 1024
    # One metric may have a comma in its name, as before.
    one = {"study.metric": "a, b", "study.direction": "maximize"}
    assert metrics_from_settings(one).metrics == (StudyMetric("a, b", Direction.maximize),)


# --- the study ------------------------------------------------------------------------------------


def test_a_study_has_the_same_front_after_it_was_opened_again(studies: Studies) -> None:
    study = studies.open(**LIMITED)
    for err, ms, size in [(1, 9, 9), (3, 3, 9), (9, 1, 9), (4, 4, 9), (0, 0, 9999)]:
        end(study, err, ms, bytes=size)
    number = ask(study).number
    study.tell(number, PrunedOutcome(number, 0.0, 1, 0.5, {"err": 0.5}))
    for opened in (study, studies.reopen(study, **LIMITED)):
        assert [trial.number for trial in opened.front()] == [0, 1, 2]
        best = opened.best()
        assert best is not None
        assert best.number == 1
        # The one beyond the limit comes last, although its first metric is the best.
        assert [trial.number for trial in opened.ranking(9)][-1] == 4


def test_the_record_has_the_same_front() -> None:
    settings = {"study.metric": "err, ms", "study.direction": "minimize, minimize"}
    events: list[Any] = [SweepStarted(0.0, "a", "u", settings)]
    for number, (err, ms) in enumerate([(1, 9), (3, 3), (9, 1), (4, 4)]):
        values = {"err": float(err), "ms": float(ms)}
        events.append(TrialStarted(number, 0.0, {}, "cpu"))
        events.append(FinishedOutcome(number, 0.0, float(err), (), values))
    record = record_from_events(events)
    assert [trial.number for trial in record.front()] == [0, 1, 2]
    assert [trial.number for trial in record.ranking()] == [1, 0, 2, 3]


SAMPLERS: dict[str, Sampler] = {
    "tpe": TPE(n_startup_trials=5),
    "gp": GPSampler(n_startup_trials=5),
    "nsga2": NSGA2(population_size=5),
    "nsga3": NSGA3(population_size=5),
}


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_a_sampler_goes_towards_the_front(studies: Studies, sampler: Sampler) -> None:
    entries = {"x": {"low": 0.0, "high": 1.0}, "y": {"low": 0.0, "high": 1.0}}
    study = studies.open(entries=entries, sampler=sampler, **TWO)
    for _ in range(40):
        asked = study.ask()
        assert asked is not None
        x, y = float(asked.params["x"] or 0), float(asked.params["y"] or 0)
        values = {"err": x + y, "ms": 1 - x + y}
        number = asked.number
        if number % 5 == 4:
            study.tell(number, PrunedOutcome(number, 0.0, 1, values["err"], values))
        else:
            study.tell(number, FinishedOutcome(number, 0.0, values["err"], (), values))
    late = [float(study.params(n)["y"] or 0) for n in range(20, 40)]
    assert sum(late) / len(late) < 0.42  # at random 0.5
    # The next proposal follows from the stored trials alone.
    proposed = study._proposer.propose(40)
    again = studies.reopen(study, entries=entries, sampler=sampler, **TWO)
    assert ask(again).params == proposed


def test_halving_keeps_the_front_at_a_rung(studies: Studies) -> None:
    halving = SuccessiveHalving(min_steps=1, factor=2, min_trials=4)
    study = studies.open(pruner=halving, **TWO)
    reports = [(1, 9), (9, 1), (3, 3), (10, 10), (8, 8), (2, 2)]
    verdicts = []
    for err, ms in reports:
        verdicts.append(report(study, ask(study).number, 0, err=err, ms=ms))
    assert verdicts[:3] == [Verdict.GO_ON] * 3
    assert verdicts[3:5] == [Verdict.PRUNE] * 2
    assert verdicts[5] is Verdict.GO_ON


def test_halving_stops_what_is_beyond_a_limit_first(studies: Studies) -> None:
    halving = SuccessiveHalving(min_steps=1, factor=2, min_trials=2)
    study = studies.open(pruner=halving, **LIMITED)
    first = report(study, ask(study).number, 0, err=5, ms=5, bytes=10)
    second = report(study, ask(study).number, 0, err=1, ms=1, bytes=5000)
    assert (first, second) == (Verdict.GO_ON, Verdict.PRUNE)


def test_a_report_counts_with_the_newest_values_of_the_other_metrics(studies: Studies) -> None:
    halving = SuccessiveHalving(min_steps=2, factor=2, min_trials=2)
    study = studies.open(pruner=halving, **TWO)
    good, bad = ask(study).number, ask(study).number
    for trial, err in ((good, 1.0), (bad, 2.0)):
        report(study, trial, 0, err=9.0, ms=err)  # `ms` is measured once
    assert report(study, good, 1, err=1.0) is Verdict.GO_ON
    assert report(study, bad, 1, err=2.0) is Verdict.PRUNE


def test_a_study_that_is_opened_again_judges_by_the_rungs_of_before(studies: Studies) -> None:
    halving = SuccessiveHalving(min_steps=1, factor=2, min_trials=3)
    study = studies.open(pruner=halving, **TWO)
    for err, ms in ((1, 9), (9, 1)):
        report(study, ask(study).number, 0, err=err, ms=ms)
    study = studies.reopen(study, pruner=halving, **TWO)
    assert len(study.interrupted()) == 2
    assert report(study, ask(study).number, 0, err=10, ms=10) is Verdict.PRUNE


def test_metrics_of_one_name_alone_are_no_several() -> None:
    assert not StudyMetrics.single(Direction.minimize).are_several
    assert StudyConfig(metric="err", constraints={"bytes": 3}).metrics.are_several
