"""What a refit is made of its study and winner: rows, length, params, settings."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from automl.config import (
    Config,
    DataConfig,
    DataKind,
    ExecutionConfig,
    ExecutionKind,
    ObjectiveConfig,
    ObjectiveKind,
    StudyConfig,
)
from automl.config.command_arguments import RefitArguments, RefitOrigin
from automl.errors import ConfigError
from automl.models.families.mlp.family import MLPFamily
from automl.models.networks.network_family import WarmUp
from automl.objectives.training_plan import RefitTraining
from automl.record.study_record import record_from_events
from automl.running.prepare.identity_settings import flat_settings
from automl.running.prepare.refit_task import RefitTask, refuse_unfit_settings
from automl.running.prepare.resume_command import resume_command, resume_command_from_settings
from automl.running.refit.refit_devices import RefitDevices, scale_to_batch
from automl.running.refit.refit_study import (
    RefitDecision,
    TrainRowCounts,
    decide_refit,
    derive_refit_config,
    ema_decay_for_rows,
    epochs_for_steps,
    refit_name,
)
from automl.search.pruners.none import NoPruner
from automl.search.samplers.random import IndependentSampler
from automl.trial import (
    Direction,
    FinishedOutcome,
    MetricsReported,
    Params,
    ParamValue,
    PrunedOutcome,
    SweepStarted,
    TrialStarted,
)

CONFIG = Config(
    study=StudyConfig(name="a", metric="val_error", direction=Direction.maximize, n_trials=50),
    space={"lr": {"low": 0.1, "high": 1.0}, "batch_size": 32},
    model=MLPFamily(),
    sampler=IndependentSampler(),
    pruner=NoPruner(),
)
RECORD = record_from_events(
    [
        SweepStarted(0.0, "a", "u", {"study.metric": "loss"}),
        TrialStarted(0, 0.0, {"lr": 0.5, "batch_size": 32}, "cpu"),
        *(
            MetricsReported(0, 0.0, step, {"loss": value})
            for step, value in enumerate((3.0, 1.0, 2.0))
        ),
        FinishedOutcome(0, 1.0, 1.0),
        TrialStarted(1, 0.0, {"lr": 0.9, "batch_size": 32}, "cpu"),
        MetricsReported(1, 0.0, 0, {"loss": 9.0}),
        PrunedOutcome(1, 1.0, 0, 9.0),
    ]
)


def task_of(config: Config = CONFIG, refit: RefitArguments | None = None) -> RefitTask:
    return RefitTask(config, refit or RefitArguments(), Path("studies/a"), [RECORD.trials[0]])


def decide(
    refit: RefitArguments, taken: RefitDevices | None = None, sizes: TrainRowCounts | None = None
) -> RefitDecision:
    sizes = sizes or TrainRowCounts(before=100, now=125)
    return decide_refit(task_of(CONFIG, refit), sizes, taken or RefitDevices())


def derived(
    config: Config, decision: RefitDecision, data: int = 1, refit: RefitArguments | None = None
) -> Config:
    task = task_of(config, refit)
    name = refit_name(task, decision, {"data": data})
    return derive_refit_config(task, decision, name, [0] * task.arguments.seeds)


# --- how long -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("best_step", "before", "now", "batch_size", "epochs"),
    [
        (9, 100, 100, 10, 10),  # the same rows
        (9, 100, 125, 10, 8),  # 100 steps at 13 an epoch: 7.7
        (9, 100, 200, 10, 5),
        (0, 100, 1000, 10, 1),  # at least one
        (9, 100, 125, 4096, 10),  # one step an epoch, before and now
        (3, 100, 130, 25, 3),  # 16 steps at 6 an epoch: 2.7
    ],
)
def test_as_many_steps_as_the_best_epoch_took(
    best_step: int, before: int, now: int, batch_size: int, epochs: int
) -> None:
    assert epochs_for_steps(best_step, TrainRowCounts(before, now), batch_size) == epochs


@pytest.mark.parametrize(
    ("params", "n_rows", "own", "decay"),
    [
        ({"batch_size": 10}, 100, 0.0, 0.9),  # ten steps
        ({"batch_size": 10, "accumulate_steps": 3}, 100, 0.0, 0.75),  # four
        ({"batch_size": 4096}, 100, 0.0, 0.0),  # one: it is the last
        ({"batch_size": 10}, 100, 0.99, 0.99),
        ({"batch_size": 10, "ema_decay": 0.5}, 100, 0.0, 0.0),
    ],
)
def test_weights_are_averaged_over_an_epoch_unless_the_study_says_how(
    params: Params, n_rows: int, own: float, decay: float
) -> None:
    training = replace(CONFIG.training, ema_decay=own)
    config = replace(CONFIG, training=training)
    assert ema_decay_for_rows(config, params, n_rows) == pytest.approx(decay)


def test_with_rows_held_out_all_epochs_and_the_best_of_them() -> None:
    refit = RefitArguments(hold_out=0.1)
    found = decide(refit)
    assert (found.members[0].epochs, found.plan.keeps_last) == (CONFIG.training.epochs, False)
    own = derived(CONFIG, found, refit=refit)
    assert (own.study.metric, own.study.direction) == ("val_error", Direction.maximize)


# --- settings -------------------------------------------------------------------------------------


def test_it_is_a_study_of_the_winners_params() -> None:
    refit = RefitArguments(seeds=3)
    found = decide(refit)
    own = derived(CONFIG, found, refit=refit)
    assert own.space == {"lr": 0.5, "batch_size": 32}
    assert own.study.n_trials == 3
    assert (own.study.metric, own.study.direction) == ("train_loss", Direction.minimize)
    assert own.study.dir == "studies/a/refits"
    assert own.study.name is not None
    assert own.study.name.startswith("trial-00000-")
    assert own.training.epochs == found.members[0].epochs == 2
    assert own.training.ema_decay == 0.75, "over four steps"
    assert isinstance(own.sampler, IndependentSampler)
    assert isinstance(own.pruner, NoPruner)
    assert own.refit == RefitOrigin("a", 0, refit)


def test_it_trains_on_this_machine_whatever_cluster_the_study_had() -> None:
    config = replace(CONFIG, execution=ExecutionConfig(kind=ExecutionKind.ray))
    assert derived(config, decide(RefitArguments())).execution.kind is ExecutionKind.workers


def test_another_refit_has_another_folder_and_more_seeds_the_same() -> None:
    def name(refit: RefitArguments, taken: RefitDevices | None = None, data: int = 1) -> str | None:
        return derived(CONFIG, decide(refit, taken), data, refit).study.name

    usual = name(RefitArguments())
    assert name(RefitArguments(seeds=5)) == usual
    assert name(RefitArguments(), RefitDevices(n_ranks=2)) == usual, "the same but for rounding"
    others = {
        name(RefitArguments(rows="train")),
        name(RefitArguments(hold_out=0.1)),
        name(RefitArguments(batch_size="auto"), RefitDevices(n_ranks=2)),
        name(RefitArguments(), data=2),
    }
    assert len({usual, *others}) == 5


def test_what_asks_for_its_params_is_given_them_first() -> None:
    objective = ObjectiveConfig(ObjectiveKind.optuna, "a:b")
    config = replace(CONFIG, objective=objective, space={})
    found = decide_refit(task_of(config), None, RefitDevices())
    own = derived(config, found)
    assert own.space == {}
    assert own.study.enqueue == [{"lr": 0.5, "batch_size": 32}]
    assert own.study.metric == "val_error"


def test_processes_train_one_seed_at_a_time_with_their_threads() -> None:
    own = derived(CONFIG, decide(RefitArguments(), RefitDevices(n_ranks=2, n_threads=3)))
    assert own.admission.max_concurrent_trials == 1
    assert own.execution.threads_per_trial == 3
    kept = replace(CONFIG, execution=replace(CONFIG.execution, threads_per_trial=4))
    three = derived(kept, decide(RefitArguments(), RefitDevices(n_threads=3)))
    assert three.execution.threads_per_trial == 4
    eight = derived(CONFIG, decide(RefitArguments(), RefitDevices(n_gpus=8)))
    assert eight.admission.devices_per_trial == 8


def test_how_it_goes_on_is_the_same_command() -> None:
    refit = RefitArguments(seeds=3, hold_out=0.1, rows="all")
    own = derived(CONFIG, decide(refit), refit=refit)
    line = "python -m automl refit a which=0 rows=all hold_out=0.1 seeds=3"
    assert resume_command(own) == line
    settings = flat_settings(own)
    assert resume_command_from_settings(own.study, settings) == line
    settings["refit.n_seeds"] = settings.pop("refit.seeds")
    assert resume_command_from_settings(own.study, settings | {"refit.check": "True"}) == line
    moved = replace(own, study=replace(own.study, dir="/data/a/refits"))
    assert "refit a study.dir=/data which=0" in resume_command(moved)


def test_models_of_a_users_own_rows_are_not_averaged() -> None:
    config = replace(CONFIG, data=DataConfig(DataKind.python, source="mine:rows"))
    refuse_unfit_settings(config, RefitArguments())
    with pytest.raises(ConfigError, match=r"^seeds=2: .*mine:rows\) are not averaged"):
        refuse_unfit_settings(config, RefitArguments(seeds=2))


def test_a_sweeps_settings_do_not_name_refits() -> None:
    assert not [key for key in flat_settings(CONFIG) if key.startswith("refit")]


# --- larger batches -------------------------------------------------------------------------------


def test_a_batch_for_each_device_and_the_learning_rate_that_fits() -> None:
    sgd: dict[str, ParamValue] = {"lr": 0.1, "batch_size": 32, "optimizer": "sgd"}
    found = scale_to_batch(sgd, "auto", 4, 10_000, 90)
    assert found.params == sgd | {"batch_size": 128, "lr": 0.4}
    assert found.warm_up == WarmUp(5, 0.25)
    assert "batch size 32 → 128, learning rate 0.1 → 0.4 (linearly, for sgd)" in found.note
    adam = scale_to_batch({"lr": 0.1}, "auto", 4, 10_000, 8)
    assert adam.params == {"lr": 0.2, "batch_size": 512}
    assert adam.warm_up == WarmUp(2, 0.5)


def test_no_more_rows_than_there_are_and_the_trials_own_without_a_word() -> None:
    params = {"lr": 0.1, "batch_size": 32}
    assert scale_to_batch(params, None, 4, 10_000, 9).params == params
    assert scale_to_batch(params, "auto", 1, 10_000, 9).warm_up is None
    capped = scale_to_batch(params, "auto", 4, 64, 9)
    assert capped.params == {"batch_size": 64, "lr": pytest.approx(0.1 * math.sqrt(2))}
    assert scale_to_batch(params, None, 1, 20, 9).params == {"lr": 0.1, "batch_size": 20}
    smaller = scale_to_batch(params, 8, 1, 100, 9)
    assert smaller.params == {"batch_size": 8, "lr": pytest.approx(0.05)}
    assert smaller.warm_up is None


def test_devices_may_change_and_what_is_learned_may_not() -> None:
    plan = RefitTraining(keeps_last=True, n_ranks=4)
    assert plan.identity() == RefitTraining(keeps_last=True).identity()
    assert plan.identity() != RefitTraining(keeps_last=True, warm_up=WarmUp(5, 0.5)).identity()
    assert plan.trains_alone
    assert not RefitTraining(keeps_last=True).trains_alone
