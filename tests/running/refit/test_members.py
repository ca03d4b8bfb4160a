"""A refit of an ensemble: how long each member trains, and which trial is which."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from automl.config import (
    Config,
    ParallelKind,
    RefitArguments,
    RefitOrigin,
    StudyConfig,
)
from automl.errors import ConfigError
from automl.models.families.auto.family import AutoFamily
from automl.objectives.training_plan import MemberTraining, RefitTraining
from automl.record.study_files import StudyFiles
from automl.record.study_record import StudyRecord, record_from_events
from automl.record.trial_record import TrialRecord
from automl.running.prepare.identity_settings import identity_settings
from automl.running.prepare.refit_task import RefitTask, make_refit_task
from automl.running.refit.refit_devices import RefitDevices
from automl.running.refit.refit_study import (
    RefitDecision,
    TrainRowCounts,
    assign_members,
    decide_refit,
    derive_refit_config,
    finished_by_member,
    members_table,
    refit_name,
)
from automl.search.pruners.none import NoPruner
from automl.search.samplers.random import IndependentSampler
from automl.search.search_space import parse_space
from automl.trial import (
    Direction,
    EnsembleBuilt,
    Event,
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    MetricsReported,
    Params,
    SweepStarted,
    TrialStarted,
)

CONFIG = Config(
    study=StudyConfig(name="a", metric="val_rmse", direction=Direction.minimize, n_trials=50),
    model=AutoFamily(),
    sampler=IndependentSampler(),
    pruner=NoPruner(),
)
TREES: Params = {"family": "trees", "trees_max_features": 0.5}
MLP: Params = {"family": "mlp", "mlp_batch_size": 10}
MADE = EnsembleBuilt(9.0, 100, {1: 0.75, 0: 0.25}, {"loss": 0.05, "rmse": 0.05}, {})
SIZES = TrainRowCounts(before=100, now=125)


def searched() -> StudyRecord:
    """Trial 0 is a network, best after ten epochs, trial 1 trees, best after three."""
    events: list[Event] = [SweepStarted(0.0, "a", "u", {"study.metric": "val_rmse"})]
    for number, (params, n_epochs) in enumerate(((MLP, 10), (TREES, 3))):
        events.append(TrialStarted(number, 0.0, params, "cpu"))
        losses = [1.0 / (step + 1) for step in range(n_epochs)] + [9.0]
        events += [
            MetricsReported(number, 0.0, s, {"val_rmse": loss}) for s, loss in enumerate(losses)
        ]
        events.append(FinishedOutcome(number, 1.0, min(losses)))
    return record_from_events(events)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A study that has an ensemble."""
    StudyFiles(tmp_path).ensemble.touch()
    return tmp_path


def begun(refit: RefitArguments | None = None, made: EnsembleBuilt = MADE) -> RefitTask:
    record = searched()
    members = [record.trials[number] for number in made.members]
    return RefitTask(CONFIG, refit or RefitArguments(), Path("a"), members, made)


def decided(task: RefitTask) -> RefitDecision:
    return decide_refit(task, SIZES, RefitDevices())


def test_a_trial_on_a_part_of_the_rows_is_trained_on_all_for_as_many_steps() -> None:
    task = begun()
    part = [replace(trial, params={**trial.params, "rows": 50}) for trial in task.members]
    trees, mlp = decided(replace(task, members=part)).members
    assert [trees.params, mlp.params] == [TREES, MLP]
    assert trees.epochs == 3
    assert mlp.epochs == 4, "50 steps at 13 an epoch"


def test_each_trains_as_long_as_it_did() -> None:
    found = decided(begun())
    trees, mlp = found.members
    assert [trees.params, mlp.params] == [TREES, MLP], "the heaviest first"
    assert trees.epochs == 3
    assert mlp.epochs == 8, "100 steps at 13 an epoch"
    assert trees.ema_decay == 0.0
    assert mlp.ema_decay == pytest.approx(1 - 1 / 13)
    assert found.plan.keeps_last
    assert found.plan.trains_alone, "lanes of a pack are all of a length"
    training = CONFIG.training
    own = replace(training, epochs=8, ema_decay=mlp.ema_decay)
    assert found.plan.training_of(MLP, training) == own
    assert found.plan.training_of({"family": "linear"}, training) == training
    given = replace(found.plan, member_of_trial=(0, 1, 1))
    assert [own.epochs for own in given.trainings_by_trial(training)] == [3, 8, 8]
    assert "trials 1, 0: 125 rows (train+validation), 3 to 8 epochs" in found.notes[0]


def test_each_is_known_by_its_number_in_the_study() -> None:
    plan = replace(decided(begun()).plan, member_of_trial=(0, 1, 0))
    assert plan.repeated_trials() == (1, 0, 1)


def test_with_rows_held_out_all_have_all_epochs() -> None:
    held = decided(begun(RefitArguments(hold_out=0.1)))
    assert {member.epochs for member in held.members} == {CONFIG.training.epochs}
    assert not held.plan.keeps_last


def test_it_is_a_study_of_the_members() -> None:
    task = begun()
    found = decided(task)
    own = derive_refit_config(task, found, refit_name(task, found, {"data": 1}), [0, 1])
    assert own.study.enqueue == [TREES, MLP]
    assert own.study.n_trials == 2
    assert own.study.dir == "studies/a/refits"
    assert str(own.study.name).startswith("ensemble-")
    assert (own.study.metric, own.study.direction) == ("train_loss", Direction.minimize)
    assert own.study.finish == "none", "it ends with none of its own"
    assert own.training.epochs == 8
    assert own.refit == RefitOrigin("a", None, task.arguments)
    assert "enqueue" not in identity_settings(own)["study"], "one that failed is tried again"


def test_more_rows_leave_no_member_out() -> None:
    kernel: Params = {"family": "kernel", "kernel_spread": 0.5}
    searched = replace(CONFIG, space={"kernel_spread": {"low": 0.1, "high": 2.0}})
    task = replace(begun(), config=searched)

    def derived(*members: MemberTraining) -> Config:
        plan = RefitTraining(members=members)
        decision = RefitDecision(members, plan, RefitDevices(), ())
        return derive_refit_config(task, decision, "e", range(len(members)))

    own = derived(MemberTraining(kernel, 1, 0.0), MemberTraining(TREES, 3, 0.0))

    def has(config: Config, n_rows: int) -> bool:
        assert isinstance(config.model, AutoFamily)
        return parse_space(config.model.searched_space(config.space, n_rows)).has(kernel)

    assert (has(searched, 9_000), has(searched, 11_000)) == (True, False)
    assert (has(own, 9_000), has(own, 11_000)) == (True, True)
    own = derived(MemberTraining(MLP, 3, 0.0))
    assert own.space == searched.space, "none of them is ever left out"


def test_others_have_another_folder_and_more_seeds_the_same() -> None:
    def name(refit: RefitArguments | None = None, data: int = 1) -> str:
        task = begun(refit)
        return refit_name(task, decided(task), {"data": data})

    usual = name()
    assert name(RefitArguments(seeds=5)) == usual
    others = {name(RefitArguments(rows="train")), name(RefitArguments(hold_out=0.1)), name(data=2)}
    assert len({usual, *others}) == 4


A, B, C = ({"x": number} for number in range(3))


def tried(*ends: tuple[Params, str]) -> dict[int, TrialRecord]:
    events: list[Event] = [SweepStarted(0.0, "a", "u", {})]
    for number, (params, end) in enumerate(ends):
        if end == "gap":
            continue
        events.append(TrialStarted(number, 0.0, params, "cpu"))
        if end == "finished":
            events.append(FinishedOutcome(number, 1.0, 0.5))
        if end == "failed":
            events.append(FailedOutcome(number, 1.0, "x"))
        if end == "interrupted":
            events.append(InterruptedOutcome(number, 1.0, "x"))
    return dict(record_from_events(events).trials)


@pytest.mark.parametrize(
    ("known", "given"),
    [
        ([], [0, 1, 2]),
        ([(A, "finished"), (B, "interrupted")], [0, 1, 2]),
        ([(A, "failed"), (B, "finished"), (C, "finished")], [0, 1, 2, 0]),
        ([(A, "failed"), (B, "finished"), (C, "failed"), (C, "failed")], [0, 1, 2, 2, 0, 2]),
        ([(A, "finished"), (B, "gap"), (C, "finished")], [0, 1, 2]),
        ([(A, "finished"), (B, "finished"), (C, "finished"), (A, "finished")], [0, 1, 2, 0]),
    ],
)
def test_what_failed_is_tried_again_and_nothing_twice(
    known: list[tuple[Params, str]], given: list[int]
) -> None:
    assert assign_members([A, B, C], 1, tried(*known)) == given


@pytest.mark.parametrize(
    ("known", "given"),
    [
        ([], [0, 1, 2, 0, 1, 2]),
        # The first of the two that are alike failed, the second not, which stays what it was.
        ([(A, "failed"), (A, "finished"), (B, "finished")], [0, 1, 2, 0, 1, 0, 2]),
        # The turn of the second comes after one more of the first.
        ([(A, "finished"), (A, "failed"), (B, "finished")], [0, 1, 2, 0, 1, 0, 1, 2]),
    ],
)
def test_of_two_members_with_the_same_params_each_is_trained_as_often(
    known: list[tuple[Params, str]], given: list[int]
) -> None:
    assert assign_members([A, A, B], 2, tried(*known)) == given
    ended = tried(*known, *[([A, A, B][member], "finished") for member in given[len(known) :]])
    assert assign_members([A, A, B], 2, ended) == given
    assert [len(numbers) for numbers in finished_by_member(given, 2, ended)] == [2, 2, 2]


def test_members_are_known_by_their_trials() -> None:
    known = tried((A, "failed"), (B, "finished"), (A, "finished"), (B, "finished"), (C, "failed"))
    assert finished_by_member([0, 1, 0, 1, 2], 2, known) == [[2], [1, 3], []]
    assert finished_by_member([0, 1, 0, 1, 2], 1, known) == [[2], [1], []], (
        "no more than are averaged"
    )


def test_the_closing_table_tells_of_members_by_weight() -> None:
    again = record_from_events(
        [
            SweepStarted(0.0, "r", "u", {"study.metric": "train_loss"}),
            *(TrialStarted(n, 0.0, params, "cpu") for n, params in enumerate((TREES, MLP, MLP))),
            *(MetricsReported(n, 0.0, n + 1, {"train_loss": 0.5}) for n in range(3)),
            *(FinishedOutcome(n, 2.0, 0.5) for n in range(3)),
        ]
    )
    columns, rows = members_table(begun(), [[0], [1, 2]], again)
    assert "train_loss" not in columns
    assert rows == [
        ["    1", "trees", "0.750", "0.33333", "2", "2 s"],
        ["    0", "mlp", "0.250", "0.1", "3 to 4", "4 s"],
    ]
    columns, rows = members_table(begun(RefitArguments(hold_out=0.1)), [[0], [1, 2]], again)
    assert columns[-1] == "val_rmse held out"
    assert rows[0][-1] == "0.5"


def test_a_member_that_nobody_knows_is_refused(path: Path) -> None:
    made = replace(MADE, members={1: 0.5, 7: 0.5})
    with pytest.raises(ConfigError, match=r"what trial 7, a member of the ensemble, was"):
        make_refit_task(CONFIG, RefitArguments(), path, searched(), made)


@pytest.mark.parametrize(
    "refit",
    [RefitArguments(parallel=ParallelKind.ddp), RefitArguments(batch_size=64)],
)
def test_what_is_of_one_training_is_refused(path: Path, refit: RefitArguments) -> None:
    record = searched()
    with pytest.raises(ConfigError, match=r"members of an ensemble .* which=best"):
        make_refit_task(CONFIG, refit, path, record, MADE)
    none = RefitArguments(parallel=ParallelKind.none)
    assert len(make_refit_task(CONFIG, none, path, record, MADE).members) == 2


def test_a_batch_is_for_a_winner_that_trains_in_batches(path: Path) -> None:
    """With `model=auto` the winner's own family counts."""
    asked, record = RefitArguments(batch_size=64), searched()
    make_refit_task(CONFIG, asked, path, record, record.trials[0])
    with pytest.raises(ConfigError, match=r"batch_size=64: model=trees trains in no batches"):
        make_refit_task(CONFIG, asked, path, record, record.trials[1])
