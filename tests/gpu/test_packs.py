"""A pack on a GPU against training alone there. Needs an NVIDIA GPU: `make test-gpu`."""

import pytest
import torch

from automl.config import Growth, Precision, Task
from automl.training.pack_trainer import PackTrainer
from automl.training.params import OPTIMIZERS, MLPParams
from automl.training.tensors import DataTensors, PartTensors
from automl.training.trainer import Problem, Trainer

pytestmark = pytest.mark.gpu

DEVICE = "cuda:0"
PROBLEM = Problem(Task.classification, 4, 3, 1.0, Growth.constant, Precision.float64)


def part(n_rows: int, seed: int) -> PartTensors:
    x = torch.rand(n_rows, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return PartTensors(x.to(DEVICE), (x.sum(1) * 1.5).long().clamp(max=2).to(DEVICE))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_losses_are_those_of_training_alone(optimizer: str) -> None:
    data = DataTensors(part(500, 0), part(200, 1))
    lanes = [
        MLPParams(depth, 10 + 5 * depth, 0.01, 64, optimizer, dropout=0.2 * (depth % 2))
        for depth in (1, 2, 2, 4)
    ]
    pack = PackTrainer(PROBLEM, 64, 32, data, device=DEVICE)
    alone = [Trainer(PROBLEM, p, data, device=DEVICE, seed=n) for n, p in enumerate(lanes)]
    for number, params in enumerate(lanes):
        pack.add(number, params, number, None)
    for epoch in range(5):
        ended = pack.run_epoch()
        for number, trainer in enumerate(alone):
            assert ended[number] == pytest.approx(trainer.run_epoch(epoch), rel=1e-6, abs=1e-6)
