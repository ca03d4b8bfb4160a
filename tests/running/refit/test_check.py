"""What is tried again after a search on a part of the rows, and what becomes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from automl.config import DataConfig, ObjectiveConfig, ObjectiveKind
from automl.config.command_arguments import RefitArguments
from automl.record.study_record import record_from_events
from automl.running.prepare.refit_task import RefitTask
from automl.running.prepare.resume_command import resume_command
from automl.running.refit.refit_study import TrainRowCounts
from automl.running.refit.winner_check import (
    check_summary,
    derive_check_config,
    is_check_due,
    params_variants,
    take_best_checked,
)
from automl.trial import (
    EnsembleBuilt,
    Event,
    FailedOutcome,
    FinishedOutcome,
    MetricsReported,
    ParamValue,
    SweepStarted,
    TrialStarted,
)
from tests.running.refit.test_derive import CONFIG, RECORD

WINNER, SIZES = RECORD.trials[0], TrainRowCounts(before=100, now=400)
TASK = RefitTask(CONFIG, RefitArguments(), Path("a"), [WINNER])
PART = replace(CONFIG, data=DataConfig(sweep_rows=0.25))


@pytest.mark.parametrize(
    ("params", "others"),
    [
        ({"lr": 0.4, "weight_decay": 0.1}, [(0.4, 0.025), (0.2, 0.025)]),
        ({"lr": 0.4}, [(0.2, None)]),
        ({"lr": 0.4, "weight_decay": 0.0}, [(0.2, 0.0)]),
        ({"width": 8}, [(0.0005, None)]),
    ],
)
def test_less_weight_decay_and_half_the_learning_rate(
    params: dict[str, ParamValue], others: list[tuple[float, float | None]]
) -> None:
    first, *rest = params_variants(params, SIZES)
    assert first == params
    assert [(one["lr"], one.get("weight_decay")) for one in rest] == others
    assert all(one.get("width") == params.get("width") for one in rest)


def test_only_after_a_part_and_where_params_are_known() -> None:
    assert is_check_due(PART)
    assert not is_check_due(CONFIG)
    assert not is_check_due(replace(PART, objective=ObjectiveConfig(ObjectiveKind.python, "a:b")))


def test_it_is_a_study_of_these_alone_judged_as_the_search_was() -> None:
    members = EnsembleBuilt(9.0, 100, {WINNER.number: 1.0}, {}, {})
    single = replace(TASK, config=PART)
    task = replace(single, ensemble=members)
    own = derive_check_config(task, WINNER, SIZES, {"data": 1})
    assert own.study.n_trials == len(own.study.enqueue) == 2
    assert own.space == {"lr": {"choices": [0.5, 0.25]}, "batch_size": 32}
    assert (own.study.metric, own.study.direction) == (CONFIG.study.metric, CONFIG.study.direction)
    assert own.training.epochs == CONFIG.training.epochs
    assert own.study.dir == "studies/a/refits"
    assert own.study.finish == "none", "nobody asks for one of these"
    alone = derive_check_config(single, WINNER, SIZES, {"data": 1})
    assert [resume_command(one) for one in (own, alone)] == [
        "python -m automl refit a",
        f"python -m automl refit a which={WINNER.number}",
    ]
    assert alone.study.name != own.study.name, "or one were refused as the other with changes"
    other = derive_check_config(task, WINNER, SIZES, {"data": 2})
    assert other.study.name != own.study.name, "of other rows it is another"


def checked(*values: float | None) -> list[Event]:
    events: list[Event] = [SweepStarted(0.0, "c", "u", {"study.metric": "loss"})]
    for number, value in enumerate(values):
        lr = 0.5 / (number + 1)
        events.append(TrialStarted(number, 0.0, {"lr": lr, "batch_size": 32}, "cpu"))
        if value is None:
            events.append(FailedOutcome(number, 1.0, "ValueError: no"))
            continue
        events.append(MetricsReported(number, 0.0, 7, {"loss": value}))
        events.append(FinishedOutcome(number, 1.0, value))
    return events


def test_the_best_gives_params_and_length() -> None:
    record = record_from_events(checked(2.0, 1.0))
    task, n_rows = take_best_checked(TASK, WINNER, record, SIZES)
    (found,) = task.members
    assert n_rows == SIZES.now, "its best step is one of these"
    assert (found.number, found.params["lr"], found.best_step) == (WINNER.number, 0.25, 7)
    assert check_summary(WINNER, record, SIZES) == (
        "checked on 400 training rows (the search had 100) by loss: as it was: 2; "
        "lr 0.5 → 0.25: 1. Taken: lr 0.5 → 0.25"
    )


def test_where_none_has_a_value_the_winner_stays_as_it_was() -> None:
    record = record_from_events(checked(None, None))
    assert take_best_checked(TASK, WINNER, record, SIZES) == (TASK, None)
    assert check_summary(WINNER, record, SIZES).endswith("no value. Taken: the params as they were")
