"""Settings of execution: the thread, process or Ray cluster in which trials run."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, replace
from typing import Any

from automl.config.checks import check_positive, check_setting, parse_bytes


class ExecutionKind(enum.Enum):
    auto = "auto"
    inline = "inline"
    workers = "workers"
    ray = "ray"


@dataclass
class ExecutionConfig:
    """The thread, process or node in which trials run, and the limits of their time."""

    kind: ExecutionKind = ExecutionKind.auto
    """inline: a thread of the sweep. workers: processes of this machine. ray: nodes of a cluster.
    auto: workers."""
    pack: Any = "auto"
    """Small trials of one shape train as one batched model: auto, off, or the most in a pack."""
    threads_per_trial: int = 1
    """Number of torch's threads in a trial; by default as many trials run at once as the cores then
    allow."""
    trial_timeout_seconds: float | None = None
    """A trial that takes longer has failed; others of its pack go on alone (not inline); none: no
    limit."""
    silence_timeout_seconds: float | None = None
    """A trial that reports nothing for so long has failed (not inline); none: no limit."""
    recycle_after_trials: int = 1000
    """A worker process is replaced after this many trials."""
    recycle_growth: str = "2GiB"
    """A worker process is replaced when its memory has grown by this much and stays so."""

    def __post_init__(self) -> None:
        if self.pack is False or self.pack == 1:  # YAML reads a bare `off` as false
            self.pack = "off"
        whole = isinstance(self.pack, int) and not isinstance(self.pack, bool)
        check_setting(
            self.pack in ("auto", "off") or (whole and self.pack >= 2),
            "execution.pack",
            self.pack,
            "must be auto, off, or the most trials in a pack (a whole number from 2).",
        )
        for key in ("threads_per_trial", "recycle_after_trials"):
            check_setting(
                getattr(self, key) >= 1, f"execution.{key}", getattr(self, key), "must be ≥ 1."
            )
        for key in ("trial_timeout_seconds", "silence_timeout_seconds"):
            value = getattr(self, key)
            check_positive(f"execution.{key}", value)
            check_setting(
                value is None or self.kind is not ExecutionKind.inline,
                f"execution.{key}",
                value,
                "a trial in a thread cannot be ended; use execution=workers.",
            )
        parse_bytes("execution.recycle_growth", self.recycle_growth)

    @property
    def on_this_machine(self) -> ExecutionConfig:
        """Return the settings with Ray replaced by workers, for commands that know no cluster."""
        on_ray = self.kind is ExecutionKind.ray
        return replace(self, kind=ExecutionKind.auto) if on_ray else self

    @property
    def recycle_growth_bytes(self) -> int:
        return parse_bytes("execution.recycle_growth", self.recycle_growth)


AUTO_ADDRESS, LOCAL_ADDRESS = "auto", "local"
_MOST_CODE_BYTES = 500 * 2**20
_HOST_AND_PORT = re.compile(r"[\w.-]+:\d{1,5}|\[[0-9A-Fa-f:]+\]:\d{1,5}")


def is_host_and_port(address: str) -> bool:
    """Return whether an address is HOST:PORT, like that of a cluster's head."""
    return _HOST_AND_PORT.fullmatch(address) is not None


@dataclass
class RayConfig:
    """The Ray cluster that trains, and its use (`execution=ray`)."""

    address: str = AUTO_ADDRESS
    """auto: the cluster that this machine is a node of; local: a new one on this machine, for as
    long as the sweep; or HOST:PORT of a cluster's head."""

    claim: bool = False
    """true: other jobs use the cluster, too; the sweep reserves whole GPUs and CPUs in Ray while it
    needs them, and trials go nowhere else. false: the whole cluster is the sweep's."""

    max_code: str = "100MiB"
    """A larger working directory is not sent to the nodes; Ray itself sends no more than 500."""

    def __post_init__(self) -> None:
        check_setting(
            not self.address.startswith("ray://"),
            "ray.address",
            self.address,
            "every report would pass through one more server. Start the sweep on the head node: "
            "ssh HEAD, there python -m automl execution=ray ray.address=auto …",
        )
        check_setting(
            self.address in (AUTO_ADDRESS, LOCAL_ADDRESS) or is_host_and_port(self.address),
            "ray.address",
            self.address,
            "must be auto (the cluster of this machine), local (one of its own) or HOST:PORT.",
        )
        check_setting(
            0 < self.max_code_bytes <= _MOST_CODE_BYTES,
            "ray.max_code",
            self.max_code,
            "must be above 0 and at most 500MiB: Ray sends no more.",
        )

    @property
    def max_code_bytes(self) -> int:
        return parse_bytes("ray.max_code", self.max_code)
