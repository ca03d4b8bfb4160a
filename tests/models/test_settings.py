"""Settings of the training that may be params too: schedules, averages, patience and the rest."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler, OneCycleLR

from automl.config import LearningRateSchedule, Precision, Task, TrainingConfig
from automl.data.dataset import Dataset
from automl.errors import ConfigError
from automl.in_trial.checkpoints import torch_checkpoint
from automl.in_trial.goal import Patience, StudyGoal
from automl.models.families.mlp.family import MLPFamily
from automl.models.families.mlp.heavy import SIDE
from automl.models.families.python.family import PythonFamily
from automl.models.family import Family
from automl.models.networks.network_family import fill_from_settings
from automl.models.networks.optimizers import average_rate, lr_factor
from automl.models.networks.tensors import DataOnDevices
from automl.models.networks.trainer import NetworkTrainer, TrainingProblem
from automl.objectives.plan_checks import check_loss
from automl.objectives.training_plan import SessionSetup, declare_objective
from automl.objectives.training_session import open_session
from automl.trial import (
    Direction,
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    ObjectiveSession,
    Params,
    ParamValue,
    Verdict,
)
from tests.features import width, x_of
from tests.models.conftest import HOST, Listener, make_plan, make_spec
from tests.models.packs.test_pack import Sweep, Trials

N_EPOCHS = 6
NETWORKS = "tests.models.networks"
ALL: dict[str, Any] = {
    "schedule": "onecycle",
    "ema_decay": 0.9,
    "patience_epochs": 4,
    "accumulate_steps": 2,
}
pytestmark = pytest.mark.usefixtures("one_thread")


def make_trainer(dataset: Dataset, params: Params, n_epochs: int = N_EPOCHS) -> NetworkTrainer:
    problem = TrainingProblem(
        dataset.task,
        width(dataset),
        dataset.n_outputs,
        dataset.target_scale,
        MLPFamily(),
        SIDE,
        Precision.float64,
        TrainingConfig(epochs=n_epochs),
    )
    data = DataOnDevices(dataset).tensors("cpu", problem.dtype)
    own = MLPFamily().params({"lr": 0.05, "batch_size": 32, "width": 8, **params})
    return NetworkTrainer(problem, own, data, device="cpu", seed=1)


def make_session(dataset: Dataset, **settings: Any) -> ObjectiveSession:
    training = TrainingConfig(epochs=N_EPOCHS, precision=Precision.float64, **settings)
    return open_session(SessionSetup(make_plan(training=training), dataset))


def run(dataset: Dataset, folder: Path, listener: Listener, **settings: Any) -> Listener:
    params = {"lr": 0.05, "batch_size": 32, "width": 8, "dropout": 0.2}
    make_session(dataset, **settings).run(make_spec(folder, params), HOST, listener)
    return listener


# --- schedules ------------------------------------------------------------------------------------


def torchs(schedule: str, n_steps: int) -> list[float]:
    """The learning rates that torch's own scheduler gives, of 1."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0, momentum=0.9)
    scheduler: LRScheduler = (
        CosineAnnealingLR(optimizer, n_steps)
        if schedule == "cosine"
        else OneCycleLR(optimizer, 1.0, total_steps=n_steps)
    )
    rates = []
    for _ in range(n_steps):
        rates.append(float(scheduler.get_last_lr()[0]))
        optimizer.step()
        if len(rates) < n_steps:
            scheduler.step()
    return rates


@pytest.mark.parametrize("schedule", ["cosine", "onecycle"])
@pytest.mark.parametrize("n_steps", [3, 10, 200])
def test_a_schedule_is_torchs(schedule: str, n_steps: int) -> None:
    rates = [lr_factor(schedule, step, n_steps) for step in range(n_steps)]
    assert rates == pytest.approx(torchs(schedule, n_steps), rel=1e-6, abs=1e-9)


def test_without_a_schedule_the_rate_stays() -> None:
    assert {lr_factor("constant", step, 9) for step in range(9)} == {1.0}


@pytest.mark.parametrize("schedule", list(LearningRateSchedule))
def test_a_training_of_one_step_has_a_rate(schedule: LearningRateSchedule) -> None:
    assert 0 < lr_factor(schedule.value, 0, 1) <= 1


def test_an_average_forgets_where_it_began() -> None:
    assert [average_rate(0.99, step) for step in (0, 1)] == [0.9, 1 - 2 / 11]
    assert average_rate(0.99, 10_000) == pytest.approx(0.01)


# --- a training with all of them, against one written with torch's own optimizers -----------------


def by_torch(
    dataset: Dataset, trainer: NetworkTrainer, n_epochs: int
) -> tuple[nn.Module, nn.Module]:
    """A network and its average: weights and orders of rows from the trainer's seed."""
    params = trainer.params
    twin = make_trainer(dataset, {})
    model, average = twin.model, make_trainer(dataset, {}).model
    x = torch.tensor(x_of(dataset, dataset.train), dtype=torch.float64)
    y = torch.tensor(dataset.train.y)
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(
        model.parameters(), lr=params.lr, weight_decay=params.weight_decay
    )
    if params.optimizer == "sgd":
        optimizer = torch.optim.SGD(
            model.parameters(), params.lr, params.momentum, weight_decay=params.weight_decay
        )
    n_rows = params.batch_size * params.accumulate_steps
    n_steps = n_epochs * math.ceil(len(x) / n_rows)
    rates = iter(torchs("onecycle", n_steps))
    steps = itertools.count()
    for epoch in range(n_epochs):
        for rows in torch.split(orders(trainer, epoch), n_rows):
            for group in optimizer.param_groups:
                group["lr"] = params.lr * next(rates)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            rate = average_rate(params.ema_decay, next(steps))
            with torch.no_grad():
                for mean, value in zip(average.parameters(), model.parameters(), strict=True):
                    mean.lerp_(value, rate)
    return model, average


def orders(trainer: NetworkTrainer, epoch: int) -> torch.Tensor:
    from automl.in_trial.seeds import SeedUse, derive_seed

    generator = torch.Generator().manual_seed(derive_seed(1, SeedUse.SHUFFLE, epoch))
    return torch.randperm(300, generator=generator)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_it_is_what_torch_makes_of_them(disc: Dataset, optimizer: str) -> None:
    trainer = make_trainer(disc, ALL | {"optimizer": optimizer, "weight_decay": 0.01}, 3)
    for epoch in range(3):
        trainer.run_epoch(epoch)
    model, average = by_torch(disc, trainer, 3)
    torch.testing.assert_close(dict(trainer.model.state_dict()), dict(model.state_dict()))
    torch.testing.assert_close(dict(trainer.weights()), dict(average.state_dict()))


def test_accumulated_gradients_are_those_of_a_larger_batch(disc: Dataset) -> None:
    """300 rows: the last group has a batch and a half."""
    small = make_trainer(disc, {"batch_size": 40, "accumulate_steps": 3, "clip_norm": 0.1})
    large = make_trainer(disc, {"batch_size": 120, "clip_norm": 0.1})
    for epoch in range(2):
        assert small.run_epoch(epoch) == pytest.approx(large.run_epoch(epoch), rel=1e-9)


def test_what_is_judged_and_kept_is_the_average_and_training_goes_on_from_the_last(
    disc: Dataset,
) -> None:
    plain, averaged = make_trainer(disc, {}), make_trainer(disc, {"ema_decay": 0.95})
    for epoch in range(2):
        last, mean = plain.run_epoch(epoch), averaged.run_epoch(epoch)
        assert mean["train_loss"] == last["train_loss"]
        assert mean["val_loss"] != last["val_loss"]
    plain.model.load_state_dict(averaged.weights())
    x = torch.tensor(x_of(disc, disc.validation), dtype=torch.float64)
    with torch.no_grad():
        out = plain.model.eval()(x)
    loss = nn.functional.cross_entropy(out, torch.tensor(disc.validation.y))
    assert mean["val_loss"] == pytest.approx(loss.item())


# --- patience -------------------------------------------------------------------------------------


def test_patience_ends_after_so_many_epochs_without_a_better_value() -> None:
    waiting = Patience(StudyGoal("val_error", Direction.minimize), 2)
    ends = []
    for value in (0.5, 0.4, 0.4, 0.3, 0.35, 0.3, 0.1):
        waiting = waiting.after({"val_error": value, "val_loss": 0.0})
        ends.append(waiting.is_over)
    assert ends == [False, False, False, False, False, True, False]
    rising = Patience(StudyGoal("x", Direction.maximize), 1).after({"x": 1.0}).after({"x": 2.0})
    assert not rising.is_over
    assert not replace(waiting, limit_epochs=None, n_waited=99).is_over


def test_a_trial_ends_early_with_its_best_value(disc: Dataset, tmp_path: Path) -> None:
    rough: Params = {"lr": 3.0, "optimizer": "sgd", "batch_size": 300, "patience_epochs": 1}
    listener = Listener()
    make_session(disc).run(make_spec(tmp_path, rough), HOST, listener)
    losses = [metrics["val_loss"] for _, metrics in listener.reports]
    assert 1 < len(losses) < N_EPOCHS
    assert losses[-1] >= min(losses) == losses[-2]
    assert isinstance(listener.outcome, FinishedOutcome)
    assert listener.outcome.value == min(losses)


def test_a_trial_that_had_ended_early_as_it_was_stopped_trains_no_more(
    disc: Dataset, tmp_path: Path
) -> None:
    rough: Params = {"lr": 3.0, "optimizer": "sgd", "batch_size": 300, "patience_epochs": 1}
    whole, stopped, again = Listener(), Listener(), Listener()
    make_session(disc).run(make_spec(tmp_path / "whole", rough), HOST, whole)
    stopped.verdicts[whole.reports[-1][0]] = Verdict.STOP
    for listener in (stopped, again):
        make_session(disc).run(make_spec(tmp_path / "parts", rough), HOST, listener)
    assert isinstance(stopped.outcome, InterruptedOutcome)
    assert again.reports == whole.reports
    packed = Sweep()
    make_session(disc).run_pack(Trials([make_spec(tmp_path / "parts", rough)], 2), HOST, packed)
    assert packed.of(0).reports == whole.reports
    assert isinstance(packed.of(0).outcome, FinishedOutcome)


def test_a_pack_gives_the_lane_of_a_trial_that_ends_early_to_the_next(
    disc: Dataset, tmp_path: Path
) -> None:
    rough: dict[str, ParamValue] = {"lr": 3.0, "optimizer": "sgd", "batch_size": 300}
    specs = [
        make_spec(tmp_path, rough | {"patience_epochs": patience}, number)
        for number, patience in enumerate([1, None, 1])
    ]
    sweep = Sweep()
    make_session(disc).run_pack(Trials(specs, 2), HOST, sweep)
    alone = Listener()
    make_session(disc).run(make_spec(tmp_path / "alone", specs[0].params), HOST, alone)
    n = len(alone.reports)
    assert [len(sweep.of(k).reports) for k in (0, 1)] == [n, N_EPOCHS]
    assert sweep.reports_together[: n + 1] == [[0, 1]] * n + [[1, 2]]


# --- going on -------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop_at", [0, 2, 4])
def test_an_interrupted_trial_goes_on_bit_for_bit(
    disc: Dataset, tmp_path: Path, stop_at: int
) -> None:
    settings = ALL | {"schedule": LearningRateSchedule.onecycle}
    whole = run(disc, tmp_path / "whole", Listener(), **settings)
    stopped = run(disc, tmp_path / "parts", Listener({stop_at: Verdict.STOP}), **settings)
    assert isinstance(stopped.outcome, InterruptedOutcome)
    again = run(disc, tmp_path / "parts", Listener(), **settings)
    assert again.reports == whole.reports
    whole_last, last = (state(tmp_path / name, "last.pt") for name in ("whole", "parts"))
    assert last.keys() == {"epoch", "weights", "optimizer", "average", "patience"}
    torch.testing.assert_close(last, whole_last, rtol=0, atol=0)
    whole_best, best = (state(tmp_path / name, "best.pt") for name in ("whole", "parts"))
    torch.testing.assert_close(best["weights"], whole_best["weights"], rtol=0, atol=0)


def state(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = torch_checkpoint.load(folder / "trial-00000" / name)["state"]
    return found


def test_without_them_a_checkpoint_holds_what_it_held() -> None:
    """Checkpoints from before these settings can be continued."""
    assert Patience(StudyGoal("a", Direction.minimize), None).after({"a": 1.0}).state() == {}


# --- settings and params --------------------------------------------------------------------------


def test_a_param_goes_before_the_setting_of_its_name() -> None:
    training = TrainingConfig(
        schedule=LearningRateSchedule.cosine, ema_decay=0.9, accumulate_steps=2
    )
    params = MLPFamily().params(fill_from_settings({"ema_decay": 0.5, "lr": 0.1}, training))
    assert (params.schedule, params.ema_decay, params.accumulate_steps) == ("cosine", 0.5, 2)


def test_bfloat16_as_a_param_is_what_it_is_as_a_setting(disc: Dataset, tmp_path: Path) -> None:
    def reports(folder: str, params: Params, precision: Precision) -> Any:
        training = TrainingConfig(epochs=2, precision=precision)
        session = open_session(SessionSetup(make_plan(training=training), disc))
        listener, sweep = Listener(), Sweep()
        session.run(make_spec(tmp_path / folder, params), HOST, listener)
        specs = [make_spec(tmp_path / f"{folder}-pack", params, n) for n in range(2)]
        session.run_pack(Trials(specs, 2), HOST, sweep)
        return listener.reports, sweep.of(0).reports

    as_setting = reports("a", {"lr": 0.01}, Precision.bfloat16)
    as_param = reports("b", {"lr": 0.01, "precision": "bfloat16"}, Precision.float32)
    assert as_param == as_setting
    assert as_param != reports("c", {"lr": 0.01}, Precision.float32)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("schedule", "linear", "one of constant, cosine, onecycle"),
        ("precision", "float16", "one of float32, float64, bfloat16"),
        ("ema_decay", 1.0, "a number from 0 to below 1"),
        ("patience_epochs", 0, "a whole number from 1, or null"),
        ("accumulate_steps", 1.5, "a whole number from 1"),
    ],
)
def test_a_param_that_cannot_be_is_refused(name: str, value: Any, rule: str) -> None:
    with pytest.raises(ValueError, match=f"{name}=.*: must be {rule}"):
        MLPFamily().params({name: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ema_decay", 1.0),
        ("ema_decay", math.nan),
        ("patience_epochs", 0),
        ("accumulate_steps", 0),
        ("loss", "hinge"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"training\.{key}={value}: must be"):
        TrainingConfig(**{key: value})


# --- losses ---------------------------------------------------------------------------------------


def test_torchs_losses_can_be_named_for_numbers(plane: Dataset, tmp_path: Path) -> None:
    listener = run(plane, tmp_path, Listener(), loss="torch.nn.functional:huber_loss")
    assert isinstance(listener.outcome, FinishedOutcome)
    _, last = listener.reports[-1]
    assert last["val_loss"] < 0.5 * (last["val_rmse"] / plane.target_scale) ** 2 * 1.001
    assert last["val_rmse"] < plane.target_scale


@pytest.mark.parametrize("family", [MLPFamily(), PythonFamily(target=f"{NETWORKS}:normed")])
def test_a_loss_of_the_users_is_descended_alone_and_where_torch_can_in_a_pack(
    disc: Dataset, tmp_path: Path, family: Family
) -> None:
    training = TrainingConfig(epochs=3, precision=Precision.float64, loss=f"{NETWORKS}:weighted")
    plan = make_plan(training=training, family=family)
    session = open_session(SessionSetup(plan, disc))
    specs = [make_spec(tmp_path, {"lr": 0.02, "batch_size": 50}, n) for n in range(2)]
    sweep, alone = Sweep(), Listener()
    session.run_pack(Trials(specs, 2), HOST, sweep)
    session.run(make_spec(tmp_path / "alone", {"lr": 0.02, "batch_size": 50}), HOST, alone)
    assert (plan.pack_key(specs[0].params, on_host=True) is None) == isinstance(family, MLPFamily)
    assert len(sweep.reports_together) == (6 if isinstance(family, MLPFamily) else 3)
    for (_, a), (_, b) in zip(sweep.of(0).reports, alone.reports, strict=True):
        assert a == pytest.approx(b, rel=1e-9)
    assert 0 < alone.reports[-1][1]["val_error"] < 0.6
    assert alone.reports[-1][1]["val_loss"] > 1.2 * alone.reports[-1][1]["val_error"]


def test_a_loss_that_gives_no_single_number_fails_the_trial_and_says_so(
    disc: Dataset, tmp_path: Path
) -> None:
    listener = run(disc, tmp_path, Listener(), loss=f"{NETWORKS}:loss_by_row")
    assert isinstance(listener.outcome, FailedOutcome)
    assert "must return a tensor of one number, the mean" in listener.outcome.cause


def test_a_loss_that_is_not_there_is_refused_before_the_first_trial(disc: Dataset) -> None:
    plan = make_plan(training=TrainingConfig(loss=f"{NETWORKS}:hinge"))
    assert plan.users_code == (("training.loss", f"{NETWORKS}:hinge"),)
    with pytest.raises(ConfigError, match=r"training\.loss=.*:hinge: .* has no hinge"):
        declare_objective(plan, disc)


@pytest.mark.parametrize(
    ("name", "task", "other"),
    [
        ("squared_error", Task.classification, "regression"),
        ("cross_entropy", Task.regression, "classification"),
    ],
)
def test_a_loss_of_other_targets_is_refused(name: str, task: Task, other: str) -> None:
    with pytest.raises(ConfigError, match=rf"training\.loss={name}: .*set data\.task={other}"):
        check_loss(name, task)
    for fits in ("auto", "a:b", "cross_entropy" if name == "squared_error" else "squared_error"):
        check_loss(fits, task)
