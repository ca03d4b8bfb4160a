"""How long a step takes on one core, by size: the curve of `device_choice.py`. See README.md."""

from __future__ import annotations

import sys
import time

import torch
from torch import nn

WIDTHS = (16, 64, 128, 256, 512, 1024, 2048, 4096)
BATCH, N_INPUTS, N_OUTPUTS, DEPTH = 128, 20, 2, 3
SECONDS = 0.25


def network(width: int) -> nn.Module:
    layers: list[nn.Module] = []
    n = N_INPUTS
    for _ in range(DEPTH):
        layers += [nn.Linear(n, width), nn.ReLU()]
        n = width
    return nn.Sequential(*layers, nn.Linear(n, N_OUTPUTS))


def step_seconds(net: nn.Module) -> float:
    """The best of three, in CPU time."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(BATCH, N_INPUTS), torch.randint(0, N_OUTPUTS, (BATCH,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    step()
    best = float("inf")
    for _ in range(3):
        begun, n_steps = time.thread_time(), 0
        while time.thread_time() - begun < SECONDS:
            step()
            n_steps += 1
        best = min(best, (time.thread_time() - begun) / n_steps)
    return best


def main() -> None:
    torch.set_num_threads(1)
    sys.stdout.write("| weights | ms per step | GFLOP/s |\n|---|---|---|\n")
    for width in WIDTHS:
        net = network(width)
        n_weights = sum(p.numel() for p in net.parameters())
        seconds = step_seconds(net)
        flops = n_weights * (6 * BATCH + 10) / seconds / 1e9
        sys.stdout.write(f"| {n_weights:,} | {1000 * seconds:.3f} | {flops:.1f} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
