"""The real loop, policy, ledger and requests on the virtual machine: this is their ports."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from virtual_machine import RAN_OUT_SECONDS, Machine
from virtual_reading import reading_of
from worlds import CONTEXT_BYTES, GIB, LONGEST_SURVEY_SECONDS, Setting, Trial

from automl.admission.accounting.idle_processes import Idle
from automl.admission.accounting.ledger import Ledger
from automl.admission.footprint import MemoryStructure
from automl.admission.limits import AdmissionLimits
from automl.admission.memory_caps import Caps, may_settle, settled_bytes
from automl.admission.requests import RequestMaker
from automl.measure.survey.survey_result import SurveyResult
from automl.running.loop.asking import TrialAsker
from automl.running.loop.loop import SweepLoop
from automl.running.loop.messages import (
    DevicesRead,
    ExecutionStart,
    LoopMessage,
    PlannedTrial,
    ReservationReleased,
    TrialEnded,
    TrialMemoryMeasured,
    TrialSurveyed,
    UnfitTrialFinding,
    WaitingTrial,
)
from automl.running.loop.packing import TrialDurations
from automl.trial import (
    UNKNOWN_REQUEST,
    DeviceId,
    DeviceKind,
    FinishedOutcome,
    MemoryPeakMeasured,
    OutOfMemoryOutcome,
    Params,
    RequestSource,
    ResourceRequest,
    TrialOutcome,
)
from tests.running.loop.plain_ports import PlainPorts, ports_of

READ_AFTER_SECONDS = 0.5
"""From what changes on a device until a reading shows it, as by default."""
READ_SECONDS = 60.0
"""Where nothing changes."""


class Exact(TrialDurations):
    """What a trial takes where nobody slows it."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        super().__init__()
        self._trials = trials

    def of(self, waiting: WaitingTrial, share: float = 0.5) -> float:
        return self._trials[waiting.trial.number].seconds

    def left(self, waiting: WaitingTrial, kind: DeviceKind, so_far: float) -> float:
        return self.of(waiting) - so_far


@dataclass(frozen=True)
class Known:
    """What is known of the trials."""

    request: str = "surveyed"
    """exact, 20 % over, surveyed or unknown."""
    n_ahead: int = 0
    exact_durations: bool = False
    is_measured: bool = True
    """Promises settle and requests are learned; else what is asked for stays."""
    governed: bool = False
    """How many share a device is found (`governed_sweep.py`)."""


class Sweep(Machine, PlainPorts):
    """One sweep over all trials."""

    def __init__(self, setting: Setting, trials: Sequence[Trial], seed: int, known: Known) -> None:
        super().__init__(setting, trials, seed)
        self._known, self._n_asked, self._random = known, 0, Random(seed)
        self._where: dict[int, DeviceId] = {}
        self._ran_out: set[int] = set()
        self._surveyed: dict[int, bool] = {}
        """False: it is on its way."""
        self._caps: dict[int, Mapping[DeviceId, int]] = {}
        self._is_read_soon = False
        self.n_over_committed = self.n_failed = 0
        self.delayed_seconds: list[float] = []
        """Of each head that others may have passed: from the reading that shows what ended at the
        time first promised until it starts."""
        self._promises: dict[int, float] = {}
        self.ledger = Ledger()
        durations = Exact(trials) if known.exact_durations else TrialDurations(self._progress)
        self.limits = AdmissionLimits(None, GIB // 4, 5.0, max_on_host=16 * setting.n_devices)
        self.loop = SweepLoop(
            ports_of(self),
            RequestMaker(self._estimate, None),
            self.ledger,
            self.limits,
            TrialAsker(ports_of(self), len(trials), 0),
            n_ahead=known.n_ahead,
            durations=durations,
        )

    def run(self) -> Sweep:
        longest = 100 * self.setting.bound_seconds(self.trials)
        self._tick()
        while not self.loop.done:
            assert self.now < longest, "it waits for ever"
            self.step()
        return self

    @property
    def n_lost(self) -> int:
        """Failed, or left to a next sweep."""
        return self.n_failed + len(self.loop.queue.deferred)

    # --- ports ---

    def ask(self) -> PlannedTrial | None:
        number, self._n_asked = self._n_asked, self._n_asked + 1
        return PlannedTrial(number, {"n": number})

    def submit(self, start: ExecutionStart) -> None:
        number, (device,) = start.key, start.placement.devices
        if (promised := self._promises.pop(number, None)) is not None:
            self.delayed_seconds.append(max(0.0, self.now - promised))
        again = RAN_OUT_SECONDS if number in self._ran_out else 0.0
        process = self.begin(number, device, again)
        self._where[number] = device
        self.ledger.assign(number, process)
        self.n_over_committed += self._is_over_committed(device)

    def fail(self, trial: PlannedTrial, cause: str) -> None:
        self.n_failed += 1

    def too_large(self, trial: PlannedTrial, found: UnfitTrialFinding) -> None:
        self.n_failed += 1

    def is_surveying(self, trial: PlannedTrial) -> bool:
        if self._known.request != "surveyed":
            return False
        if trial.number not in self._surveyed:
            self._surveyed[trial.number] = False
            seen = TrialSurveyed(trial, self.trials[trial.number].survey)
            after = self._random.uniform(0.2, LONGEST_SURVEY_SECONDS)
            self.at(after, partial(self._handle, seen))
        return not self._surveyed[trial.number]

    def surveyed(self, surveyed: TrialSurveyed) -> None:
        seen = surveyed.found
        assert isinstance(seen, SurveyResult)
        parts = (float(seen.weights_bytes), float(seen.reserved_bytes - seen.weights_bytes))
        self.loop.requests.survey(
            surveyed.trial.params, MemoryStructure(parts, RequestSource.SURVEYED)
        )
        self._surveyed[surveyed.trial.number] = True
        self._read_soon()

    def cap_memory(self, caps: Caps) -> None:
        self._caps |= caps

    def idle(self) -> Idle:
        return {(device,): tuple(ps) for device, ps in self.kept.items() if ps}

    def end_idle(self, devices: Collection[DeviceId]) -> None:
        for device in devices:
            self.kept[device].clear()
        self._read_soon()

    # --- what is known ---

    def _estimate(self, params: Params) -> ResourceRequest:
        factor = {"exact": 1.0, "20 % over": 1.2}.get(self._known.request)
        if factor is None:
            return UNKNOWN_REQUEST
        trial = self.trials[int(str(params["n"]))]
        return ResourceRequest(int(factor * trial.peak_bytes), RequestSource.ESTIMATED)

    def _progress(self, number: int) -> float | None:
        here = self.on[self._where[number]].get(number)
        if here is None:
            return None
        self._advance(self._where[number])
        return max(0.0, 1 - here.left_seconds / self.trials[number].seconds) or None

    def _is_over_committed(self, device: DeviceId) -> bool:
        """By the machine's own books: promises, or what is held where that is more; all contexts
        and caches; strangers as they were read; and the headroom."""
        reading = self.loop._placing.reading
        assert reading is not None
        (read,) = (d for d in reading.devices if d.address == device)
        taken = min(self.foreign[device], read.total_bytes - read.free_bytes)
        promised = {r.key: r for r in self.ledger.snapshot().on(device).reservations}
        for number, here in self.on[device].items():
            taken += max(here.held_bytes, promised[number].counted_bytes(device)) + CONTEXT_BYTES
        taken += sum(CONTEXT_BYTES + cached for cached in self.kept[device].values())
        return taken + self.limits.headroom_bytes > self.totals[device]

    # --- what happens ---

    def ended(self, number: int, device: DeviceId) -> None:
        self._over(FinishedOutcome(number, self.now, 0.0), device)

    def ran_out(self, number: int, device: DeviceId) -> None:
        self._ran_out.add(number)
        self._over(OutOfMemoryOutcome(number, self.now, "CUDA out of memory"), device)

    def appeared(self, number: int, device: DeviceId) -> None:
        """It reports: its context is up, and where peaks are measured its promise settles."""
        self.ledger.context_up(number, self.now)
        self._read_soon()
        if not self._known.is_measured:
            return
        peak = MemoryPeakMeasured(number, self.now, self.trials[number].peak_bytes)
        self.ledger.observe_peak(number, peak.peak_bytes)
        execution = self.loop.executions[number]
        sizes = settled_bytes(peak, execution.placement)
        if sizes is not None and may_settle(execution.request, execution.placement, 1):
            self.ledger.settle(number, *sizes)
        self._handle(TrialMemoryMeasured(peak))

    def cap_bytes(self, number: int, device: DeviceId) -> int:
        return self._caps.get(number, {}).get(device, self.totals[device])

    def breathed(self) -> None:
        self._read_soon()

    def _over(self, outcome: TrialOutcome, device: DeviceId) -> None:
        self.end(outcome.trial, device)
        self._handle(TrialEnded(outcome))
        self.ledger.release(outcome.trial, self.now)
        self._handle(ReservationReleased(outcome.trial))
        self._read_soon()

    def _tick(self) -> None:
        self._read()
        self.at(READ_SECONDS, self._tick)

    def _read_soon(self) -> None:
        if not self._is_read_soon:
            self._is_read_soon = True
            self.at(READ_AFTER_SECONDS, self._read)

    def _read(self) -> None:
        self._is_read_soon = False
        self._handle(DevicesRead(reading_of(self)))

    def _handle(self, message: LoopMessage) -> None:
        self.loop.handle(message, self.now)
        lookahead = self.loop._lookahead
        promised = lookahead.promised
        if self.loop.queue.queued and promised is not None:
            head = self.loop.queue.queued[0].trial.number
            if lookahead._head == head:
                n_readings = 1 if promised.at_once else 2  # the second shows who had to end
                shown = lookahead.until_seconds + n_readings * READ_AFTER_SECONDS
                self._promises.setdefault(head, shown)
