"""An objective that trains in a process per device, as DistributedDataParallel wants it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
from torch import distributed, nn
from torch.multiprocessing.spawn import start_processes
from torch.nn.parallel import DistributedDataParallel

import automl

N_STEPS = 3


def trains_in_ranks(trial: automl.TrialContext) -> None:
    """As many processes as the trial has devices; each writes down what it sees."""
    uuids = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    folder = trial.directory
    start_processes(  # type: ignore[no-untyped-call]
        _rank, (len(uuids), str(folder)), nprocs=len(uuids), start_method="spawn"
    )
    for step in range(N_STEPS):
        losses = [json.loads(_told(folder, rank).read_text())["losses"][step] for rank in (0, 1)]
        assert losses[0] == losses[1], "the mean of all ranks"
        trial.report(step, {"val_loss": losses[0]})


def _rank(rank: int, n_ranks: int, folder: str) -> None:
    store = f"file://{folder}/rendezvous"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=n_ranks)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(N_STEPS):
        loss = (model(torch.full((4, 2), 1.0 + rank)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach() / n_ranks
        distributed.all_reduce(mean)
        losses.append(float(mean))
    seen = {"sees": os.environ["CUDA_VISIBLE_DEVICES"], "losses": losses}
    _told(Path(folder), rank).write_text(json.dumps(seen))
    distributed.destroy_process_group()


def _told(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.json"
