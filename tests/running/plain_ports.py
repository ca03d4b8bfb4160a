"""A machine on which nothing happens but trials: no packs or surveys, no others, nothing idle.

Simulations say what differs in theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from automl.admission.caps import Caps
from automl.admission.policy import Idle
from automl.devices.device import Elsewhere
from automl.devices.promises import Promise
from automl.running.messages import Asked, DoesNotFit, Kind, Surveyed
from automl.trial import DeviceId, Outcome


class PlainPorts:
    """Of `Ports` to ask and to submit are left."""

    def n_may_pend(self) -> int | None:
        return None

    def kind_of(self, trial: Asked, *, on_host: bool) -> Kind | None:
        return None

    def show_promises(self, promises: Sequence[Promise]) -> None:
        """There is nobody else."""

    def promised_elsewhere(self, begun_seconds: float) -> Elsewhere:
        return {}

    def feed(self, key: int, trial: Asked) -> None:
        raise AssertionError("no packs here")

    def tell(self, outcome: Outcome) -> None:
        """It has ended."""

    def fail(self, trial: Asked, cause: str) -> None:
        raise AssertionError(cause)

    def too_large(self, trial: Asked, found: DoesNotFit) -> None:
        raise AssertionError(found.cause)

    def stop_trials(self) -> None:
        raise AssertionError("nobody stops it")

    def is_surveying(self, trial: Asked) -> bool:
        return False

    def surveyed(self, surveyed: Surveyed) -> None:
        raise AssertionError("nothing is surveyed here")

    def cap_memory(self, caps: Caps) -> None:
        """Trials take what was reserved for them."""

    def n_steps(self) -> Mapping[int, int]:
        return {}

    def idle(self) -> Idle:
        return {}

    def end_idle(self, devices: Collection[DeviceId]) -> None:
        """None are kept."""
