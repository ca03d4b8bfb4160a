"""Ray's autoscaler, asked for a larger cluster.

What is asked of it stays in the cluster until somebody asks for something else. So a process of its
own (`withdraw.py`) waits for the end of this one, and withdraws it where this one could not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from automl.execution.cluster.growing import Bundle
from automl.execution.cluster.in_use import InUse
from automl.execution.cluster.withdraw import WITHDRAWN

_READ_ONLY = "node_"
"""Where nothing adds nodes Ray's monitor shows each as of a type of its own, named so."""


class RayAutoscaler:
    """See `growing.Autoscaler`. Each call raises GivenBackError once the cluster is given back."""

    def __init__(self, ray: Any, in_use: InUse) -> None:
        self._ray, self._in_use = ray, in_use
        self._guard: subprocess.Popen[bytes] | None = None

    def is_there(self) -> bool | None:
        """See `Autoscaler.is_there`. The report of Ray's monitor tells the types of nodes."""
        from ray._private.ray_constants import DEBUG_AUTOSCALING_STATUS
        from ray.autoscaler.v2.utils import is_autoscaler_v2
        from ray.experimental.internal_kv import _internal_kv_get

        if is_autoscaler_v2():
            return True
        with self._in_use.call():
            status = _internal_kv_get(DEBUG_AUTOSCALING_STATUS)
        report = json.loads(status).get("autoscaler_report") if status else None
        if report is None:
            return None
        types = {*report["active_nodes"], *(report["idle_nodes"] or ())}
        return any(not name.startswith(_READ_ONLY) for name in types) if types else None

    def totals(self) -> Bundle:
        """See `Autoscaler.totals`."""
        with self._in_use.call():
            found: Bundle = self._ray.cluster_resources()
        return found

    def ask(self, bundles: Sequence[Bundle]) -> None:
        """See `Autoscaler.ask`."""
        from ray.autoscaler.sdk import request_resources

        with self._in_use.call():
            if bundles and self._guard is None:
                self._guard = _guard(self._ray.get_runtime_context().gcs_address)
            request_resources(bundles=[dict(bundle) for bundle in bundles])
        if not bundles and self._guard is not None:
            self._guard.communicate(WITHDRAWN)
            self._guard = None


def _guard(address: str) -> subprocess.Popen[bytes]:
    """In a session of its own, so that what ends the sweep and all its children spares it."""
    root = str(Path(__file__).parents[3])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "automl.execution.cluster.withdraw", address],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )
