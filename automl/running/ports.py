"""What the loop can have done: by `sweep.py` with the real parts, by the tests in virtual time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from automl.admission.caps import Caps
from automl.admission.policy import Idle
from automl.devices.device import Elsewhere
from automl.devices.promises import Promise
from automl.running.messages import Asked, DoesNotFit, Kind, Surveyed
from automl.trial import DeviceId, Outcome, Placement


class Ports(Protocol):
    """What the loop can have done."""

    def ask(self) -> Asked | None:
        """A new trial, or None when the search space is exhausted."""

    def n_may_pend(self) -> int | None:
        """How many trials may be asked for and not ended, without harm to the sampler; None: any
        number."""

    def kind_of(self, trial: Asked, *, on_host: bool) -> Kind | None:
        """What it can go together with on such a device; None: it trains alone there."""

    def show_promises(self, promises: Sequence[Promise]) -> None:
        """Show other sweeps what NVML does not show yet."""

    def promised_elsewhere(self, begun_seconds: float) -> Elsewhere:
        """What other sweeps show now, and a reading begun then may have missed."""

    def submit(self, trials: Sequence[Asked], placement: Placement, n_lanes: int) -> None:
        """Start them in the pool as one execution, known by its first trial's number."""

    def feed(self, key: int, trial: Asked) -> None:
        """Give a running pack another trial, for a lane that came free."""

    def tell(self, outcome: Outcome) -> None:
        """Give the study an outcome that the executor saw: finished, pruned or failed."""

    def fail(self, trial: Asked, cause: str) -> None:
        """Record and tell a failure that was decided here."""

    def too_large(self, trial: Asked, found: DoesNotFit) -> None:
        """The same of a trial that no device can hold: it is pruned."""

    def stop_trials(self) -> None:
        """Running trials write a checkpoint at their next report and stop."""

    def is_surveying(self, trial: Asked) -> bool:
        """Whether what the trial will want of memory is being found out: a message tells it."""

    def surveyed(self, surveyed: Surveyed) -> None:
        """It was; requests know it from now on."""

    def cap_memory(self, caps: Caps) -> None:
        """From now on processes take no more of their devices than that; for executions that are
        not named what they were told last stays."""

    def n_steps(self) -> Mapping[int, int]:
        """Steps of training that the process of each execution has taken, by the execution's key;
        who is not named does not tell."""

    def idle(self) -> Idle:
        """Processes kept warm for trials to come."""

    def end_idle(self, devices: Collection[DeviceId]) -> None:
        """Those of these devices end, and give their memory back."""
