"""Which Ray cluster trains (`execution=ray`)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from automl.config.checks import check, parse_bytes

AUTO, LOCAL = "auto", "local"
_MOST_CODE_BYTES = 500 * 2**20
_HOST_AND_PORT = re.compile(r"[\w.-]+:\d{1,5}|\[[0-9A-Fa-f:]+\]:\d{1,5}")


def is_host_and_port(address: str) -> bool:
    """Whether it is written as that of a cluster's head."""
    return _HOST_AND_PORT.fullmatch(address) is not None


@dataclass
class RayConfig:
    """Which Ray cluster trains."""

    address: str = AUTO
    """auto: the cluster that this machine is a node of; local: one of its own on this machine, for
    as long as the sweep; or HOST:PORT of a cluster's head."""

    claim: bool = False
    """Other jobs use the cluster, too: whole GPUs and CPUs are held for the sweep while it needs
    them, as Ray counts, and trials go nowhere else. false: it is all the sweep's."""

    max_code: str = "100MiB"
    """A larger working directory is not sent to the nodes; Ray itself sends no more than 500."""

    def __post_init__(self) -> None:
        check(
            not self.address.startswith("ray://"),
            "ray.address",
            self.address,
            "every report would pass through one more server. Start the sweep on the head node: "
            "ssh HEAD, there python -m automl execution=ray ray.address=auto …",
        )
        check(
            self.address in (AUTO, LOCAL) or is_host_and_port(self.address),
            "ray.address",
            self.address,
            "must be auto (the cluster of this machine), local (one of its own) or HOST:PORT.",
        )
        check(
            0 < self.max_code_bytes <= _MOST_CODE_BYTES,
            "ray.max_code",
            self.max_code,
            "must be above 0 and at most 500MiB: Ray sends no more.",
        )

    @property
    def max_code_bytes(self) -> int:
        return parse_bytes("ray.max_code", self.max_code)
