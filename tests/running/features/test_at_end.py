"""When a sweep trains what it came to again on all rows, and the time that it keeps for it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from automl.config import (
    Config,
    DataConfig,
    DataKind,
    ExecutionKind,
)
from automl.models.families.auto.family import AutoFamily
from automl.models.families.trees.family import TreesFamily
from automl.models.family import Family
from automl.record.study_files import StudyFiles
from automl.record.study_record import record_from_events
from automl.record.trial_record import TrialRecord
from automl.running.features.feature import SweepClock
from automl.running.features.refit_at_end import (
    START_SECONDS,
    TrialLengths,
    is_refit_newest,
    makespan_seconds,
    reason_against_refit,
    refit_time_refusal,
    reserved_refit_seconds,
    seconds_to_best,
    wants_sweep_refit,
)
from automl.running.prepare.preparation import prepare_study
from automl.running.prepare.prepared_config import PreparedStudy
from automl.search.pruners.none import NoPruner
from automl.search.samplers.random import IndependentSampler
from automl.trial import (
    Event,
    FinishedOutcome,
    InterruptedOutcome,
    MetricsReported,
    SweepStarted,
    TrialStarted,
)
from tests.models.tables import TARGET, mixed_frame


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedStudy:
    path = tmp_path_factory.mktemp("table") / "table.csv"
    mixed_frame(2).assign(day=range(len(mixed_frame(2)))).to_csv(path, index=False)
    data = DataConfig(kind=DataKind.csv, path=str(path), target=TARGET, folds=1)
    return prepare_study(
        Config(
            data=data,
            model=AutoFamily(),
            sampler=IndependentSampler(),
            pruner=NoPruner(),
            space=SPACE,
        )
    )


SPACE: dict[str, Any] = {"family": {"choices": ["linear", "trees"]}, "linear_l2": 1.0}


def changed(prepared: PreparedStudy, **parts: Any) -> PreparedStudy:
    """The same with parts of its config changed, by setting."""
    config = prepared.config
    return replace(
        prepared,
        config=replace(config, **{k: replace(getattr(config, k), **v) for k, v in parts.items()}),
    )


def test_it_is_for_one_hold_out_of_a_table_over_any_family(prepared: PreparedStudy) -> None:
    assert wants_sweep_refit(prepared)
    assert not reason_against_refit(prepared)
    for parts in (
        {"study": {"finish": ["ensemble", "plots"]}},
        {"study": {"finish": ["refit", "plots"]}},
        {"data": {"kind": DataKind.digits, "path": None, "target": None}},
    ):
        assert not wants_sweep_refit(changed(prepared, **parts))
    assert not wants_sweep_refit(
        replace(prepared, plan=replace(prepared.plan, family=TreesFamily()))
    )
    assert prepared.dataset is not None
    folds = prepare_study(changed(prepared, data={"folds": 3}).config)
    assert not wants_sweep_refit(folds)
    in_order = prepare_study(changed(prepared, data={"folds": 3, "time": "day"}).config)
    assert in_order.dataset is not None
    assert all(fold.train.max() < fold.judged.min() for fold in in_order.dataset.folds)
    assert wants_sweep_refit(in_order), "no fold has trained on the latest rows"


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"study": {"storage": "postgresql://db/s"}}, "several sweeps work on the study"),
        ({"execution": {"kind": ExecutionKind.ray}}, "it takes this machine alone"),
        ({"data": {"sweep_rows": 100}}, "the search had a part of the rows"),
    ],
)
def test_what_speaks_against_it_is_said(
    prepared: PreparedStudy, parts: dict[str, Any], why: str
) -> None:
    found = changed(prepared, **parts)
    assert wants_sweep_refit(found)
    assert reason_against_refit(found).startswith(why)


def searched(*, interrupted: bool = False, finished: bool = True) -> TrialRecord:
    """Four epochs in eight seconds, the third of which is the best."""
    events: list[Event] = [SweepStarted(0.0, "a", "u", {}), TrialStarted(0, 100.0, {}, "cpu")]
    if interrupted:
        events += [InterruptedOutcome(0, 101.0, "Ctrl-C"), TrialStarted(0, 102.0, {}, "cpu")]
    for step, loss in enumerate((0.4, 0.3, 0.2, 0.3)):
        events.append(MetricsReported(0, 102.0 + 2 * step, step, {"val_loss": loss}))
    events += [FinishedOutcome(0, 108.0, 0.2)] * finished
    return record_from_events(events).trials[0]


def test_a_trial_is_repeated_to_its_best_epoch() -> None:
    assert seconds_to_best(searched()) == 6
    assert seconds_to_best(searched(interrupted=True)) == 0
    assert seconds_to_best(searched(finished=False)) == 0


def test_trials_of_this_sweep_alone_tell_how_long_they_take() -> None:
    lengths = TrialLengths()
    lengths.began(0, 100.0)
    lengths.began(1, 101.0)
    lengths.ended(1, 105.0)
    lengths.ended(7, 105.0)
    assert lengths.of([1, 0, 7]) == [4]


def test_trainings_side_by_side_take_as_long_as_the_longest_behind_the_others() -> None:
    assert makespan_seconds([6, 2, 4], 1) == 12
    assert makespan_seconds([6, 2, 4], 2) == 9
    assert makespan_seconds([], 2) == 0


def test_a_small_part_of_the_time_is_kept_for_it_or_none() -> None:
    assert reserved_refit_seconds(20, 400) == 20 + START_SECONDS
    assert reserved_refit_seconds(20, 200) == 0
    assert reserved_refit_seconds(0, 1000) == 0, "nothing is known"


def test_without_time_for_it_that_is_said() -> None:
    assert refit_time_refusal(20, None, None) == ""
    assert refit_time_refusal(20, 21, 100) == ""
    said = "that takes about 20 s, and of study.timeout_seconds=100 19 s are left"
    assert refit_time_refusal(20, 19, 100) == said


@pytest.mark.parametrize(
    ("loading_seconds", "limit_seconds", "family", "trials_seconds"),
    [
        (6, 30, AutoFamily(), 21),
        (14, 30, AutoFamily(), 15),
        (20, 600, AutoFamily(), 570),
        (5, 30, TreesFamily(), 25),
        (40, 30, TreesFamily(), 15),
    ],
)
def test_a_sweep_on_a_slow_machine_ends_in_time(
    loading_seconds: float, limit_seconds: float, family: Family, trials_seconds: float
) -> None:
    """Its time counts from its call, and its end takes half as long as its loading; half of the
    limit is for trials."""
    clock = SweepClock(100.0 - loading_seconds, 100.0, has_long_end=family.choice is not None)
    assert clock.trials_until(limit_seconds, 0.0) - 100.0 == pytest.approx(trials_seconds, abs=1)
    assert clock.trials_until(limit_seconds, limit_seconds) - 100.0 == limit_seconds / 2


def test_one_from_after_the_last_trial_stays(tmp_path: Path) -> None:
    record = record_from_events(
        [SweepStarted(0.0, "a", "u", {}), TrialStarted(0, 1.0, {}, "cpu"), ENDED]
    )
    assert not is_refit_newest(tmp_path, record)
    file = StudyFiles(tmp_path).refit
    for seconds, is_it in ((99, False), (101, True)):
        file.touch()
        os.utime(file, (seconds, seconds))
        assert is_refit_newest(tmp_path, record) is is_it


ENDED = FinishedOutcome(0, 100.0, 0.2)
