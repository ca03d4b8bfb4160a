"""`python -m automl.execution.cluster.autoscaler_withdrawal ADDRESS`: waits until who started it
has ended, and
withdraws what that had asked of the cluster's autoscaler, unless it says that it has done so.
"""

from __future__ import annotations

import logging
import os
import sys

from automl.execution.cluster import agent_actor

WITHDRAWN = b"withdrawn"


def main(address: str) -> None:
    """Until standard input ends."""
    if sys.stdin.buffer.read() == WITHDRAWN:
        return
    if not agent_actor.answers(address):  # nor is there anybody who remembers what was asked
        return
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
    import ray
    from ray.autoscaler.sdk import request_resources

    ray.init(
        address=address,
        log_to_driver=False,
        logging_level=logging.ERROR,
        configure_logging=False,
        namespace="automl-withdraws",
    )
    request_resources(bundles=[])
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
