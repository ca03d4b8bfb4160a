"""A Ray cluster of two nodes with a CPU each on loopback, until standard input ends."""

from __future__ import annotations

import os
import sys
from typing import Any

os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}


def main() -> None:
    from ray.cluster_utils import Cluster

    cluster: Any = Cluster(initialize_head=True, head_node_args={"include_dashboard": False})
    cluster.add_node()
    try:
        sys.stdout.write(f"{cluster.address}\n")
        sys.stdout.flush()
        sys.stdin.read()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
