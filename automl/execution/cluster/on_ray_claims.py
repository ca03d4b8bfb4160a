"""What Ray counts as ours on a cluster that other jobs use, too: an actor for each GPU, or share of
its CPUs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from automl.execution.cluster.claims import ClaimError
from automl.execution.cluster.in_use import InUse
from automl.execution.executor import resolve
from automl.record.texts import fit_line
from automl.trial import HOST_UUID, DeviceId, DeviceKind


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
        return node, resolve(self._target)(os.environ.get("CUDA_VISIBLE_DEVICES", ""))

    def stay(self) -> None:
        """Never returns, so that its end is seen."""
        threading.Event().wait()


class RayClaim:
    """See `claims.Claim`."""

    def __init__(
        self,
        ray: Any,
        in_use: InUse,
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
