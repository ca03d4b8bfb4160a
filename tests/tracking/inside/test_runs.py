"""What the runs of one objective are told apart by, when all are one in the sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from automl.tracking.inside.runs import (
    MAX_HISTORY,
    ChangedParamError,
    LoggedCall,
    LoggedRun,
    TrialRuns,
    is_same_param,
)
from automl.trial import LoggedPoint, ParamValue


def make_runs(*names: str | None, **own: ParamValue) -> tuple[TrialRuns, list[LoggedRun]]:
    runs = TrialRuns(own)
    return runs, [runs.begin(n, experiment_id="0", user="ann", start_ms=0) for n in names]


def points(*steps: int, name: str = "loss") -> list[LoggedPoint]:
    """Each with its place as value."""
    return [LoggedPoint(name, float(n), step, 1000 + n) for n, step in enumerate(steps)]


def steps_of(told: LoggedCall) -> list[int]:
    return [point.step for point in told.points]


@pytest.mark.parametrize(
    ("logged", "told"),
    [
        ([0, 1, 2], [0, 1, 2]),
        ([0, 0, 0], [0, 1, 2]),
        ([5, 10, 7], [5, 10, 7]),
        ([5, 5, 6], [5, 6, 7]),
        ([-3, -3], [-3, -2]),
        ([0, 1, 2, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5, 6]),
    ],
)
def test_a_metric_has_one_value_at_a_step_and_loses_none(
    logged: Sequence[int], told: Sequence[int]
) -> None:
    runs, (run,) = make_runs(None)
    assert steps_of(runs.log(run, points(*logged), {})) == told


def test_the_steps_of_the_next_run_follow_those_of_the_last() -> None:
    runs, (first, second) = make_runs(None, None)
    assert steps_of(runs.log(first, points(0, 1, 2), {})) == [0, 1, 2]
    told = runs.log(second, points(0, 1, 2), {})
    assert steps_of(told) == [3, 4, 5]
    assert "its steps are counted on" in told.remarks[0]
    assert [p.step for p in second.history["loss"]] == [0, 1, 2], "as it logged them"


def test_mlflows_default_step_is_counted_and_not_spoken_of() -> None:
    runs, (run,) = make_runs(None)
    assert runs.log(run, points(0, 0), {}).remarks == []


@pytest.mark.parametrize(
    ("value", "text", "same"),
    [
        (0.01, "0.010", True),
        (0.01, "1e-2", True),
        (0.01, "0.011", False),
        (32, "32.0", True),
        (True, "true", True),
        (True, "1", False),
        (None, "None", True),
        ("adam", "adam", True),
        ("adam", "Adam", False),
        ("nan", "nan", True),
    ],
)
def test_a_param_of_the_trials_may_be_logged_as_it_is(
    value: ParamValue, text: str, same: bool
) -> None:
    assert is_same_param(value, text) is same
    runs, (run,) = make_runs(None, x=value)
    assert runs.log(run, (), {"x": text}).params == ({} if same else {"logged.x": text})


@pytest.mark.parametrize(
    ("logged", "told"),
    [
        ([(0, {"a": "1"}), (1, {"a": "1"})], {"a": "1"}),
        ([(0, {"a": "1"}), (1, {"a": "2"})], {"a": "1", "b.a": "2"}),
        ([(1, {"a": "1"}), (0, {"a": "2"})], {"a": "1", "logged.a": "2"}),
        ([(0, {"a": "1"}), (1, {"a": "2"}), (2, {"a": "2"})], {"a": "1", "b.a": "2", "b-2.a": "2"}),
        ([(0, {"logged.x": "1", "x": "2"})], {"logged.x": "1", "logged.x.2": "2"}),
        ([(0, {"a": "1"}), (0, {"a": "1"})], {"a": "1"}),
    ],
)
def test_a_value_that_is_there_otherwise_stands_under_a_name_of_the_runs(
    logged: Sequence[tuple[int, Mapping[str, str]]], told: Mapping[str, str]
) -> None:
    runs, each = make_runs(None, "b", "b", x=0)
    found: dict[str, str] = {}
    for number, params in logged:
        new = runs.log(each[number], (), params).params
        assert not found.keys() & new.keys(), "a param is told once"
        found.update(new)
    assert found == told


def test_in_one_run_it_is_refused_as_mlflow_does_and_nothing_is_taken() -> None:
    runs, (run,) = make_runs(None)
    runs.log(run, (), {"a": "1"})
    with pytest.raises(ChangedParamError, match="key='a' was already logged with value='1'"):
        runs.log(run, points(0), {"b": "1", "a": "2"})
    assert run.params == {"a": "1"}
    assert steps_of(runs.log(run, points(0), {})) == [0]


def test_the_latest_value_is_that_of_the_largest_step() -> None:
    runs, (run,) = make_runs(None)
    runs.log(run, points(3, 7, 5), {})
    assert run.latest["loss"].step == 7


def test_what_is_kept_to_be_read_back_is_bounded() -> None:
    runs, (run,) = make_runs(None)
    told = runs.log(run, points(*range(MAX_HISTORY + 5)), {})
    assert len(told.points) == MAX_HISTORY + 5
    assert run.history["loss"][0].step == 5


def test_a_name_is_no_path() -> None:
    _, (_, run) = make_runs(None, "../../etc/x")
    assert run.label == "etc_x"
