"""Settings of devices and of admission: which devices trials may use, and when a trial may start.

Admission itself is in `admission/`, the reading of devices in `devices/`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from automl.config.checks import check_positive, check_setting, parse_bytes


class SurveyKind(enum.Enum):
    auto = "auto"
    off = "off"


@dataclass
class AdmissionConfig:
    """The rules by which a trial may start: memory, and numbers of trials and devices."""

    request: str | None = None
    """Memory that each trial takes on its device, such as 3GiB; none: estimated."""
    headroom: str = "256MiB"
    """Memory kept free on every device."""
    devices_per_trial: int = 1
    """Number of GPUs that each trial gets, all at once; on the host a trial has the host. More than
    1 is only for a function of the user's, which finds them in `trial.devices`."""
    survey: SurveyKind = SurveyKind.auto
    """Whether an objective or network of the user's is run once on fake tensors, to see what memory
    its trials will take of a GPU; auto: where nothing is declared."""
    max_concurrent_trials: int | None = None
    """Largest number of trials at once over all devices; none: as many as fit, on the host one per
    core."""
    max_trials_per_device: int | None = None
    """Largest number of trials at once on one GPU, however much memory is left of it; none: as many
    as are faster together, which is found from their pace, at most 16."""
    lookahead: Any = "auto"
    """Number of trials behind the first waiting one that may start before it, where that does not
    delay it. auto: 4 for samplers that learn, else 16; 0: none."""
    stale_seconds: float = 5.0
    """A reading of devices older than this admits no trial."""

    def __post_init__(self) -> None:
        if self.request is not None:
            check_setting(
                parse_bytes("admission.request", self.request) > 0,
                "admission.request",
                self.request,
                "must be greater than 0.",
            )
        parse_bytes("admission.headroom", self.headroom)
        check_setting(
            self.devices_per_trial >= 1,
            "admission.devices_per_trial",
            self.devices_per_trial,
            "must be at least 1.",
        )
        check_setting(
            self.max_concurrent_trials is None or self.max_concurrent_trials >= 1,
            "admission.max_concurrent_trials",
            self.max_concurrent_trials,
            "must be at least 1.",
        )
        check_setting(
            self.max_trials_per_device is None or self.max_trials_per_device >= 1,
            "admission.max_trials_per_device",
            self.max_trials_per_device,
            "must be at least 1.",
        )
        whole = isinstance(self.lookahead, int) and not isinstance(self.lookahead, bool)
        check_setting(
            self.lookahead == "auto" or (whole and self.lookahead >= 0),
            "admission.lookahead",
            self.lookahead,
            "must be auto or a whole number, 0 for none.",
        )
        check_positive("admission.stale_seconds", self.stale_seconds)

    @property
    def request_bytes(self) -> int | None:
        return None if self.request is None else parse_bytes("admission.request", self.request)

    @property
    def headroom_bytes(self) -> int:
        return parse_bytes("admission.headroom", self.headroom)


class DevicesKind(enum.Enum):
    auto = "auto"
    host = "host"
    nvml = "nvml"


class ChooseDevice(enum.Enum):
    auto = "auto"
    gpu = "gpu"
    all = "all"


@dataclass
class DevicesConfig:
    """The devices that trials may use, and the time between readings of them."""

    kind: DevicesKind = DevicesKind.auto
    """auto: the GPUs that both NVML and torch see, else the host; nvml: the GPUs that NVML sees."""
    only: Any = field(default_factory=list)
    """The GPUs to use: numbers in CUDA's order, UUIDs or their beginnings, one or a list; empty:
    all."""
    choose: ChooseDevice = ChooseDevice.auto
    """The devices that a trial may go to where there are GPUs. auto: the built-in network also to
    the CPU, where it ends first there; gpu: GPUs alone; all: a function or network of yours, too.
    """
    interval_seconds: float = 0.5
    """Time from one reading to the next."""

    def __post_init__(self) -> None:
        names = self.only if isinstance(self.only, list | tuple) else [self.only]
        self.only = ["" if name is None else str(name) for name in names]
        check_positive("devices.interval_seconds", self.interval_seconds)
