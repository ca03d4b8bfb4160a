"""Asks the policy for the loop: by the last reading, the ledger, and the processes kept warm."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from automl.admission.account import Accounts, DeviceAccount, contexts_seen
from automl.admission.caps import caps
from automl.admission.ledger import Ledger
from automl.admission.policy import Limits, place
from automl.admission.reasons import Refusal, at_limit
from automl.admission.requests import Requests
from automl.admission.situation import Situation
from automl.devices.device import Reading
from automl.running.messages import Execution, Waiting
from automl.running.ports import Ports
from automl.trial import DeviceId, Placement, ProcessId, Request, RequestSource


@dataclass
class Placing:
    """What the loop knows of the devices. For the main thread."""

    ports: Ports
    requests: Requests
    ledger: Ledger
    limits: Limits
    process: ProcessId | None
    executions: Mapping[int, Execution]
    """Those that were not heard to be over."""
    reading: Reading | None = None
    accounts: Accounts = field(default_factory=Accounts)
    _freed_seconds: dict[DeviceId, float] = field(default_factory=dict)
    """When an execution there was heard to be over."""

    def read(self, reading: Reading) -> None:
        """The devices were read."""
        self.reading = reading
        self.ledger.note(reading, contexts_seen(reading))
        if reading.error is not None:
            return
        for here in self._accounts():
            self.ledger.note_foreign(here.device.address, here.foreign_bytes)
            if not here.is_undisturbed:
                for execution in self.executions.values():
                    execution.disturbed |= here.device.address in execution.placement.devices

    def cap(self) -> None:
        """Hold each process to its promise, and to what is promised to nobody."""
        if self.reading is not None and self.executions:
            running = self.ledger.snapshot().reservations
            self.ports.cap_memory(caps(self._accounts(), running))

    def _accounts(self) -> list[DeviceAccount]:
        assert self.reading is not None
        ledger = self.ledger.snapshot()
        return self.accounts.of(self.reading, ledger, self.limits.headroom_bytes)

    def freed(self, devices: Iterable[DeviceId], now_seconds: float) -> None:
        """An execution on them is over."""
        for device in devices:
            self._freed_seconds[device] = now_seconds

    @property
    def shows_the_last_end(self) -> bool:
        """Whether the last reading was begun after the last execution was over."""
        last_seconds = max(self._freed_seconds.values(), default=-math.inf)
        return self.reading is not None and self.reading.begun_seconds > last_seconds

    def request(self, waiting: Waiting) -> Request:
        """What it asks for, by what is known now."""
        devices = () if self.reading is None else self.reading.devices
        kinds = {device.address.kind for device in devices}
        request = self.requests.of(waiting.trial.params, waiting.n_ran_out, kinds)
        return replace(request, undisturbed=waiting.undisturbed)

    def known_request(self, waiting: Waiting) -> Request | None:
        """The same; None: what it will want is being found out."""
        request = self.request(waiting)
        if request.source is not RequestSource.UNKNOWN:
            return request
        return None if self.ports.is_surveying(waiting.trial) else self.request(waiting)

    def place(self, request: Request, now_seconds: float) -> Placement | Refusal:
        """Where it starts now, or why it does not."""
        most = self.limits.max_concurrent_trials
        if len(self.executions) >= most:
            return at_limit(most)  # reservations come back before we hear that they did
        return place(
            request,
            self.reading,
            self.ledger.snapshot(),
            self.limits,
            now_seconds=now_seconds,
            process=self.process,
            idle=self.ports.idle(),
            accounts=self.accounts,
        )

    def situation(self, now_seconds: float, ends_seconds: Mapping[int, float]) -> Situation:
        """All that placing depends on; there is a reading. `ends_seconds`: by execution."""
        assert self.reading is not None
        return Situation(
            self.reading,
            self.ledger.snapshot(),
            self.limits,
            now_seconds,
            self.process,
            self.ports.idle(),
            ends_seconds,
            self.accounts,
        )

    def make_room(self, refusal: Refusal) -> None:
        """What lacks may be what processes hold in which nothing runs; a later reading shows it.

        One that was begun before they gave their memory back shows what they held then.
        """
        for device in refusal.in_the_way:
            assert self.reading is not None, "it was in the way by a reading"
            if self.reading.begun_seconds > self._freed_seconds.get(device, -math.inf):
                self.ports.end_idle({device})
