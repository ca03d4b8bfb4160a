"""A network of the user's: what it is given, what its trials are alone, and packs of them."""

from __future__ import annotations

import logging
import re
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import automl
from automl.config import DataConfig, Precision, Task, TrainingConfig
from automl.data.dataset import Dataset
from automl.data.load import load_dataset
from automl.errors import AutoMLError, ConfigError
from automl.models.families.python.family import ModuleKey, ModuleParams, PythonFamily
from automl.models.families.python.heavy import SIDE
from automl.models.family import EstimatorSetup, pack_size
from automl.models.networks.network_family import OPTIMIZERS
from automl.models.networks.packs.module_trainer import ModulePackTrainer
from automl.models.networks.trainer import NetworkTrainer, TrainingProblem
from automl.objectives.plan_checks import check_space, check_values
from automl.objectives.training_plan import declare_objective
from automl.objectives.training_session import TrainingSession
from automl.trial import FailedOutcome, FinishedOutcome, ParamValue
from tests.features import x_of
from tests.models.conftest import HOST, Listener, make_plan, make_spec
from tests.models.networks import normed
from tests.models.packs.test_pack import Sweep, Trials
from tests.models.packs.test_trainer import data, metrics_of

HERE = "tests.models.networks"
N_EPOCHS = 4

pytestmark = pytest.mark.usefixtures("one_thread")


def family(name: str) -> PythonFamily:
    return PythonFamily(target=f"{HERE}:{name}")


def problem(name: str, precision: Precision, task: Task = Task.classification) -> TrainingProblem:
    n_outputs = 3 if task is Task.classification else 1
    return TrainingProblem(task, 5, n_outputs, 3.0, family(name), SIDE, precision)


ARGUMENTS: dict[str, dict[str, ParamValue]] = {
    "normed": {"width": 6},
    "Convolution": {"channels": 3},
}


def lanes(name: str, optimizer: str, n: int = 5) -> list[ModuleParams]:
    draw = np.random.default_rng(3)
    scale = 0.05 if optimizer == "sgd" else 0.01
    common = ARGUMENTS[name] | {"optimizer": optimizer, "batch_size": 50}
    return [
        ModuleParams.from_params(
            common
            | {
                "lr": scale * float(draw.uniform(0.2, 1)),
                "weight_decay": float(draw.choice([0, 0.02])),
                "momentum": float(draw.uniform(0, 0.9)),
                "clip_norm": None if i % 2 else 0.3,
            }
        )
        for i in range(n)
    ]


def pack(of: TrainingProblem, params: ModuleParams) -> ModulePackTrainer:
    plan = make_plan(family=of.family, training=TrainingConfig(precision=of.precision))
    given = dict(params.arguments) | {"optimizer": params.optimizer, "batch_size": 50}
    given |= {"schedule": params.schedule, "ema_decay": params.ema_decay}
    key = plan.pack_key(given, on_host=True)
    assert isinstance(key, ModuleKey)
    assert pack_size(key, "auto") > 1
    return ModulePackTrainer(of, key, data(of), device="cpu")


def alone(of: TrainingProblem, params: ModuleParams, seed: int) -> NetworkTrainer:
    return NetworkTrainer(of, params, data(of), device="cpu", seed=seed)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", ["normed", "Convolution"])
@pytest.mark.parametrize(
    ("precision", "n_epochs", "within"),
    [(Precision.float64, 12, 1e-6), (Precision.float32, 4, 1e-5)],
)
def test_losses_are_those_of_training_alone(
    name: str, optimizer: str, precision: Precision, n_epochs: int, within: float
) -> None:
    of, some = problem(name, precision), lanes(name, optimizer)
    together = pack(of, some[0])
    for number, params in enumerate(some):
        together.add(number, params, 100 + number, None)
    trainers = [alone(of, params, 100 + number) for number, params in enumerate(some)]
    for epoch in range(n_epochs):
        ended = together.run_epoch()
        for number, trainer in enumerate(trainers):
            expected = trainer.run_epoch(epoch)
            assert metrics_of(ended[number]) == pytest.approx(expected, rel=within, abs=within)
    for number, trainer in enumerate(trainers):
        expected_state, state = trainer.state(n_epochs - 1), together.state(number, n_epochs - 1)
        assert state["optimizer"].keys() == expected_state["optimizer"].keys()
        torch.testing.assert_close(
            state["weights"], dict(expected_state["weights"]), atol=max(within, 1e-4), rtol=0
        )


def test_regression_agrees_too() -> None:
    of = problem("normed", Precision.float64, Task.regression)
    own = lanes("normed", "adam")[0]
    together, by_itself = pack(of, own), alone(of, own, 0)
    together.add(0, own, 0, None)
    for epoch in range(3):
        assert metrics_of(together.run_epoch()[0]) == pytest.approx(by_itself.run_epoch(epoch))


def test_schedules_and_averages_agree() -> None:
    of = problem("normed", Precision.float64)
    changes: dict[str, Any] = {"schedule": "onecycle", "ema_decay": 0.9}
    own, other = (replace(params, **changes) for params in lanes("normed", "adamw", n=2))
    together, by_itself = pack(of, own), alone(of, own, 0)
    together.add(0, own, 0, None)
    together.add(1, other, 1, None)
    for epoch in range(3):
        expected = by_itself.run_epoch(epoch)
        assert metrics_of(together.run_epoch()[0]) == pytest.approx(expected)
    assert together.state(0, 2).keys() == by_itself.state(2).keys()


@pytest.mark.parametrize("changes", [{}, {"schedule": "cosine", "ema_decay": 0.9}], ids=str)
@pytest.mark.parametrize("name", ["normed", "Convolution"])
def test_what_becomes_of_other_lanes_changes_a_lane_by_no_bit(
    name: str, changes: dict[str, Any]
) -> None:
    of = problem(name, Precision.float32)
    own, late, *others = (replace(params, **changes) for params in lanes(name, "adam", n=8))

    def run(*, eventful: bool) -> tuple[list[dict[str, float]], dict[str, Any]]:
        """Where eventful, a neighbour turns NaN, two leave, and another comes in their place."""
        together = pack(of, own)
        for number, params in enumerate(others):
            wild = eventful and number == 0
            together.add(number, replace(params, lr=1e30) if wild else params, number, None)
        together.add(1000, own, 1000, None)
        ended = []
        for epoch in range(4):
            ended.append(metrics_of(together.run_epoch()[1000]))
            if eventful and epoch in (0, 1):
                together.remove(epoch)
            if eventful and epoch == 2:
                together.add(7, late, 7, None)
        return ended, together.state(1000, 3)

    (metrics, state), (found_metrics, found) = run(eventful=False), run(eventful=True)
    assert found_metrics == metrics
    torch.testing.assert_close(found, state, rtol=0, atol=0)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_states_go_from_a_pack_to_training_alone_and_back(optimizer: str) -> None:
    of = problem("normed", Precision.float64)
    own, other = lanes("normed", optimizer)[:2]
    whole = alone(of, own, 3)
    expected = [whole.run_epoch(epoch) for epoch in range(6)]
    first = pack(of, own)
    first.add(3, own, 3, None)
    found = [metrics_of(first.run_epoch()[3]) for _ in range(2)]
    middle = alone(of, own, 3)
    assert middle.load_state(first.state(3, 1)) == 2
    found += [middle.run_epoch(epoch) for epoch in (2, 3)]
    last = pack(of, own)
    last.add(4, other, 4, None)
    last.run_epoch()  # the trial comes into a pack under way
    assert last.add(3, own, 3, middle.state(3)) == 4
    found += [metrics_of(last.run_epoch()[3]) for _ in range(2)]
    for a, b in zip(found, expected, strict=True):
        assert a == pytest.approx(b, rel=1e-9)
    with pytest.raises(ValueError, match="the trial's params ask for"):
        last.add(
            5,
            own,
            5,
            alone(
                problem("Convolution", Precision.float64), lanes("Convolution", "sgd")[0], 0
            ).state(0),
        )


# --- as the sweep sees them -----------------------------------------------------------------------


def session(dataset: Dataset, name: str) -> TrainingSession:
    training = TrainingConfig(epochs=N_EPOCHS, precision=Precision.float64)
    plan = make_plan(family=family(name), training=training)
    return TrainingSession(
        plan, SIDE.open_estimator(EstimatorSetup(family(name), dataset, training))
    )


def run_pack(dataset: Dataset, name: str, folder: Path, **params: ParamValue) -> Sweep:
    specs = [
        make_spec(folder, {"lr": 0.01 * (n + 1), "batch_size": 50} | params, n) for n in range(3)
    ]
    sweep = Sweep()
    session(dataset, name).run_pack(Trials(specs, 8), HOST, sweep)
    assert all(isinstance(sweep.of(n).outcome, FinishedOutcome) for n in range(3))
    return sweep


def test_what_can_be_stacked_trains_together(disc: Dataset, tmp_path: Path) -> None:
    sweep = run_pack(disc, "normed", tmp_path)
    assert [sorted(trials) for trials in sweep.reports_together] == [[0, 1, 2]] * N_EPOCHS


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("dropping", "random operation"),
        ("Recurrent", ""),
        ("Branching", "data-dependent control flow"),
        ("Secret", "its buffer matrix differs by seed"),
    ],
)
def test_what_cannot_be_stacked_trains_one_by_one_and_says_so_once(
    disc: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, reason: str
) -> None:
    with caplog.at_level(logging.WARNING):
        sweep = run_pack(disc, name, tmp_path)
    assert [len(trials) for trials in sweep.reports_together] == [1] * 3 * N_EPOCHS
    (message,) = [r.getMessage() for r in caplog.records if "one by one" in r.getMessage()]
    assert reason in message


def test_large_networks_train_together_only_where_that_is_asked_for(
    disc: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    plan = make_plan(family=family("normed"))
    key = plan.pack_key({"width": 200}, on_host=True)
    assert key is not None
    with pytest.raises(
        ValueError, match=r"4\d,\d\d\d weights; on a CPU networks of more than 16,384"
    ):
        SIDE.open_estimator(EstimatorSetup(family("normed"), disc, plan.training)).open_pack(
            key, "cpu"
        )
    asked = SIDE.open_estimator(
        EstimatorSetup(family("normed"), disc, plan.training, packs_large=True)
    )
    assert isinstance(asked.open_pack(key, "cpu").trainer, ModulePackTrainer)


def test_dropout_of_the_module_follows_from_the_seed(disc: Dataset, tmp_path: Path) -> None:
    def reports(folder: str) -> list[tuple[int, dict[str, float]]]:
        listener = Listener()
        session(disc, "dropping").run(make_spec(tmp_path / folder, {"lr": 0.01}), HOST, listener)
        return listener.reports

    assert reports("a") == reports("b")


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("wrong_shape", r"returned \(50, 3\) for 50 rows; it must return \(rows, n_outputs\)"),
        ("no_module", r"no_module returned a int; it must return a torch\.nn\.Module"),
        ("Convolution", "channels"),
    ],
)
def test_a_network_that_does_not_work_fails_its_trial_with_the_reason(
    disc: Dataset, tmp_path: Path, name: str, cause: str
) -> None:
    sweep = Sweep()
    specs = [make_spec(tmp_path, {"batch_size": 50}, n) for n in range(2)]
    session(disc, name).run_pack(Trials(specs, 8), HOST, sweep)
    for number in range(2):
        outcome = sweep.of(number).outcome
        assert isinstance(outcome, FailedOutcome)
        assert re.search(cause, outcome.cause)


def test_best_pt_predicts_and_needs_the_function(tmp_path: Path) -> None:
    dataset = load_dataset(DataConfig())
    run_pack(dataset, "normed", tmp_path, width=16)
    path = tmp_path / "trial-00002" / "best.pt"
    predictor = automl.load(path, build=normed)
    x = x_of(dataset, dataset.validation)
    right = predictor.predict(x) == np.array(dataset.classes)[dataset.validation.y]
    assert right.mean() > 0.8
    with pytest.raises(AutoMLError, match=rf"its network was built by {HERE}:normed, and no code"):
        automl.load(path)


# --- what is refused before the first trial -------------------------------------------------------


def test_the_space_may_hold_what_the_function_and_the_training_take(disc: Dataset) -> None:
    declaration = declare_objective(make_plan(family=family("Convolution")), disc)
    check_space(declaration, ["channels", "lr", "clip_norm"], "val_error")
    with pytest.raises(ConfigError, match=r"space\.depth: unknown here; .*: channels, lr, batch_"):
        check_space(declaration, ["channels", "depth"], "val_loss")
    with pytest.raises(ConfigError, match="space: channels not there"):
        check_space(declaration, ["lr"], "val_loss")
    assert declare_objective(make_plan(family=family("any_params")), disc).params is None


def test_values_of_the_training_are_checked_and_others_are_not() -> None:
    plan = make_plan(family=family("normed"))
    check_values(plan, {"width": [-3], "depth": ["deep"]})
    with pytest.raises(ConfigError, match=r"space\.lr=-1\.0: must be"):
        check_values(plan, {"lr": [-1.0]})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("too_few", r"called as build\(n_inputs, n_outputs, \*\*params\), and takes only"),
        ("takes_lr", "lr is a param of the training"),
        ("nromed", "has no nromed. It has: .*normed"),
    ],
)
def test_a_function_that_cannot_be_called_says_why(disc: Dataset, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        declare_objective(make_plan(family=family(name)), disc)
    assert str(caught.value).startswith(f"model.target={HERE}:{name}: ")


# --- memory ---------------------------------------------------------------------------------------


def test_a_pack_that_is_done_with_is_freed_at_once() -> None:
    of = problem("normed", Precision.float32)
    own = lanes("normed", "adam")[0]
    together = pack(of, own)
    together.add(0, own, 0, None)
    together.run_epoch()
    places = weakref.ref(together.make_places({}))
    assert places() is None
    whole = weakref.ref(together)
    del together
    assert whole() is None
