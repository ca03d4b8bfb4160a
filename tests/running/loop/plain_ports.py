"""A machine on which nothing happens but trials: no packs or surveys, no others, nothing idle.

Simulations say what differs in theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from automl.admission.accounting.idle_processes import Idle
from automl.admission.memory_caps import Caps
from automl.devices.device_reading import OtherPromises
from automl.devices.memory_promises import MemoryPromise
from automl.running.loop.messages import (
    AdmittedExecution,
    PlannedTrial,
    StopReason,
    TrialSurveyed,
    UnfitTrialFinding,
)
from automl.running.loop.ports import (
    LoopPorts,
    MemoryPromises,
    OutcomeListener,
    PausedTrialSupply,
    TrialProcesses,
    TrialStarts,
    TrialSupply,
    TrialSurveys,
)
from automl.trial import DeviceId, PackKind, TrialOutcome

NOTHING: Any = None
NO_PORTS = LoopPorts(NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING)
"""The ports of a loop that asks for nothing."""


class AllPorts(
    MemoryPromises,
    TrialProcesses,
    PausedTrialSupply,
    TrialSurveys,
    TrialSupply,
    TrialStarts,
    OutcomeListener,
    Protocol,
):
    """One object that is each port of a loop."""


def ports_of(one: AllPorts) -> LoopPorts:
    return LoopPorts(one, one, one, one, one, one, one)


class PlainPorts:
    """The ports of a loop without packs, pauses and warm processes. Subclasses add asking and
    submitting."""

    def n_may_pend(self) -> int | None:
        return None

    def may_promote(self, *, grows: bool) -> bool:
        return False

    def promote(self, *, grows: bool) -> PlannedTrial | None:
        return None

    def kind_of(self, trial: PlannedTrial, *, on_host: bool) -> PackKind | None:
        return None

    def show(self, promises: Sequence[MemoryPromise]) -> None:
        """There is nobody else."""

    def locked(self) -> AbstractContextManager[None]:
        return nullcontext()

    def others(self, begun_seconds: float) -> OtherPromises:
        return {}

    def feed(self, key: int, trial: PlannedTrial) -> None:
        raise AssertionError("no packs here")

    def tell(self, outcome: TrialOutcome) -> None:
        """Ignore a trial that has ended."""

    def fail(self, trial: PlannedTrial, cause: str) -> None:
        raise AssertionError(cause)

    def too_large(self, trial: PlannedTrial, found: UnfitTrialFinding) -> None:
        raise AssertionError(found.cause)

    def tell_of_interruption(
        self, outcome: TrialOutcome, execution: AdmittedExecution, *, is_stopping: bool
    ) -> None:
        """Ignore why the trial starts again."""

    def stop_trials(self, reason: StopReason) -> None:
        raise AssertionError("nobody stops it")

    def is_surveying(self, trial: PlannedTrial) -> bool:
        return False

    def take(self, surveyed: TrialSurveyed) -> None:
        raise AssertionError("nothing is surveyed here")

    def cap_memory(self, caps: Caps) -> None:
        """Trials take what was reserved for them."""

    def n_steps(self) -> Mapping[int, int]:
        return {}

    def idle(self) -> Idle:
        return {}

    def end_idle(self, devices: Collection[DeviceId]) -> None:
        """Do nothing, since no processes are kept."""
