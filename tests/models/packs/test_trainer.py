"""A pack against the alone trainer: the same numbers up to rounding, lane by lane independent."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from automl.config import Precision, Task
from automl.models.families.mlp.family import Growth, MLPFamily, MLPParams
from automl.models.families.mlp.heavy import SIDE
from automl.models.networks.network_family import OPTIMIZERS
from automl.models.networks.packs.mlp_trainer import MLPPackTrainer
from automl.models.networks.tensors import DataTensors, PartTensors
from automl.models.networks.trainer import DivergedError, NetworkTrainer, TrainingProblem

N_TRAIN, N_VALIDATION = 230, 90
WIDTH = 32

pytestmark = pytest.mark.usefixtures("one_thread")


def problem(
    precision: Precision,
    task: str = "binary",
    growth: Growth = Growth.constant,
    n_inputs: int = 5,
) -> TrainingProblem:
    """`task` is binary, classes (3) or regression."""
    n_outputs = {"binary": 2, "classes": 3, "regression": 1}[task]
    kind = Task.regression if task == "regression" else Task.classification
    family = MLPFamily(growth=growth)
    return TrainingProblem(
        kind,
        n_inputs,
        n_outputs,
        target_scale=3.0,
        family=family,
        networks=SIDE,
        precision=precision,
    )


def data(of: TrainingProblem) -> DataTensors:
    n_inputs, n_outputs = of.n_inputs, of.n_outputs
    assert isinstance(n_inputs, int)
    assert isinstance(n_outputs, int)

    def part(n_rows: int, seed: int) -> PartTensors:
        x = np.random.default_rng(seed).uniform(-1, 1, (n_rows, n_inputs))
        sums = torch.tensor(x.sum(1) * 2, dtype=of.dtype)
        y = sums if of.task is Task.regression else sums.floor().long() % n_outputs
        return PartTensors(torch.tensor(x, dtype=of.dtype), y)

    return DataTensors(part(N_TRAIN, 0), part(N_VALIDATION, 1))


def lanes(optimizer: str, n: int = 6, seed: int = 0) -> list[MLPParams]:
    """Params that differ in all that may differ, in no order of depth; some lanes of one kind."""
    draw = np.random.default_rng(seed)
    scale = 0.05 if optimizer == "sgd" else 0.005
    return [
        MLPParams(
            depth=int(draw.integers(1, 5)),
            width=int(draw.integers(1, WIDTH + 1)),
            lr=scale * float(draw.uniform(0.2, 1)),
            batch_size=50,
            optimizer=optimizer,
            momentum=float(draw.choice([0, 0.9])),
            beta1=float(draw.uniform(0.8, 0.95)),
            beta2=float(draw.uniform(0.95, 0.999)),
            weight_decay=float(draw.choice([0, 0.02])),
            clip_norm=None if draw.random() < 0.3 else float(draw.uniform(0.05, 0.5)),
            dropout=float(draw.choice([0, 0.3])),
        )
        for _ in range(n)
    ]


def pack(of: TrainingProblem, width: int = WIDTH) -> MLPPackTrainer:
    return MLPPackTrainer(of, 50, width, data(of), device="cpu")


def alone(of: TrainingProblem, params: MLPParams, seed: int) -> NetworkTrainer:
    return NetworkTrainer(of, params, data(of), device="cpu", seed=seed)


def metrics_of(ended: dict[str, float] | DivergedError) -> dict[str, float]:
    assert isinstance(ended, dict), ended
    return ended


def assert_agree(
    of: TrainingProblem, some: list[MLPParams], *, n_epochs: int, within: float
) -> None:
    """Metrics of every epoch and the states after it: those of each lane trained alone."""
    together = pack(
        of, 0 if isinstance(of.family, MLPFamily) and of.family.growth is Growth.doubling else WIDTH
    )
    for number, params in enumerate(some):
        together.add(number, params, 100 + number, None)
    trainers = [alone(of, params, 100 + number) for number, params in enumerate(some)]
    for epoch in range(n_epochs):
        ended = together.run_epoch()
        for number, trainer in enumerate(trainers):
            expected = trainer.run_epoch(epoch)
            assert metrics_of(ended[number]) == pytest.approx(expected, rel=within, abs=within)
    for number, trainer in enumerate(trainers):
        expected_state = trainer.state(n_epochs - 1)
        state = together.state(number, n_epochs - 1)
        assert state.keys() == expected_state.keys()
        assert state["optimizer"].keys() == expected_state["optimizer"].keys()
        weights = dict(expected_state["weights"])
        torch.testing.assert_close(state["weights"], weights, atol=max(within, 1e-4), rtol=0)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_in_float64_losses_are_those_of_training_alone_over_20_epochs(optimizer: str) -> None:
    assert_agree(problem(Precision.float64), lanes(optimizer), n_epochs=20, within=1e-6)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_in_float32_losses_are_those_of_training_alone_over_20_steps(optimizer: str) -> None:
    assert_agree(problem(Precision.float32), lanes(optimizer), n_epochs=4, within=1e-5)


@pytest.mark.parametrize("task", ["classes", "regression"])
def test_each_task_has_the_metrics_of_training_alone(task: str) -> None:
    assert_agree(problem(Precision.float64, task), lanes("sgd"), n_epochs=3, within=1e-6)


def test_growing_layers_agree_without_padding() -> None:
    growing = problem(Precision.float64, growth=Growth.doubling)
    some = [replace(params, depth=4) for params in lanes("adamw")]
    assert_agree(growing, some, n_epochs=5, within=1e-6)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_schedules_and_averages_agree(optimizer: str) -> None:
    for schedule, decays in (("cosine", (0.0, 0.0)), ("onecycle", (0.8, 0.99))):
        some = [
            replace(params, schedule=schedule, ema_decay=decays[number % 2])
            for number, params in enumerate(lanes(optimizer))
        ]
        assert_agree(problem(Precision.float64), some, n_epochs=3, within=1e-6)


def test_bfloat16_agrees_to_its_own_rounding() -> None:
    of, own = problem(Precision.bfloat16), lanes("sgd")[0]
    together, by_itself = pack(of), alone(of, own, 0)
    together.add(0, own, 0, None)
    for epoch in range(2):
        found, expected = metrics_of(together.run_epoch()[0]), by_itself.run_epoch(epoch)
        for name in ("train_loss", "val_loss"):
            assert found[name] == pytest.approx(expected[name], rel=0.01)


def changed(some: list[MLPParams], changes: dict[str, Any]) -> list[MLPParams]:
    return [replace(params, **changes) for params in some]


def run_with(
    neighbours: list[MLPParams], of: TrainingProblem, own: MLPParams
) -> tuple[Any, dict[str, Any]]:
    """Four epochs of `own` as trial 1000; neighbours come, and go one by one, around it."""
    together = pack(of)
    half = len(neighbours) // 2
    for number, params in enumerate(neighbours[:half]):
        together.add(number, params, number, None)
    together.add(1000, own, 1000, None)
    ended = []
    for epoch in range(4):
        ended.append(metrics_of(together.run_epoch()[1000]))
        if epoch < half:
            together.remove(epoch)
            together.add(half + epoch, neighbours[half + epoch], half + epoch, None)
    return ended, together.state(1000, 3)


@pytest.mark.parametrize("changes", [{}, {"schedule": "onecycle", "ema_decay": 0.9}], ids=str)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(
    ("precision", "n_inputs"),
    # A product of one matrix alone has other last bits than among others where one of its sides
    # is 1, and MKL is the BLAS.
    [
        (Precision.float32, 5),
        (Precision.float32, 1),
        (Precision.float64, 1),
        (Precision.bfloat16, 5),
    ],
)
def test_a_lane_does_not_depend_on_its_neighbours_by_a_bit(
    optimizer: str, precision: Precision, n_inputs: int, changes: dict[str, Any]
) -> None:
    of = problem(precision, "classes", n_inputs=n_inputs)
    for seed, own in enumerate(changed(lanes(optimizer, n=2, seed=5), changes)):
        metrics, state = run_with([], of, own)
        for n_neighbours in (2, 6):
            neighbours = changed(lanes(optimizer, n_neighbours, seed=10 + seed), changes)
            neighbours[0] = replace(neighbours[0], lr=1e30)  # turns NaN at once
            found_metrics, found = run_with(neighbours, of, own)
            assert found_metrics == metrics
            torch.testing.assert_close(found, state, rtol=0, atol=0)


def test_a_lane_that_diverges_says_what_it_says_alone() -> None:
    of = problem(Precision.float32)
    wild, tame = replace(lanes("sgd")[0], lr=1e12), lanes("sgd")[1]
    together = pack(of)
    together.add(0, wild, 0, None)
    together.add(1, tame, 1, None)
    ended = together.run_epoch()
    with pytest.raises(DivergedError) as expected:
        alone(of, wild, 0).run_epoch(0)
    assert isinstance(ended[0], DivergedError)
    assert str(ended[0]) == str(expected.value)
    assert isinstance(ended[1], dict)


@pytest.mark.parametrize("changes", [{}, {"schedule": "cosine", "ema_decay": 0.9}], ids=str)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_states_go_from_a_pack_to_training_alone_and_back(
    optimizer: str, changes: dict[str, Any]
) -> None:
    of = problem(Precision.float64)
    own, neighbour = changed(lanes(optimizer)[1::-1], changes | {"patience_epochs": 9})
    whole = alone(of, own, 3)
    expected = [whole.run_epoch(epoch) for epoch in range(6)]

    first = pack(of)
    first.add(3, own, 3, None)
    found = [metrics_of(first.run_epoch()[3]) for _ in range(2)]
    middle = alone(of, own, 3)
    assert middle.load_state(first.state(3, 1)) == 2
    found += [middle.run_epoch(epoch) for epoch in (2, 3)]
    last = pack(of)
    last.add(4, neighbour, 4, None)
    last.run_epoch()  # the trial comes into a pack under way
    assert last.add(3, own, 3, middle.state(3)) == 4
    found += [metrics_of(last.run_epoch()[3]) for _ in range(2)]
    for a, b in zip(found, expected, strict=True):
        assert a == pytest.approx(b, rel=1e-9)


def test_a_state_of_another_network_is_refused_and_changes_nothing() -> None:
    of = problem(Precision.float32)
    own = lanes("sgd")[0]
    state = alone(of, replace(own, width=own.width + 1), 0).state(0)
    together = pack(of)
    with pytest.raises(ValueError, match="the trial's params ask for"):
        together.add(0, own, 0, state)
    together.add(1, own, 1, None)
    assert together.run_epoch().keys() == {1}


def test_after_an_epoch_that_broke_states_are_those_of_its_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together = pack(problem(Precision.float32))
    for number, params in enumerate(changed(lanes("adam"), {"ema_decay": 0.5})):
        together.add(number, params, number, None)
    together.run_epoch()
    before = together.state(0, 0)

    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("CUDA error")

    monkeypatch.setattr(torch, "log_softmax", _after(3, torch.log_softmax, broken))
    with pytest.raises(RuntimeError, match="CUDA error"):
        together.run_epoch()
    together.rewind()
    torch.testing.assert_close(together.state(0, 0), before, rtol=0, atol=0)


def _after(n_calls: int, first: Callable[..., Any], then: Callable[..., Any]) -> Callable[..., Any]:
    calls = itertools.count()
    return lambda *args, **kwargs: (first if next(calls) < n_calls else then)(*args, **kwargs)
