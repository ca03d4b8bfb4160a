"""A training step of one network on one device, and the time that it takes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812  torch's own documentation names it so
from networks import Batch, Network

_N_WARM_UP_ON_CPU, _N_WARM_UP_ON_GPU = 1, 5  # cuDNN tries its algorithms, memory is fetched
_LR = 0.01


class Stepper:
    """A network with its optimizer and one mini-batch, which stays on the device."""

    def __init__(self, network: Network, n_rows: int, device: str) -> None:
        self.on_gpu, self._device = device != "cpu", device
        if self.on_gpu:
            torch.backends.cudnn.benchmark = True  # shapes do not change; the authors do the same
        self._batch: Batch = network.batch(n_rows).to(device)
        with torch.device(device):
            self._model = network.build()
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=_LR)

    def step(self) -> None:
        """Forward, backward, SGD; queued where the device is a GPU."""
        self._optimizer.zero_grad()
        # Threads of one process would else share one backward thread per GPU.
        with torch.autograd.set_multithreading_enabled(False):
            loss = F.cross_entropy(self._model(self._batch.x), self._batch.y)
            loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()

    def warm_up(self) -> None:
        """Steps that no time is taken of, and a wait for them."""
        for _ in range(_N_WARM_UP_ON_GPU if self.on_gpu else _N_WARM_UP_ON_CPU):
            self.step()
        self.wait()

    def wait(self) -> None:
        """Until what this thread queued is done."""
        if self.on_gpu:
            torch.cuda.current_stream(self._device).synchronize()


class HostTimes(NamedTuple):
    """Of each step on a CPU."""

    wall_seconds: list[float]
    cpu_seconds: list[float]
    """Of all threads of the process."""


def host_times(
    stepper: Stepper, threads: Sequence[int], n_steps: int, most_seconds: float
) -> dict[int, HostTimes]:
    """By number of threads, a step of each in turn: what else the machine does disturbs all alike.

    The first step of each is not timed. None starts after `most_seconds`.
    """
    times = {n_threads: HostTimes([], []) for n_threads in threads}
    for n_threads in threads:
        torch.set_num_threads(n_threads)
        stepper.warm_up()
    deadline = time.perf_counter() + most_seconds
    for _ in range(n_steps):
        for n_threads, timed in times.items():
            torch.set_num_threads(n_threads)
            begun, cpu_begun = time.perf_counter(), time.process_time()
            stepper.step()
            timed.wall_seconds.append(time.perf_counter() - begun)
            timed.cpu_seconds.append(time.process_time() - cpu_begun)
        if time.perf_counter() > deadline:
            break
    return times


def gpu_seconds(stepper: Stepper, n_steps: int) -> list[float]:
    """Of each step after the warm-up: from one step's end to the next one's, by the GPU's clock,
    since the host runs ahead."""
    stepper.warm_up()
    events = [
        torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        for _ in range(n_steps + 1)
    ]
    events[0].record()
    for event in events[1:]:
        stepper.step()
        event.record()
    events[-1].synchronize()
    return [a.elapsed_time(b) / 1000 for a, b in pairwise(events)]


def copy_seconds(batch: Batch, device: str, n_copies: int, *, pinned: bool) -> list[float]:
    """Of each copy of a mini-batch from the host to a GPU; pinned: from memory that cannot move."""
    source = [t.pin_memory() if pinned else t for t in (batch.x, batch.y)]
    target = [torch.empty_like(t, device=device) for t in source]
    seconds = []
    for _ in range(1 + n_copies):
        torch.cuda.synchronize(device)
        begun = time.perf_counter()
        for to, of in zip(target, source, strict=True):
            to.copy_(of, non_blocking=pinned)
        torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - begun)
    return seconds[1:]
