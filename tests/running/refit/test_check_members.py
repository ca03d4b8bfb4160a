"""What is found for one network of an ensemble, and what every member becomes by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from automl.config import Config, DataConfig, DataKind, RefitArguments
from automl.models.families.mlp.family import MLPFamily
from automl.record.study_record import record_from_events
from automl.record.trial_record import TrialRecord
from automl.running.prepare.refit_task import RefitTask
from automl.running.refit.refit_study import TrainRowCounts, as_single_family, refit_epochs
from automl.running.refit.winner_check import (
    ParamRatios,
    apply_param_ratios,
    find_param_ratios,
    member_to_check,
    unchecked_members_note,
)
from automl.search.search_space import parse_space
from automl.trial import (
    EnsembleBuilt,
    Event,
    FinishedOutcome,
    MetricsReported,
    Params,
    SweepStarted,
    TrialStarted,
)
from tests.running.refit.test_members import CONFIG

SPACE = {
    "mlp_lr": {"low": 2e-3, "high": 0.1, "log": True},
    "mlp_batch_size": {"choices": [10, 20]},
    "mlp_optimizer": {"choices": ["adam", "adamw"]},
    "mlp_weight_decay": {"low": 0.02, "high": 1.0, "when": {"mlp_optimizer": "adamw"}},
    "trees_max_features": {"low": 0.1, "high": 1.0},
}
PART = replace(
    CONFIG, space=SPACE, data=DataConfig(DataKind.csv, path="t.csv", target="y", sweep_rows=100)
)
TREES: Params = {"family": "trees", "trees_max_features": 0.5}
HEAVY: Params = {
    **{"family": "mlp", "mlp_lr": 0.002, "mlp_batch_size": 10},
    **{"mlp_optimizer": "adamw", "mlp_weight_decay": 0.04},
}
LIGHT: Params = {"family": "mlp", "mlp_lr": 0.05, "mlp_batch_size": 20, "mlp_optimizer": "adam"}
SIZES = TrainRowCounts(before=100, now=400)
HALVED = ParamRatios(lr=0.5, weight_decay=0.25, steps=2.0)


def trials(*each: tuple[Params, int]) -> list[TrialRecord]:
    """With these params, best after so many epochs."""
    events: list[Event] = [SweepStarted(0.0, "a", "u", {"study.metric": "val_rmse"})]
    for number, (params, n_epochs) in enumerate(each):
        events.append(TrialStarted(number, 0.0, params, "cpu"))
        events.append(MetricsReported(number, 0.0, n_epochs - 1, {"val_rmse": 1.0}))
        events.append(FinishedOutcome(number, 1.0, 1.0))
    return list(record_from_events(events).trials.values())


MEMBERS = trials((TREES, 3), (HEAVY, 10), (LIGHT, 6))


def begun(
    config: Config = PART,
    members: list[TrialRecord] = MEMBERS,
    refit: RefitArguments | None = None,
) -> RefitTask:
    weights = {trial.number: 1 / len(members) for trial in members}
    made = EnsembleBuilt(9.0, 100, weights, {}, {})
    return RefitTask(config, refit or RefitArguments(), Path("studies/a"), members, made)


def test_the_network_with_the_largest_weight_is_tried() -> None:
    assert member_to_check(begun()) == MEMBERS[1], "trees are heavier, and have nothing to try"
    assert member_to_check(begun(members=MEMBERS[:1])) is None
    assert member_to_check(begun(refit=RefitArguments(check=False))) is None
    assert member_to_check(begun(CONFIG)) is None, "the search had all rows"
    of_one_family = replace(PART, model=MLPFamily())
    assert member_to_check(begun(of_one_family, trials(({"lr": 0.1}, 3)))) is not None


def test_a_change_is_told_by_ratios() -> None:
    _, before = as_single_family(PART, MEMBERS[1])
    now = replace(before, params={**before.params, "lr": 0.001, "weight_decay": 0.01}, best_step=4)
    # Five epochs of 40 batches; of the 10 batches that the search had these are 20.
    assert find_param_ratios(before, now, SIZES) == ParamRatios(0.5, 0.25, 2.0)
    assert find_param_ratios(before, before, TrainRowCounts(100, 100)) == ParamRatios(1.0, 1.0, 1.0)
    bare = replace(before, params={})
    assert find_param_ratios(bare, replace(bare, params={"lr": 0.0005}), SIZES).lr == 0.5, (
        "0.001 is meant"
    )


def test_every_network_takes_it_and_nothing_else_does() -> None:
    trees, heavy, light = apply_param_ratios(begun(), HALVED).members
    assert trees == MEMBERS[0]
    assert heavy.params == {**HEAVY, "mlp_lr": 0.001, "mlp_weight_decay": 0.01}
    assert light.params == {**LIGHT, "mlp_lr": 0.025}, "it has no weight decay"
    assert [heavy.best_step, light.best_step] == [19, 11]
    assert (heavy.number, heavy.value) == (MEMBERS[1].number, MEMBERS[1].value)


def test_the_one_that_was_tried_trains_as_long_as_it_did_there() -> None:
    config, before = as_single_family(PART, MEMBERS[1])
    now = replace(before, best_step=4)
    own = apply_param_ratios(begun(), find_param_ratios(before, now, SIZES)).members[1]
    again = as_single_family(PART, own)[1]
    sizes = TrainRowCounts(before=100, now=480)
    expected = refit_epochs(config, now, TrainRowCounts(before=400, now=480), holds_out=False)
    assert refit_epochs(config, again, sizes, holds_out=False) == expected == 4


def test_none_trains_longer_than_a_trial_may() -> None:
    long = apply_param_ratios(begun(), replace(HALVED, steps=1000.0)).members[2]
    config, own = as_single_family(PART, long)
    assert refit_epochs(config, own, SIZES, holds_out=False) == PART.training.epochs


def test_the_space_has_what_the_members_have() -> None:
    found = apply_param_ratios(begun(), HALVED)
    entries = PART.model.searched_space(found.config.space)  # type: ignore[attr-defined]
    space = parse_space(entries)
    for member in found.members:
        space.check(member.params)
    assert found.config.space["mlp_batch_size"] == SPACE["mlp_batch_size"]
    assert found.config.space["mlp_weight_decay"]["when"] == {"mlp_optimizer": "adamw"}
    assert begun().config.space == SPACE


def test_where_nothing_better_was_found_all_is_as_it_was() -> None:
    assert apply_param_ratios(begun(), ParamRatios(1.0, 1.0, 1.0)) == begun()


@pytest.mark.parametrize(("members", "said"), [(MEMBERS, "trials 2"), (MEMBERS[:2], "")])
def test_the_others_are_named(members: list[TrialRecord], said: str) -> None:
    assert unchecked_members_note(begun(members=members), checked=1).endswith(said)
    assert bool(unchecked_members_note(begun(members=members), checked=1)) == bool(said)
