"""Ray's autoscaler, asked for a larger cluster.

What is asked of it stays in the cluster until somebody asks for something else. So a process of its
own (`autoscaler_withdrawal.py`) waits for the end of this one, and withdraws it where this one
could not.

What Ray counts as ours on a cluster that other jobs use, too: an actor for each GPU, or share of
its CPUs.

Calls to a library that are under way when it is to be shut down. Ray ends the whole process
(exit 1) where one of its threads still asks it for something after that.
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

from automl.execution.cluster.autoscaler import Bundle
from automl.execution.cluster.autoscaler_withdrawal import WITHDRAWN
from automl.execution.cluster.claims import ClaimError
from automl.execution.executor import resolve_entry
from automl.record.texts import fit_line
from automl.trial import HOST_UUID, DeviceId, DeviceKind


class LibraryGivenBackError(Exception):
    """Raised in place of a call that came too late."""


class LibraryCallCount:
    """Counts calls. Any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards all below
        self._n = 0
        self._is_over = False

    @contextmanager
    def call(self) -> Iterator[None]:
        """Raises GivenBackError from `end` on."""
        with self._changed:
            if self._is_over:
                raise LibraryGivenBackError("the cluster was given back")
            self._n += 1
        try:
            yield
        finally:
            with self._changed:
                self._n -= 1
                self._changed.notify_all()

    def end(self, timeout_seconds: float) -> None:
        """No other begins; those that are under way are waited for so long at the most."""
        with self._changed:
            self._is_over = True
            self._changed.wait_for(lambda: not self._n, timeout_seconds)


_READ_ONLY = "node_"
"""Where nothing adds nodes Ray's monitor shows each as of a type of its own, named so."""


class RayAutoscaler:
    """See `growing.Autoscaler`. Each call raises GivenBackError once the cluster is given back."""

    def __init__(self, ray: Any, in_use: LibraryCallCount) -> None:
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
        [sys.executable, "-P", "-m", "automl.execution.cluster.autoscaler_withdrawal", address],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )


class ClaimActor:
    """Holds what Ray has given it until it is killed. `target` names a GPU, as `module:function`
    of what Ray calls it; none: it holds CPUs."""

    def __init__(self, target: str | None) -> None:
        self._target = target

    def device(self) -> tuple[str, str]:
        """Ray's id of the node, and which of its devices it is."""
        import ray

        node: str = ray.get_runtime_context().get_node_id()
        if self._target is None:
            return node, HOST_UUID
        return node, resolve_entry(self._target)(os.environ.get("CUDA_VISIBLE_DEVICES", ""))

    def stay(self) -> None:
        """Never returns, so that its end is seen."""
        threading.Event().wait()


class RayClaim:
    """See `claims.Claim`."""

    def __init__(
        self,
        ray: Any,
        in_use: LibraryCallCount,
        kind: DeviceKind,
        target: str,
        n_cpus: int,
        name_of: Callable[[str], str | None],
    ) -> None:
        """`target` tells which GPU it is, a share of the CPUs is `n_cpus`; `name_of` names a node
        by Ray's id, once it is known. Raises GivenBackError, as all but `give_back` do."""
        self._ray, self._in_use, self._name_of = ray, in_use, name_of
        of_gpu = kind is DeviceKind.GPU
        with in_use.call():
            self._actor = (
                ray.remote(ClaimActor)
                .options(
                    num_cpus=0 if of_gpu else n_cpus,
                    num_gpus=1 if of_gpu else 0,
                    max_restarts=0,
                )
                .remote(target if of_gpu else None)
            )
            self._device, self._end = self._actor.device.remote(), self._actor.stay.remote()

    def device(self) -> DeviceId | None:
        """See `Claim.device`."""
        from ray.exceptions import RayError

        if not self._is_there(self._device):
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
        """See `Claim.is_lost`."""
        return self._is_there(self._end)

    def give_back(self) -> None:
        """See `Claim.give_back`."""
        with suppress(Exception), self._in_use.call():  # it has ended, or its node has
            self._ray.kill(self._actor)

    def _is_there(self, answer: object) -> bool:
        with self._in_use.call():
            there, _ = self._ray.wait([answer], timeout=0)
        return bool(there)
