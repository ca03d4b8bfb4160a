"""What torch is told of a process's caps; the setter stands in for a torch with CUDA."""

from __future__ import annotations

import torch

from automl.objectives.training_session import MemoryCaps


def test_torch_is_told_shares_of_the_device_and_only_what_changed() -> None:
    told: list[tuple[float, int]] = []
    caps = MemoryCaps(lambda share, device: told.append((share, device)), lambda device: 100)
    caps.apply([0, 0])
    assert told == [], "not at all while it is alone"
    caps.apply([25, 0])
    caps.apply([25, 80])
    assert told == [(0.25, 0), (0.8, 1)]
    caps.apply([0, 150])
    assert told[2:] == [(1.0, 0), (1.0, 1)]


def test_torchs_own_setter_takes_it_so() -> None:
    assert torch.cuda.set_per_process_memory_fraction.__code__.co_varnames[:2] == (
        "fraction",
        "device",
    )
