"""The small ports through which the loop acts. `LoopPorts` holds them by name.

`runner.py` plugs in the real parts, the tests a machine in virtual time. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from automl.admission.accounting.idle_processes import Idle
from automl.admission.memory_caps import Caps
from automl.devices.device_reading import OtherPromises
from automl.devices.memory_promises import MemoryPromise
from automl.running.loop.messages import (
    AdmittedExecution,
    ExecutionStart,
    PlannedTrial,
    StopReason,
    TrialSurveyed,
    UnfitTrialFinding,
)
from automl.trial import DeviceId, PackKind, TrialOutcome


class MemoryPromises(Protocol):
    """The promises of the sweeps on this machine (`devices/memory_promises.py`)."""

    def show(self, promises: Sequence[MemoryPromise]) -> None:
        """Show other sweeps what NVML does not show yet."""

    def others(self, begun_seconds: float) -> OtherPromises:
        """Return what other sweeps show now, and what a reading begun then may have missed."""

    def locked(self) -> AbstractContextManager[None]:
        """Let no other sweep of this machine promise anything meanwhile."""


class TrialProcesses(Protocol):
    """The processes in which trials train (`execution/executor.py`)."""

    def cap_memory(self, caps: Caps) -> None:
        """Cap the memory of processes. Executions that are not named keep their last caps."""

    def n_steps(self) -> Mapping[int, int]:
        """Return the training steps taken by the process of each execution, by the execution's key.
        Executions that do not count steps are missing."""

    def idle(self) -> Idle:
        """Return the processes kept warm for coming trials."""

    def end_idle(self, devices: Collection[DeviceId]) -> None:
        """End the warm processes on these devices, which gives their memory back."""


class PausedTrialSupply(Protocol):
    """The trials that have stopped at a rung."""

    def may_promote(self, *, grows: bool) -> bool:
        """Return whether a paused trial goes on now. `grows`: new trials may still come."""

    def promote(self, *, grows: bool) -> PlannedTrial | None:
        """Return the paused trial that goes on now, or None."""


class TrialSupply(Protocol):
    """The new trials of the study."""

    def ask(self) -> PlannedTrial | None:
        """Return a new trial, or None when the search space is exhausted."""

    def n_may_pend(self) -> int | None:
        """Return how many trials may pend without harm to the sampler. None allows any number."""

    def kind_of(self, trial: PlannedTrial, *, on_host: bool) -> PackKind | None:
        """Return the pack kind of the trial on the host or a GPU. None if it trains alone there."""


class TrialStarts(Protocol):
    """Starts trials, and stops them."""

    def submit(self, start: ExecutionStart) -> None:
        """Start the trials in the pool as one execution."""

    def feed(self, key: int, trial: PlannedTrial) -> None:
        """Give a running pack another trial, for a lane that came free."""

    def stop_trials(self, reason: StopReason) -> None:
        """Ask running trials to write a checkpoint at their next report and stop."""


class OutcomeListener(Protocol):
    """Hears how trials ended."""

    def tell(self, outcome: TrialOutcome) -> None:
        """Give the study an outcome that the executor saw: finished, pruned or failed."""

    def tell_of_interruption(
        self, outcome: TrialOutcome, execution: AdmittedExecution, *, is_stopping: bool
    ) -> None:
        """Tell the user of an execution that ended without a result, and what follows."""

    def fail(self, trial: PlannedTrial, cause: str) -> None:
        """Record and tell a failure that the loop decided."""

    def too_large(self, trial: PlannedTrial, found: UnfitTrialFinding) -> None:
        """Record and tell that no device can hold the trial, which is pruned."""


class TrialSurveys(Protocol):
    """The surveys of the memory that trials will want."""

    def is_surveying(self, trial: PlannedTrial) -> bool:
        """Return whether a survey is measuring the trial's memory. A message tells the result."""

    def take(self, surveyed: TrialSurveyed) -> None:
        """Take the result of a survey. Requests use it from now on."""


@dataclass(frozen=True)
class LoopPorts:
    """All that the loop has done outside of itself."""

    promises: MemoryPromises
    processes: TrialProcesses
    promotions: PausedTrialSupply
    surveys: TrialSurveys
    trials: TrialSupply
    starts: TrialStarts
    outcomes: OutcomeListener
