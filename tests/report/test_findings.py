"""What a report derives from a study: gains, agreements of rungs, times of devices."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from automl.report_page.findings import (
    device_seconds,
    importances,
    range_edges,
    rung_agreements,
    search_gain,
)
from automl.report_page.front_section import front_volumes
from automl.report_page.param_sections import path_section
from automl.report_page.study_data import TrialExecution, read_study_data
from automl.report_page.work_sections import whole_percents
from automl.running.features.report_page import make_report
from automl.search.gain_forecast import expected_gain
from automl.trial import (
    Direction,
    Event,
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    MetricsReported,
    OutOfMemoryOutcome,
    Params,
    ParamsSuggested,
    TrialStarted,
)
from tests.report.studies import BEGUN, searched, write_study


def test_the_gain_of_more_trials_is_forecast_from_twenty_on(tmp_path: Path) -> None:
    values = [1.0, 0.9, 0.8, 0.8, 0.8, 0.8, 0.5, 0.7, 0.4, *[0.9] * 11]
    events = []
    for number, value in enumerate(values):
        events += [
            TrialStarted(number, BEGUN, {"lr": 0.01}, "cpu"),
            MetricsReported(number, BEGUN + number, 0, {"val_loss": value}),
            FinishedOutcome(number, BEGUN + number, value),
        ]
    data = read_study_data(write_study(tmp_path / "any", events))
    gain = search_gain(data.valued, Direction.minimize)
    assert gain is not None
    assert (gain.first, gain.best, gain.n_since) == (1.0, 0.4, 11)
    assert gain.forecast == expected_gain(values)
    few = search_gain(data.valued[:19], Direction.minimize)
    assert few is not None
    assert few.forecast is None
    assert search_gain([], Direction.minimize) is None


def test_the_param_that_decides_is_the_most_important(tmp_path: Path) -> None:
    data = read_study_data(write_study(tmp_path / "any", searched(300)))
    first, second = importances(data)
    assert (first.name, second.name) == ("lr", "width")
    assert first.low > second.high


def test_a_param_that_only_some_trials_have_is_judged_among_those(tmp_path: Path) -> None:
    events = []
    for number in range(40):
        momentum = {"momentum": (number % 20) / 20} if number % 2 else {}
        value = 1.0 + abs(momentum.get("momentum", 0.5) - 0.5)
        events += [
            TrialStarted(number, BEGUN, {"lr": 0.001 * (1 + number % 7), **momentum}, "cpu"),
            MetricsReported(number, BEGUN, 0, {"val_loss": value}),
            FinishedOutcome(number, BEGUN + 1, value),
        ]
    found = importances(read_study_data(write_study(tmp_path / "any", events)))
    assert {i.name: i.is_conditional for i in found} == {"momentum": True}
    assert found[0].share > 0.8


def test_a_param_that_the_sampler_has_fixed_counts_by_the_space(tmp_path: Path) -> None:
    """Nearly all trials use adam; the few others are far worse."""
    draw, events = random.Random(0), list[Event]()
    for number in range(161):
        kind = "adam" if number >= 16 else ("sgd", "rmsprop")[number % 2]
        params: Params = {"optimizer": kind, "width": draw.uniform(8, 64)}
        value = {"adam": 0.10, "sgd": 0.26, "rmsprop": 0.56}[kind] + abs(draw.gauss(0, 0.02))
        events += [
            TrialStarted(number, BEGUN, params, "cpu"),
            FinishedOutcome(number, BEGUN + 1, value),
        ]
    first, second = importances(read_study_data(write_study(tmp_path / "any", events)))
    assert first.name == "optimizer"
    assert first.low > 0.6
    assert second.share < 0.2


def test_values_that_follow_no_param_have_no_importances(tmp_path: Path) -> None:
    draw = random.Random(0)
    data = read_study_data(
        write_study(tmp_path / "any", searched(300, lambda params: draw.random()))
    )
    assert importances(data) == []
    page = make_report(tmp_path / "any").read_text("utf-8")
    assert "The values of 300 trials do not tell which param matters" in page


def test_few_trials_have_no_importances(tmp_path: Path) -> None:
    write_study(tmp_path / "any", searched(8))
    page = make_report(tmp_path / "any").read_text("utf-8")
    assert "8 trials with a value are too few to say which param matters" in page
    assert "importance of params" not in page


def test_a_rung_agrees_with_the_end_if_the_order_of_trials_stays(tmp_path: Path) -> None:
    data = read_study_data(write_study(tmp_path / "any", searched(40)))
    (rung,) = rung_agreements(data)
    assert rung.step == 2
    assert rung.correlation == pytest.approx(1.0)
    assert rung.n_stopped + rung.n_compared == 40


def test_trials_that_share_a_device_share_its_time() -> None:
    both = [
        TrialExecution(0, "cpu", 0.0, 10.0, "finished"),
        TrialExecution(1, "cpu", 5.0, 10.0, "pruned"),
        TrialExecution(2, "gpu", 0.0, 4.0, "failed"),
    ]
    assert device_seconds(both) == {"finished": 7.5, "pruned": 2.5, "failed": 4.0}


def test_executions_that_had_to_be_repeated_are_told_apart(tmp_path: Path) -> None:
    events = [
        TrialStarted(0, BEGUN, {"lr": 0.1}, "cpu"),
        OutOfMemoryOutcome(0, BEGUN + 2, "no room"),
        TrialStarted(0, BEGUN + 3, {"lr": 0.1}, "cpu"),
        InterruptedOutcome(0, BEGUN + 4, "its process died", by_worker_death=True),
        TrialStarted(0, BEGUN + 5, {"lr": 0.1}, "cpu"),
        FinishedOutcome(0, BEGUN + 9, 1.0),
    ]
    data = read_study_data(write_study(tmp_path / "any", events))
    states = [(e.state, e.end_seconds - e.start_seconds) for e in data.executions]
    assert states == [("repeated", 2.0), ("repeated", 1.0), ("finished", 4.0)]


def test_a_trial_that_was_running_when_its_sweep_was_killed_ran_until_its_last_event(
    tmp_path: Path,
) -> None:
    events = [
        TrialStarted(0, BEGUN, {"lr": 0.1}, "cpu"),
        MetricsReported(0, BEGUN + 6, 0, {"val_loss": 1.0}),
        TrialStarted(0, BEGUN + 90_000, {"lr": 0.1}, "cpu"),
        FinishedOutcome(0, BEGUN + 90_004, 1.0),
    ]
    data = read_study_data(write_study(tmp_path / "any", events))
    seconds = [e.end_seconds - e.start_seconds for e in data.executions]
    assert seconds == [6.0, 4.0]


@pytest.mark.parametrize("parts", [[1, 1, 1], [5.0, 0.001], [0.4, 34.4, 33.4, 31.8], [7], [0, 0]])
def test_shares_of_the_cost_add_up(parts: list[float]) -> None:
    shares = whole_percents(parts)
    assert sum(shares) == (100 if sum(parts) else 0)
    assert all(abs(n - 100 * p / (sum(parts) or 1)) < 1 for n, p in zip(shares, parts, strict=True))


def test_the_cost_names_every_state_that_has_a_share(tmp_path: Path) -> None:
    events = [
        TrialStarted(0, BEGUN, {"lr": 0.1}, "cpu"),
        FailedOutcome(0, BEGUN + 2, "ValueError: no"),
        TrialStarted(1, BEGUN + 2, {"lr": 0.2}, "cpu"),
        FinishedOutcome(1, BEGUN + 5, 1.0),
        TrialStarted(2, BEGUN + 5, {"lr": 0.3}, "cpu"),
        InterruptedOutcome(2, BEGUN + 6, "stopped"),
    ]
    page = make_report(write_study(tmp_path / "any", events)).read_text("utf-8")
    assert "50% for finished trials, 33% for failed ones, 17% for interrupted ones." in page


@pytest.mark.parametrize(
    ("first", "told"),
    [(0.0, "no change brings a better value."), (1.0, "x = 0.49 brings most: from ")],
)
def test_the_way_to_the_knee_of_a_front_is_told_by_one_metric_and_says_so(
    tmp_path: Path, first: float, told: str
) -> None:
    events: list[Event] = []
    for number, x in enumerate([first, *(n / 50 for n in range(51)), 0.49]):
        loss, seconds = x * x, (1 - x) ** 2 if x != 0.49 else 0.2
        values = {"val_loss": loss, "seconds": seconds}
        events.append(TrialStarted(number, BEGUN, {"x": x}, "cpu"))
        events.append(FinishedOutcome(number, BEGUN + 1, loss, values=values))
    settings = {"study.metric": "val_loss, seconds", "study.direction": "minimize, minimize"}
    section = path_section(read_study_data(write_study(tmp_path / "any", events, settings)))
    assert section is not None
    way = f"From the first trial's params to those of trial 52, the knee of the front, {told}"
    assert section.sentences[0].startswith(way)
    assert section.sentences[0].endswith(
        "Only val_loss is told here; what a change brings by seconds may make up for a loss."
    )


def test_the_volume_of_the_front_grows_to_its_part_of_the_box(tmp_path: Path) -> None:
    points = [(1.0, 0.0), (0.0, 1.0), (0.9, 0.9), (0.5, 0.5)]
    events: list[Event] = []
    for number, (first, second) in enumerate(points):
        values = {"val_loss": first, "seconds": second}
        events += [
            TrialStarted(number, BEGUN + number, {"lr": 0.1}, "cpu"),
            FinishedOutcome(number, BEGUN + number + 0.5, first, values=values),
        ]
    settings = {"study.metric": "val_loss, seconds", "study.direction": "minimize, minimize"}
    data = read_study_data(write_study(tmp_path / "any", events, settings))
    volumes = front_volumes(data)
    assert volumes is not None
    assert [i for i, _ in volumes] == [1, 2, 3, 4]
    assert [volume for _, volume in volumes] == pytest.approx([0, 0, 0.01, 0.25], abs=1e-6)


LR = {"low": 1e-4, "high": 1e-1, "log": True, "step": None}


@pytest.mark.parametrize(
    ("last", "low", "is_declared"),
    [(LR, 1e-4, True), ({**LR, "low": 1e-5}, 1e-5, False)],
    ids=["alike", "varies"],
)
def test_the_scale_of_a_param_is_that_with_which_the_objective_asked_for_it(
    tmp_path: Path, last: Mapping[str, object], low: float, *, is_declared: bool
) -> None:
    events: list[Event] = []
    for number, (lr, entry) in enumerate([(0.01, LR), (0.02, LR), (0.05, last)]):
        events.append(TrialStarted(number, BEGUN, {}, "cpu"))
        events.append(ParamsSuggested(number, BEGUN, {"lr": lr}, {"lr": entry}))
        events.append(FinishedOutcome(number, BEGUN + 1, 1.0 - lr))
    settings = {"study.metric": "val_loss"}
    data = read_study_data(write_study(tmp_path / "any", events, settings))
    (scale,) = data.scales.values()
    assert (scale.categories, scale.low, scale.high, scale.is_log) == ((), low, 0.1, True)
    assert scale.is_declared is is_declared, "only a range that is the same for all has an end"


@pytest.mark.parametrize(
    ("low", "high", "best", "override"),
    [
        (0.0, 0.5, 0.0, None),  # a dropout, which has no values below 0
        (0.0, 0.5, 0.5, "space.x.high=0.75"),
        (0.2, 0.9, 0.9, "space.x.high=1"),
        (0.2, 1.0, 1.0, None),
        (0.1, 0.5, 0.1, "space.x.low=0"),
        (-1.0, 1.0, -1.0, "space.x.low=-2"),
        (2, 8, 8, "space.x.high=11"),
        (2, 8, 2, "space.x.low=1"),
        (0, 8, 0, None),
    ],
)
def test_a_range_is_widened_to_where_values_may_be(
    tmp_path: Path, low: float, high: float, best: float, override: str | None
) -> None:
    settings = {"study.metric": "val_loss", "space.x.low": str(low), "space.x.high": str(high)}
    middle = type(low)((low + high) / 2)
    events: list[Event] = []
    for number, (x, value) in enumerate(((best, 0.5), (middle, 0.9))):
        events.append(TrialStarted(number, BEGUN, {"x": x}, "cpu"))
        events.append(FinishedOutcome(number, BEGUN + 1, value))
    data = read_study_data(write_study(tmp_path / "any", events, settings))
    found = data.record.best()
    assert found is not None
    assert [edge.override for edge in range_edges(data, found)] == ([override] if override else [])
