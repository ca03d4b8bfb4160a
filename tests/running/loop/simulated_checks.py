"""What must always hold of a simulated sweep: checked from the machine's own books, never by the
code under test."""

from __future__ import annotations

from collections.abc import Sequence

from automl.admission.limits import AdmissionLimits
from automl.running.loop.loop import SweepLoop
from automl.trial import DeviceId, TrialOutcome
from tests.running.loop.plain_ports import PlainPorts
from tests.running.loop.simulated_machine import Hosted, Machine, Plan, Stranger


class Checked(PlainPorts):
    """The checks of a `World`, which has all that they look at."""

    plans: Sequence[Plan]
    strangers: Sequence[Stranger]
    limits: AdmissionLimits
    max_processes: int | None
    machine: Machine
    loop: SweepLoop
    totals: dict[DeviceId, int]
    told: dict[int, TrialOutcome]
    interrupted: set[int]
    now: float
    _n_asked: int

    def _check_admission(self, new: Hosted) -> None:
        """Check that all promises, all contexts, strangers as they were read, and the headroom fit
        into each device of the placement, and that a trial of unknown size is alone there."""
        plan = self.plans[new.first]
        cap = self.limits.max_concurrent_trials
        assert cap is None or len(self.machine.executions) <= cap
        assert len(new.placement.shares) == plan.n_devices, "all or nothing"
        assert {device.kind for device in new.placement.devices} <= plan.kinds
        for device in new.placement.devices:
            assert len(self.machine.on(device)) <= self.limits.max_trials_on(device)
            self._check_mode(device)
            self._check_room(device)

    def _check_room(self, device: DeviceId) -> None:
        reading, there = self.loop._placing.reading, self.machine.on(device)
        assert reading is not None
        assert len(there) == 1 or not any(e.placement.exclusive for e in there), "not alone"
        strangers = self.machine.strangers_bytes(device, reading.begun_seconds)
        taken = self.promised_bytes(device) + strangers
        too_much = taken + self.limits.headroom_bytes - self.totals[device]
        assert too_much <= 0, f"over-committed by {too_much}"

    def promised_bytes(self, device: DeviceId) -> int:
        """All promises and all contexts of ours."""
        there = self.machine.on(device)
        busy = {e.process for e in there if not e.over}  # of the others some have been ended
        ours = {p for p in self.machine.processes if device in p.devices and p.has_context} | busy
        taken = 0 if device.on_host else sum(p.context_bytes for p in ours)
        for execution in there:
            shares = execution.placement.shares
            taken += sum(s.reservation_bytes for s in shares if s.device == device)
        return taken

    def _check_mode(self, device: DeviceId) -> None:
        """No more processes than the device's compute mode allows."""
        there = [p for p in self.machine.processes if device in p.devices]
        most = None if device.on_host else self.max_processes
        assert most is None or len(there) <= most, "more processes than may be"

    def _check_promise(self, execution: Hosted) -> None:
        """What was reserved is at least what its trials ask for."""
        if execution.placement.exclusive:
            return
        numbers = [*execution.lanes, *execution.fed]
        asked = [self.plans[number].request_bytes for number in numbers]
        assert execution.placement.on_host or None not in asked, "of unknown size, and not alone"
        for share in execution.placement.shares:
            too_little = sum(size or 0 for size in asked) - share.reservation_bytes
            assert too_little <= 0, f"promised {too_little} less than its trials ask for"

    def _check_books(self) -> None:
        """Every trial that was asked for is in one place (until the study takes nothing more)."""
        loop = self.loop
        if loop.error is not None:
            return
        known = {n for e in loop.executions.values() for n in e.members}
        known |= set(loop.running) | self._waiting()
        known |= set(self.told) | self.interrupted
        assert known == set(range(self._n_asked)), "a trial got lost"
        assert not set(self.told) & {w.trial.number for w in loop.queue.queued}, "told and waiting"

    def _waiting(self) -> set[int]:
        """Return the trials that wait for their start."""
        return {w.trial.number for w in (*self.loop.queue.queued, *self.loop.queue.deferred)}

    def _check_memory(self) -> None:
        """The real memory of no device is ever exceeded (unless a stranger grew into it)."""
        if any(s.from_seconds > 0 for s in self.strangers):
            return
        for device, total in self.totals.items():
            most = max(total, self.machine.strangers_bytes(device, self.now))
            assert self.machine.used_bytes(device, self.now) <= most, "out of memory"
