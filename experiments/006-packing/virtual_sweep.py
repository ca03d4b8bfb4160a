"""The real loop, policy, ledger and requests on the virtual machine: this is their ports."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from virtual_machine import RAN_OUT_SECONDS, Machine
from worlds import CONTEXT_BYTES, GIB, Setting, Trial

from automl.admission.caps import Caps
from automl.admission.footprint import Structure
from automl.admission.ledger import Ledger
from automl.admission.policy import Idle, Limits
from automl.admission.requests import Requests
from automl.devices.device import DeviceProcess, DeviceSnapshot, Reading
from automl.running.durations import Durations
from automl.running.loop import Loop
from automl.running.messages import (
    Asked,
    DevicesRead,
    Ended,
    Measured,
    Message,
    Released,
    Running,
    Surveyed,
    Waiting,
)
from automl.trial import (
    DeviceId,
    Finished,
    MemoryPeak,
    Outcome,
    OutOfMemory,
    Params,
    Placement,
    Request,
    RequestSource,
)

READ_SECONDS = 60.0
"""And after each end."""


class Exact(Durations):
    """What a trial takes where nobody slows it."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        super().__init__()
        self._trials = trials

    def of(self, waiting: Waiting) -> float:
        return self._trials[waiting.trial.number].seconds

    def left(self, running: Running, now_seconds: float) -> float:
        return running.since_seconds + self.of(running.waiting) - now_seconds


@dataclass(frozen=True)
class Known:
    """What is known of the trials."""

    request: str = "surveyed"
    """exact, 20 % over, surveyed (and learned), or unknown."""
    n_ahead: int = 0
    exact_durations: bool = False


class Sweep(Machine):
    """The real loop; this is its ports."""

    def __init__(self, setting: Setting, trials: Sequence[Trial], seed: int, known: Known) -> None:
        super().__init__(setting, trials, seed)
        self._known, self._n_asked = known, 0
        self._where: dict[int, DeviceId] = {}
        self._ran_out: set[int] = set()
        self.n_over_committed = self.n_failed = 0
        self.delayed_seconds: list[float] = []
        """Of each head that others may have passed: start less the time first promised."""
        self._promises: dict[int, float] = {}
        self.ledger = Ledger()
        durations = Exact(trials) if known.exact_durations else Durations(self._progress)
        self.loop = Loop(
            self,
            Requests(self._estimate, None),
            self.ledger,
            Limits(16 * setting.n_devices, GIB // 4, 5.0),
            len(trials),
            0,
            n_ahead=known.n_ahead,
            durations=durations,
        )

    def run(self) -> Machine:
        self._tick()
        while not self.loop.done:
            self.step()
        return self

    # --- ports ---

    def ask(self) -> Asked | None:
        number, self._n_asked = self._n_asked, self._n_asked + 1
        params = {"n": number}
        if self._known.request == "surveyed":
            structure = Structure((self.trials[number].structure_bytes,))
            self.loop.requests.survey(params, structure)
        return Asked(number, params)

    def n_may_pend(self) -> int | None:
        return None

    def kind_of(self, trial: Asked, *, on_host: bool) -> None:
        return None

    def submit(self, trials: Sequence[Asked], placement: Placement, n_lanes: int) -> None:
        (number,), (device,) = [t.number for t in trials], placement.devices
        if (promised := self._promises.pop(number, None)) is not None:
            self.delayed_seconds.append(max(0.0, self.now - promised))
        again = RAN_OUT_SECONDS if number in self._ran_out else 0.0
        process = self.begin(number, device, again)
        self._where[number] = device
        self.ledger.assign(number, process)
        self.ledger.context_up(number, self.now)

    def feed(self, key: int, trial: Asked) -> None:
        raise AssertionError("no packs here")

    def tell(self, outcome: Outcome) -> None:
        """It has ended."""

    def fail(self, trial: Asked, cause: str, *, too_large: bool) -> None:
        self.n_failed += 1

    def stop_trials(self) -> None:
        raise AssertionError("nobody stops it")

    def is_surveying(self, trial: Asked) -> bool:
        return False

    def surveyed(self, surveyed: Surveyed) -> None:
        raise AssertionError("nothing is surveyed here")

    def cap_memory(self, caps: Caps) -> None:
        """Trials here take what was reserved for them."""

    def idle(self) -> Idle:
        return {(device,): tuple(ps) for device, ps in self.kept.items() if ps}

    def end_idle(self, devices: Collection[DeviceId]) -> None:
        for device in devices:
            self.kept[device].clear()

    # --- what is known ---

    def _estimate(self, params: Params) -> Request:
        trial = self.trials[int(str(params["n"]))]
        factor = {"exact": 1.0, "20 % over": 1.2}.get(self._known.request)
        if factor is None:
            return Request(None, RequestSource.UNKNOWN)
        return Request(int(factor * trial.peak_bytes), RequestSource.ESTIMATED)

    def _progress(self, number: int) -> float | None:
        here = self.on[self._where[number]].get(number)
        if here is None:
            return None
        self._advance(self._where[number])
        return max(0.0, 1 - here.left_seconds / self.trials[number].seconds) or None

    # --- what happens ---

    def ended(self, number: int, device: DeviceId) -> None:
        self._over(Finished(number, self.now, 0.0), device)

    def ran_out(self, number: int, device: DeviceId) -> None:
        self._ran_out.add(number)
        self._over(OutOfMemory(number, self.now, "CUDA out of memory"), device)

    def appeared(self, number: int, device: DeviceId) -> None:
        if self._known.request == "surveyed":
            peak = MemoryPeak(number, self.now, self.trials[number].peak_bytes)
            self._handle(Measured(peak))

    def _over(self, outcome: Outcome, device: DeviceId) -> None:
        self.end(outcome.trial, device)
        self._handle(Ended(outcome))
        self.ledger.release(outcome.trial, self.now)
        self._handle(Released(outcome.trial))
        self.at(0.5, self._read)

    def _tick(self) -> None:
        self._read()
        self.at(READ_SECONDS, self._tick)

    def _read(self) -> None:
        devices = tuple(
            DeviceSnapshot(
                device,
                "sim",
                total,
                max(0, total - self.used_bytes(device)),
                processes=tuple(self._tenants(device)),
            )
            for device, total in self.totals.items()
        )
        held = {
            (device, trial.process): trial.held_bytes
            for device, here in self.on.items()
            for trial in here.values()
        }
        held |= {(device, p): 0 for device, ps in self.kept.items() for p in ps}
        self._handle(DevicesRead(Reading(self.now, devices, held, held)))

    def _tenants(self, device: DeviceId) -> Iterator[DeviceProcess]:
        """As the driver shows them where it is not asked from within a container."""
        for trial in self.on[device].values():
            used = CONTEXT_BYTES + trial.held_bytes
            yield DeviceProcess(trial.process.pid, used, used)
        for process in self.kept[device]:
            yield DeviceProcess(process.pid, CONTEXT_BYTES, CONTEXT_BYTES)

    def _handle(self, message: Message) -> None:
        self.loop.handle(message, self.now)
        lookahead = self.loop._lookahead
        if self.loop.waiting and lookahead.promised and lookahead.until_seconds < math.inf:
            head = self.loop.waiting[0].trial.number
            if lookahead._head == head:
                self._promises.setdefault(head, lookahead.until_seconds)
