"""Withdraws a sweep's request to the cluster's autoscaler when the sweep ends without doing so.

`python -m automl.execution.cluster.autoscaler_withdrawal ADDRESS` waits until its standard input
ends, which is when the sweep has ended. It does nothing if the sweep has sent `WITHDRAWN_MESSAGE`.
It is a file of its own since it is the main module of a process.
"""

from __future__ import annotations

import logging
import os
import sys

from automl.execution.cluster import agent_actor

WITHDRAWN_MESSAGE = b"withdrawn"


def main(address: str) -> None:
    """Wait until standard input ends, then withdraw the request unless the sweep has done so."""
    if sys.stdin.buffer.read() == WITHDRAWN_MESSAGE:
        return
    if not agent_actor.accepts_connections(
        address
    ):  # without its head the cluster keeps no request
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
