"""Several processes that train one network against one process with the same batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from automl.config import Precision, Task
from automl.data.dataset import Size
from automl.execution.worker_process import FORK_SERVER_CONTEXT
from automl.in_trial.goal import StudyGoal
from automl.models.families.mlp.family import MLPFamily
from automl.models.families.mlp.heavy import SIDE
from automl.models.networks.network_family import WarmUp
from automl.models.networks.optimizers import lr_factor
from automl.models.networks.tensors import DataTensors, PartTensors
from automl.models.networks.trainer import (
    SINGLE_RANK,
    NetworkFactory,
    NetworkTrainer,
    RankGroup,
    TrainingProblem,
)
from automl.trial import Direction
from tests.fork_server import fork_server_with

N_EPOCHS = 5
PARAMS = {"depth": 2, "width": 24, "batch_size": 32, "lr": 0.05}


@pytest.fixture(scope="module", autouse=True)
def _ranks_start_soon() -> None:
    fork_server_with()


def data(n_train: int, task: Task = Task.classification) -> DataTensors:
    generator = torch.Generator().manual_seed(1)

    def part(n_rows: int) -> PartTensors:
        x = torch.randn(n_rows, 6, generator=generator, dtype=torch.float64)
        if task is Task.regression:
            return PartTensors(x, x.sum(1).sin())
        return PartTensors(x, (x.sum(1) > 0).long())

    return DataTensors(part(n_train), part(41))


Given: TypeAlias = tuple[Mapping[str, object], DataTensors, NetworkFactory]


def trainer(
    params: Mapping[str, object],
    own: DataTensors,
    networks: NetworkFactory = SIDE,
    *,
    ranks: RankGroup = SINGLE_RANK,
) -> NetworkTrainer:
    task = Task.classification if own.train.y.dtype == torch.int64 else Task.regression
    n_outputs = 2 if task is Task.classification else 1
    problem = TrainingProblem(task, 6, n_outputs, 1.0, MLPFamily(), networks, Precision.float64)
    checked = problem.params({**PARAMS, **params})  # type: ignore[dict-item]
    warm_up = WarmUp(2, 0.25)
    return NetworkTrainer(problem, checked, own, device="cpu", seed=3, warm_up=warm_up, ranks=ranks)


def curve(found: NetworkTrainer) -> list[list[float]]:
    """Losses by epoch, until it has waited long enough."""
    losses = []
    for epoch in range(N_EPOCHS):
        if found.has_stopped:
            break
        losses.append([*found.run_epoch(epoch).values()])
    return losses


def in_group(rank: int, n_ranks: int, meeting: str, given: Given, pipe: Connection) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=n_ranks)
    found = trainer(*given, ranks=RankGroup(rank, n_ranks))
    losses = curve(found)
    weights = np.concatenate([w.reshape(-1) for w in found.state(0)["weights"].values()])
    pipe.send((losses, weights.tobytes()))
    pipe.recv()


def together(
    n_ranks: int,
    folder: Path,
    params: Mapping[str, object],
    own: DataTensors,
    networks: NetworkFactory = SIDE,
) -> list[tuple[list[list[float]], bytes]]:
    """The curve and the state of each process, in order."""
    meeting = str(folder / f"meeting-{len(list(folder.iterdir()))}")
    children, pipes = [], []
    for rank in range(n_ranks):
        ours, theirs = FORK_SERVER_CONTEXT.Pipe()
        arguments = (rank, n_ranks, meeting, (params, own, networks), theirs)
        child = FORK_SERVER_CONTEXT.Process(target=in_group, args=arguments, daemon=True)
        child.start()
        theirs.close()
        children.append(child)
        pipes.append(ours)
    told = [pipe.recv() for pipe in pipes]
    for pipe, child in zip(pipes, children, strict=True):
        pipe.send(None)
        child.join()
    return told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("params", "n_train", "task", "n_ranks"),
    [
        ({"optimizer": "sgd", "momentum": 0.9}, 200, Task.classification, 3),  # the last batch: 8
        ({"optimizer": "adamw", "weight_decay": 0.01, "clip_norm": 0.5}, 193, Task.regression, 2),
        (
            {"accumulate_steps": 3, "ema_decay": 0.9, "schedule": "onecycle"},
            193,
            Task.classification,
            3,
        ),
    ],  # the last of these has one row: other processes have none
    ids=["sgd", "adamw", "averaged"],
)
def test_they_train_what_one_process_trains(
    params: dict[str, object], n_train: int, task: Task, n_ranks: int, tmp_path: Path
) -> None:
    own = data(n_train, task)
    alone = curve(trainer(params, own))
    told = together(n_ranks, tmp_path, params, own)
    for losses, _ in told:
        np.testing.assert_allclose(losses, alone, rtol=0, atol=1e-9)
    assert len({weights for _, weights in told}) == 1, "their weights are the same bits"


@dataclass(frozen=True)
class Normed:
    """A network with running statistics; see `network.NetworkDescription`."""

    n_inputs: Size = 6
    n_outputs: Size = 2
    n_members = 1

    def build(self, dtype: torch.dtype, device: torch.device, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).to(device, dtype)

    def seed_draws(self, module: nn.Module, seed: int) -> None:
        torch.manual_seed(seed)

    def plain(self) -> dict[str, Any]:
        return {}


class NormedHeavySide:
    """A heavy side whose networks normalise batches."""

    def network(self, problem: TrainingProblem, params: object) -> Normed:
        return Normed()


def test_batch_norms_statistics_are_those_of_the_first(tmp_path: Path) -> None:
    """Each CPU rank normalises its own rows; all keep and evaluate with the same statistics."""
    first, second = together(2, tmp_path, {}, data(200), NormedHeavySide())
    assert first == second


def test_the_learning_rate_rises_to_what_the_params_say() -> None:
    warm_up = WarmUp(epochs=2, first=0.25)
    factors = [warm_up.factor(epoch, share) for epoch in range(3) for share in (0.0, 0.5)]
    assert factors == [0.25, 0.4375, 0.625, 0.8125, 1.0, 1.0]
    own = data(64)
    cold, warm = trainer({}, own), trainer({}, own)
    cold._warm_up = None
    assert curve(cold) != curve(warm)
    assert [warm._lr_factor(step) for step in (0, 1, 2, 3, 4, 9)] == [*factors[:4], 1.0, 1.0]


def test_a_schedule_rises_with_the_batch() -> None:
    both = trainer({"schedule": "cosine"}, data(64))
    n_steps = both.problem.training.n_epochs * 2
    assert both._lr_factor(1) == 0.4375 * lr_factor("cosine", 1, n_steps)


def test_where_nothing_is_held_out_no_patience_ends_it() -> None:
    goal = StudyGoal("train_loss", Direction.minimize, keeps_last=True)
    problem = replace(trainer({}, data(64)).problem, goal=goal)
    waiting = problem.patience(problem.params({**PARAMS, "patience_epochs": 1}), 64)
    assert not waiting.after({"train_loss": 1.0}).after({"train_loss": 2.0}).is_over


def test_early_stopping_is_the_same_in_all(tmp_path: Path) -> None:
    told = together(2, tmp_path, {"patience_epochs": 1, "lr": 1.0}, data(200))
    assert told[0] == told[1]
    assert len(told[0][0]) < N_EPOCHS
