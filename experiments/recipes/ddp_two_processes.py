"""DistributedDataParallel on two processes of one machine for each trial, started by torchrun.

The program is as it was written for torchrun; what its first process prints is read. Here the two
are on CPUs, by Gloo, and one trial runs at a time. To give each process a GPU, write
`torchrun --nproc_per_node={n_devices}` and, in place of the second line of settings,
`admission.devices_per_trial=2`: as many trials run as there are pairs of GPUs with room.

$ python -m automl objective=command \
    objective.command='torchrun --nproc_per_node=2 ddp_two_processes.py --epochs 6' \
    devices.only=cpu admission.max_concurrent_trials=1 \
    study.name=ddp study.n_trials=2 space='{lr: {low: 1e-2, high: 1.0, log: true}}'
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def disc(n, seed):
    """Points of a square, and whether each lies in a disc of half its area."""
    x = 2 * torch.rand(n, 2, generator=torch.Generator().manual_seed(seed)) - 1
    return x, (x.square().sum(dim=1) < 2 / torch.pi).long()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()

    has_gpus = torch.cuda.is_available()
    dist.init_process_group("nccl" if has_gpus else "gloo")
    device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}" if has_gpus else "cpu")
    torch.manual_seed(0)  # the same weights in each process
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2)).to(device)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    data = TensorDataset(*disc(1000, seed=1))
    sampler = DistributedSampler(data)  # each process has its half
    loader = DataLoader(data, batch_size=25, sampler=sampler)
    x_val, y_val = (part.to(device) for part in disc(500, seed=2))
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            with torch.no_grad():
                val_loss = nn.functional.cross_entropy(model.module(x_val), y_val)
            print(f"epoch {epoch}: val_loss {val_loss:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
