"""Packs on a GPU against training alone there. Needs an NVIDIA GPU: `make test-gpu`."""

import gc
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from automl.config import DataConfig, Precision, Task
from automl.data.load import load_dataset
from automl.in_trial.checkpoints import torch_checkpoint
from automl.models.families.mlp.family import MLPFamily, MLPParams
from automl.models.families.mlp.heavy import SIDE
from automl.models.family import EstimatorSetup
from automl.models.networks.network_family import OPTIMIZERS
from automl.models.networks.packs.mlp_trainer import MLPPackTrainer
from automl.models.networks.tensors import DataTensors, PartTensors
from automl.models.networks.trainer import DivergedError, NetworkTrainer, TrainingProblem
from automl.objectives.training_session import TrainingSession
from automl.trial import FinishedOutcome, InterruptedOutcome, ParamValue, Placement, TrialSpec
from tests.models.conftest import Listener, make_plan, make_spec
from tests.models.packs.test_pack import Sweep, Trials

pytestmark = pytest.mark.gpu

DEVICE = "cuda:0"
MIB = 2**20
WIDE: dict[str, ParamValue] = {"depth": 4, "width": 128, "batch_size": 4096, "lr": 0.01}
"""A trial whose step takes some 13 MiB of activations."""


def problem(precision: Precision) -> TrainingProblem:
    return TrainingProblem(Task.classification, 4, 3, 1.0, MLPFamily(), SIDE, precision)


def data(of: TrainingProblem) -> DataTensors:
    def part(n_rows: int, seed: int) -> PartTensors:
        generator = torch.Generator().manual_seed(seed)
        x = torch.rand(n_rows, 4, generator=generator, dtype=torch.float64)
        y = (x.sum(1) * 1.5).long().clamp(max=2)
        return PartTensors(x.to(DEVICE, of.dtype), y.to(DEVICE))

    return DataTensors(part(500, 0), part(200, 1))


def lanes(optimizer: str) -> list[MLPParams]:
    return [
        MLPParams(
            depth=depth,
            width=10 + 5 * depth,
            lr=0.01,
            batch_size=64,
            optimizer=optimizer,
            clip_norm=None if depth == 1 else 0.5,
            dropout=0.2 * (depth % 2),
        )
        for depth in (1, 2, 2, 3, 4)
    ]


def pack(of: TrainingProblem, some: list[MLPParams]) -> MLPPackTrainer:
    together = MLPPackTrainer(of, 64, 32, data(of), device=DEVICE)
    for number, params in enumerate(some):
        together.add(number, params, number, None)
    return together


def losses(metrics: dict[str, float] | DivergedError) -> list[float]:
    """Not `val_error`, which a rounding may move by a whole row."""
    assert isinstance(metrics, dict), metrics
    return [metrics["train_loss"], metrics["val_loss"]]


@pytest.mark.parametrize(
    ("precision", "within"), [(Precision.float64, 1e-6), (Precision.float32, 1e-4)]
)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_losses_are_those_of_training_alone(
    optimizer: str, precision: Precision, within: float
) -> None:
    of = problem(precision)
    together = pack(of, lanes(optimizer))
    alone = [
        NetworkTrainer(of, params, data(of), device=DEVICE, seed=number)
        for number, params in enumerate(lanes(optimizer))
    ]
    for epoch in range(5):
        ended = together.run_epoch()
        for number, trainer in enumerate(alone):
            expected = losses(trainer.run_epoch(epoch))
            assert losses(ended[number]) == pytest.approx(expected, rel=within, abs=within)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_lane_that_leaves_changes_the_others_by_rounding_only(optimizer: str) -> None:
    of = problem(Precision.float64)
    whole, thinned = pack(of, lanes(optimizer)), pack(of, lanes(optimizer))
    for epoch in range(5):
        expected, found = whole.run_epoch(), thinned.run_epoch()
        for number, metrics in found.items():
            assert losses(metrics) == pytest.approx(losses(expected[number]), rel=1e-9)
        if epoch == 1:
            thinned.remove(2)


# --- as a worker carries them out -----------------------------------------------------------------


def open_session() -> TrainingSession:
    """Of the built-in objective, on a disc of which a batch of 4,096 rows can be had."""
    plan = replace(make_plan(), data=DataConfig(n_train=8192))
    return TrainingSession(
        plan,
        SIDE.open_estimator(EstimatorSetup(MLPFamily(), load_dataset(plan.data), plan.training)),
    )


def wide_specs(folder: Path, n: int) -> list[TrialSpec]:
    return [make_spec(folder, WIDE, number) for number in range(n)]


def run_alone(spec: TrialSpec, gpu: Placement) -> Listener:
    listener = Listener()
    open_session().run(spec, gpu, listener)
    return listener


def reported_losses(found: Listener) -> list[float]:
    return [loss for _, metrics in found.reports for loss in losses(metrics)]


def test_a_pack_gives_its_memory_back(tmp_path: Path, gpu: Placement) -> None:
    session, sweep, held = open_session(), Sweep(), list[int]()
    gc.collect()  # what tests before this one have left in this process
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved(DEVICE)
    sweep.on_call = lambda: held.append(sum(session.held_bytes()) - before)
    session.run_pack(Trials(wide_specs(tmp_path, 16), 16), gpu, sweep)
    assert all(isinstance(sweep.of(n).outcome, FinishedOutcome) for n in range(16))
    session.give_back_memory()
    assert max(held) > 128 * MIB
    assert sum(session.held_bytes()) - before < 64 * MIB  # the data, and what cuBLAS keeps
    state = torch_checkpoint.load(Path(wide_specs(tmp_path, 16)[0].checkpoint_dir) / "best.pt")
    assert {w.device.type for w in state["state"]["weights"].values()} == {"cpu"}


def test_a_pack_out_of_memory_hands_its_trials_back_without_a_strike(
    tmp_path: Path, gpu: Placement
) -> None:
    session, sweep = open_session(), Sweep()
    session.run(make_spec(tmp_path, WIDE, 99), gpu, Listener())  # what libraries take comes first
    session.give_back_memory()
    total = torch.cuda.get_device_properties(DEVICE).total_memory
    room = (sum(session.held_bytes()) + 96 * MIB) / total
    torch.cuda.set_per_process_memory_fraction(room, DEVICE)
    try:
        session.run_pack(Trials(wide_specs(tmp_path / "pack", 16), 16), gpu, sweep)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, DEVICE)
    for number in range(16):
        ended = sweep.of(number).outcome
        assert isinstance(ended, InterruptedOutcome), ended
        assert ended.pack_dissolved
        assert not ended.by_worker_death
        assert "out of memory" in ended.cause
    session.give_back_memory()
    spec, twin = (wide_specs(tmp_path / name, 1)[0] for name in ("pack", "alone"))
    expected = reported_losses(run_alone(twin, gpu))
    assert reported_losses(run_alone(spec, gpu)) == pytest.approx(expected, rel=1e-3)
