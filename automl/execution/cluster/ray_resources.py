"""Requests resources from Ray: a larger cluster of its autoscaler, and claims on a shared cluster.

Ray keeps a request to the autoscaler until another one replaces it. Therefore a process of its own
(`autoscaler_withdrawal.py`) waits for the end of this one, and withdraws the request if this
process could not. A claim is an actor that takes a GPU, or a share of a node's CPUs, in Ray's
accounts.

`LibraryCallCount` counts calls to Ray: Ray ends the whole process (exit 1) where a thread still
calls it after its shutdown. When to request what is decided in `autoscaler.py` and `claims.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from automl.execution.cluster.agent_actor import RETRIED
from automl.execution.cluster.autoscaler import Bundle
from automl.execution.cluster.autoscaler_withdrawal import WITHDRAWN_MESSAGE
from automl.execution.cluster.claims import ClaimError
from automl.execution.executor import resolve_entry
from automl.record.texts import fit_line
from automl.trial import HOST_UUID, DeviceId, DeviceKind


class LibraryGivenBackError(Exception):
    """Raised in place of a call to the library after the cluster was given back."""


class LibraryCallCount:
    """Counts calls to a library that are under way, and refuses calls after `end`. Any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards all below
        self._n_calls = 0
        self._is_over = False

    @contextmanager
    def call(self) -> Iterator[None]:
        """Count the call within the context. Raises LibraryGivenBackError from `end` on."""
        with self._changed:
            if self._is_over:
                raise LibraryGivenBackError("the cluster was given back")
            self._n_calls += 1
        try:
            yield
        finally:
            with self._changed:
                self._n_calls -= 1
                self._changed.notify_all()

    def end(self, timeout_seconds: float) -> None:
        """Refuse further calls, and wait for those under way, at most for the time given."""
        with self._changed:
            self._is_over = True
            self._changed.wait_for(lambda: not self._n_calls, timeout_seconds)


_STATIC_NODE_TYPE = "node_"
"""Prefix of the node types that Ray's monitor shows where no autoscaler adds nodes: each node then
has a type of its own."""


class RayAutoscaler:
    """Calls Ray's autoscaler (an `Autoscaler`).

    Each call raises LibraryGivenBackError once the cluster is given back.
    """

    def __init__(self, ray: Any, in_use: LibraryCallCount) -> None:
        self._ray, self._in_use = ray, in_use
        self._guard: subprocess.Popen[bytes] | None = None
        """The process that withdraws the request if this one dies; None: nothing is requested."""

    def is_there(self) -> bool | None:
        """Return whether there is an autoscaler, by the node types that Ray's monitor reports."""
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
        return any(not name.startswith(_STATIC_NODE_TYPE) for name in types) if types else None

    def totals(self) -> Bundle:
        with self._in_use.call():
            found: Bundle = self._ray.cluster_resources()
        return found

    def ask(self, bundles: Sequence[Bundle]) -> None:
        from ray.autoscaler.sdk import request_resources

        with self._in_use.call():
            if bundles and self._guard is None:
                self._guard = _start_guard(self._ray.get_runtime_context().gcs_address)
            request_resources(bundles=[dict(bundle) for bundle in bundles])
        if not bundles and self._guard is not None:
            self._guard.communicate(WITHDRAWN_MESSAGE)
            self._guard = None


def _start_guard(address: str) -> subprocess.Popen[bytes]:
    """Start the process that withdraws the request when this process ends.

    It has a session of its own, so that it survives when the sweep and all its children are killed.
    """
    root = str(Path(__file__).parents[3])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "automl.execution.cluster.autoscaler_withdrawal", address],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )


class ClaimActor:
    """An actor that holds a GPU or CPUs of Ray until it is killed.

    `target`, as `module:function`, names the device behind the value that Ray has put into
    `CUDA_VISIBLE_DEVICES`. It is None where the actor holds CPUs.
    """

    def __init__(self, target: str | None) -> None:
        self._target = target

    def device(self) -> tuple[str, str]:
        """Return Ray's id of the node, and the uuid of the device on it."""
        import ray

        node: str = ray.get_runtime_context().get_node_id()
        if self._target is None:
            return node, HOST_UUID
        return node, resolve_entry(self._target)(os.environ.get("CUDA_VISIBLE_DEVICES", ""))

    def stay(self) -> None:
        """Never return, so that the call's end shows that the actor has ended."""
        threading.Event().wait()


class RayClaim:
    """A claim on a shared cluster, held by a Ray actor (a `ResourceClaim`)."""

    def __init__(
        self,
        ray: Any,
        in_use: LibraryCallCount,
        kind: DeviceKind,
        target: str,
        n_cpus: int,
        name_of: Callable[[str], str | None],
    ) -> None:
        """Request a GPU, which `target` identifies (`ClaimActor`), or `n_cpus` CPUs of one node.

        `name_of` returns the name of a node by Ray's id, or None while the name is not known. All
        methods but `give_back` raise LibraryGivenBackError once the cluster is given back.
        """
        self._ray, self._in_use, self._name_of = ray, in_use, name_of
        is_gpu = kind is DeviceKind.GPU
        with in_use.call():
            self._actor = (
                ray.remote(ClaimActor)
                .options(
                    num_cpus=0 if is_gpu else n_cpus,
                    num_gpus=1 if is_gpu else 0,
                    max_restarts=0,
                )
                .remote(target if is_gpu else None)
            )
            self._device = self._actor.device.options(**RETRIED).remote()
            self._end = self._actor.stay.options(**RETRIED).remote()

    def device(self) -> DeviceId | None:
        from ray.exceptions import RayError

        if not self._is_ready(self._device):
            return None
        try:
            with self._in_use.call():
                node, uuid = self._ray.get(self._device)
        except RayError as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise ClaimError(fit_line(lines[-1])) from error
        name = self._name_of(node)
        return None if name is None else DeviceId(name, uuid)

    def is_lost(self) -> bool:
        return self._is_ready(self._end)

    def give_back(self) -> None:
        with suppress(Exception), self._in_use.call():  # the actor or its node may have ended
            self._ray.kill(self._actor)

    def _is_ready(self, answer: object) -> bool:
        with self._in_use.call():
            ready, _ = self._ray.wait([answer], timeout=0)
        return bool(ready)
