"""Settings of devices, admission and execution: which devices trials may use, when a trial may
start, and the thread, process or Ray cluster in which it runs."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, replace
from typing import Any

from automl.config.checks import (
    check_positive,
    check_setting,
    checker,
    is_count,
    is_none,
    parse_bytes,
)
from automl.config.setting import setting


class SurveyKind(enum.Enum):
    auto = "auto"
    none = "none"
    off = "none"  # its name in earlier versions


@dataclass
class AdmissionConfig:
    """The rules by which a trial may start: memory, and numbers of trials and devices."""

    request: str | None = setting("some", None)
    """Memory that each trial takes on its device, such as 3GiB; auto: learned from earlier
    trials, else estimated."""
    headroom: str = setting("few", "256MiB")
    """Memory kept free on every device."""
    devices_per_trial: int = setting("some", 1)
    """Number of GPUs that each trial gets, all at once; on the host a trial has the host. More than
    1 is only for a user's function, which finds them in `trial.devices`."""
    survey: SurveyKind = setting("few", SurveyKind.auto)
    """Whether a user's objective or network is run once on fake tensors, to see what memory its
    trials will take of a GPU; auto: where nothing is declared."""
    max_concurrent_trials: int | None = setting("some", None)
    """Largest number of trials at once over all devices; auto: as many as fit, on the host one per
    core."""
    max_trials_per_device: int | None = setting("some", None)
    """Largest number of trials at once on one GPU, however much memory is left of it; auto: as many
    as are faster together, which is found from their pace, at most 16."""
    lookahead: Any = setting("few", "auto")
    """Number of trials behind the first waiting one that may start before it, where that does not
    delay it. auto: 4 for samplers that learn, else 16; none: no trial."""

    def __post_init__(self) -> None:
        check = checker("admission", self)
        if self.request is not None:
            check("request", (self.request_bytes or 0) > 0, "must be greater than 0.")
        parse_bytes("admission.headroom", self.headroom)
        for name in ("devices_per_trial", "max_concurrent_trials", "max_trials_per_device"):
            value = getattr(self, name)
            check(name, value is None or value >= 1, "must be at least 1.")
        self.lookahead = 0 if is_none(self.lookahead) else self.lookahead
        is_number = self.lookahead == "auto" or is_count(self.lookahead, 0)
        check("lookahead", is_number, "must be auto, none or a whole number.")

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


DEVICE_WORDS = ("auto", "cpu", "gpu", "all", "nvml")
"""The words of `devices.only`, beside the names of GPUs."""


@dataclass
class DevicesConfig:
    """The devices that trials may use."""

    only: Any = setting("some", "auto")
    """The devices to use. auto: the GPUs that NVML and torch both see, and the CPU for trials of
    the built-in network that end first there; without a GPU the CPU. cpu. gpu: GPUs alone. all: the
    CPU for a function or network of yours, too. Or GPUs, one or a list: numbers in CUDA's order,
    UUIDs or their beginnings. nvml: GPUs without asking torch; [nvml,0] names one of them."""

    def __post_init__(self) -> None:
        given = self.only if isinstance(self.only, list | tuple) else [self.only]
        words = ["" if name is None else str(name) for name in given] or ["auto"]
        kept = [word for word in words if word != "auto"] or ["auto"]
        self.only = kept[0] if len(kept) == 1 else kept
        rule = "cpu stands alone; of gpu and all one is given."
        is_one = {"gpu", "all"} - {*kept} and ("cpu" not in kept or kept == ["cpu"])
        check_setting(bool(is_one), "devices.only", self.only, rule)

    @property
    def _words(self) -> list[str]:
        return [self.only] if isinstance(self.only, str) else self.only

    @property
    def kind(self) -> DevicesKind:
        """Return the way in which devices are found."""
        if "cpu" in self._words:
            return DevicesKind.host
        return DevicesKind.nvml if "nvml" in self._words else DevicesKind.auto

    @property
    def choose(self) -> ChooseDevice:
        """Return the devices that a trial may go to where there are GPUs."""
        chosen = [word for word in self._words if word in ("gpu", "all")]
        return ChooseDevice[chosen[0]] if chosen else ChooseDevice.auto

    @property
    def names(self) -> list[str]:
        """Return the numbers, UUIDs and beginnings of UUIDs of the GPUs to use; empty: all."""
        return [word for word in self._words if word not in DEVICE_WORDS]


class ExecutionKind(enum.Enum):
    inline = "inline"
    workers = "workers"
    ray = "ray"


@dataclass
class ExecutionConfig:
    """The thread, process or node in which trials run, and the limits of their time."""

    kind: ExecutionKind = setting("nobody", ExecutionKind.workers)
    """inline: a thread of the sweep. workers: processes of this machine. ray: nodes of a cluster.
    """
    pack: Any = setting("few", "auto")
    """Small trials of one shape train as one batched model: auto, none, or the most in a pack."""
    threads_per_trial: int = setting("some", 1)
    """Number of torch's threads in a trial; by default as many trials run at once as the cores then
    allow."""
    trial_timeout_seconds: float | None = setting("some", None)
    """A trial that takes longer has failed; others of its pack go on alone (not inline); none: no
    limit."""
    silence_timeout_seconds: float | None = setting("some", None)
    """A trial that reports nothing for so long has failed (not inline); none: no limit."""
    recycle_after_trials: int = setting("few", 1000)
    """A worker process is replaced after this many trials."""

    def __post_init__(self) -> None:
        if is_none(self.pack) or self.pack == 1:
            self.pack = "none"
        check = checker("execution", self)
        rule = "must be auto, none, or the most trials in a pack (a whole number from 2)."
        check("pack", self.pack in ("auto", "none") or is_count(self.pack, 2), rule)
        for name in ("threads_per_trial", "recycle_after_trials"):
            check(name, getattr(self, name) >= 1, "must be ≥ 1.")
        for name in ("trial_timeout_seconds", "silence_timeout_seconds"):
            value = getattr(self, name)
            check_positive(f"execution.{name}", value)
            may_end = value is None or self.kind is not ExecutionKind.inline
            check(name, may_end, "a trial in a thread cannot be ended; use execution=workers.")

    @property
    def on_this_machine(self) -> ExecutionConfig:
        """Return the settings with Ray replaced by workers, for commands that know no cluster."""
        on_ray = self.kind is ExecutionKind.ray
        return replace(self, kind=ExecutionKind.workers) if on_ray else self


AUTO_ADDRESS, LOCAL_ADDRESS = "auto", "local"
_MOST_CODE_BYTES = 500 * 2**20
_HOST_AND_PORT = re.compile(r"[\w.-]+:\d{1,5}|\[[0-9A-Fa-f:]+\]:\d{1,5}")


def is_host_and_port(address: str) -> bool:
    """Return whether an address is HOST:PORT, like that of a cluster's head."""
    return _HOST_AND_PORT.fullmatch(address) is not None


@dataclass
class RayConfig:
    """The Ray cluster that trains, and its use (`execution=ray`)."""

    address: str = setting("some", AUTO_ADDRESS)
    """auto: the cluster that this machine is a node of; local: a new one on this machine, for as
    long as the sweep; or HOST:PORT of a cluster's head."""

    claim: bool = setting("some", False)
    """true: other jobs use the cluster, too; the sweep reserves whole GPUs and CPUs in Ray while it
    needs them, and trials go nowhere else. false: the whole cluster is the sweep's."""

    max_code: str = setting("option", "100MiB")
    """A larger working directory is not sent to the nodes; Ray itself sends no more than 500."""

    def __post_init__(self) -> None:
        check = checker("ray", self)
        check(
            "address",
            not self.address.startswith("ray://"),
            "every report would pass through one more server. Start the sweep on the head node: "
            "ssh HEAD, there python -m automl execution=ray ray.address=auto …",
        )
        is_known = self.address in (AUTO_ADDRESS, LOCAL_ADDRESS) or is_host_and_port(self.address)
        rule = "must be auto (the cluster of this machine), local (one of its own) or HOST:PORT."
        check("address", is_known, rule)
        can_be_sent = 0 < self.max_code_bytes <= _MOST_CODE_BYTES
        check("max_code", can_be_sent, "must be above 0 and at most 500MiB: Ray sends no more.")

    @property
    def max_code_bytes(self) -> int:
        return parse_bytes("ray.max_code", self.max_code)
