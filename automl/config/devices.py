"""Which devices trials may use."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from automl.config.checks import check_positive


class DevicesKind(enum.Enum):
    auto = "auto"
    host = "host"
    nvml = "nvml"


class Choose(enum.Enum):
    auto = "auto"
    gpu = "gpu"
    all = "all"


@dataclass
class DevicesConfig:
    """Which devices trials may use, and how often they are looked at."""

    kind: DevicesKind = DevicesKind.auto
    """auto: the GPUs that both NVML and torch see, else the host; nvml: NVML's word alone."""
    only: Any = field(default_factory=list)
    """Numbers in CUDA's order, UUIDs or their beginnings, one or a list; empty: all."""
    choose: Choose = Choose.auto
    """Which of them a trial may go to where there are GPUs. auto: the built-in network also to the
    CPU, where it ends first there; gpu: GPUs alone; all: a function or network of yours, too."""
    interval_seconds: float = 0.5
    """Time from one reading to the next."""

    def __post_init__(self) -> None:
        names = self.only if isinstance(self.only, list | tuple) else [self.only]
        self.only = ["" if name is None else str(name) for name in names]
        check_positive("devices.interval_seconds", self.interval_seconds)
