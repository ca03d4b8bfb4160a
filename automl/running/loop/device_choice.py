"""Chooses the kind of device for each waiting trial, where a sweep has the CPU and GPUs.

A trial goes where it ends first, its wait included (`admission/training_pace.py`), by what earlier
trials took there. Waiting trials are looked at in order, and each kind of device has its own line.
A trial that waits for a GPU delays no trial that goes to the CPU, and no later trial takes its
place. The choice is made anew each time. A trial stays on the kind on which it has started, since
its numbers depend on it.

Until the CPU was timed (`cpu_probe.py`), no trial goes there that may go to a GPU. If timing
failed, a prior tells the CPU's speed: a trial then goes to the CPU only if it would be faster there
even with a GPU free, which means that small trials measure it. Trials of unknown work try the CPU
one at a time, when no GPU takes them, until one of them has finished there.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from automl.admission.refusals import (
    SURVEYING_REFUSAL,
    AdmissionRefusal,
    RefusalKind,
    no_reading_refusal,
)
from automl.admission.training_pace import (
    DeviceOption,
    DeviceQueue,
    DeviceSplit,
    TrialSecondsByKind,
    best_device_kind_split,
    first_option_to_end,
)
from automl.record.texts import duration_text
from automl.running.loop.messages import (
    AdmittedExecution,
    ExecutionStart,
    WaitingTrial,
)
from automl.running.loop.packing import GetProgress, TrialDurations
from automl.running.loop.placing import TrialPlacer
from automl.running.loop.trial_paces import DevicePaceModel, ExecutionTiming
from automl.running.loop.trial_queue import (
    DEVICE_GONE_KINDS,
    AllTrialsWait,
    RefusedTrial,
    TryStart,
    WaitingLines,
)
from automl.trial import DeviceKind, Params, Placement, ResourceRequest, TrainingWork

MAX_WORK_RATIO = 8.0
"""The CPU's pace is trusted for trials of up to this many times the work of the largest trial timed
there."""
MAX_CPU_FRACTION = 0.5
"""Largest share of the remaining time of all trials that a trial may take on the CPU if it could
end sooner on a GPU. All others wait for a trial that ends last there. The remaining time is
estimated from the trials asked for so far."""
N_RECENT_WORKS = 64
"""Number of recent trials from which the work of coming trials is estimated."""
BEHIND = AdmissionRefusal("waiting: for those before it", RefusalKind.FULL)


@dataclass(frozen=True)
class DeviceKindChoice:
    """A decision for a waiting trial. `waiting` says for which kind of device."""

    waiting: WaitingTrial
    request: ResourceRequest
    refusal: AdmissionRefusal | None
    """Why it cannot start there now. None if it can."""
    seconds: float = math.inf


@dataclass
class DeviceKindLines(WaitingLines):
    """The lines of a sweep that has several kinds of device. For the main thread."""

    chooser: DevicePaceModel
    durations: TrialDurations
    n_ahead: int = 0
    """Number of trials behind the first that are looked at."""
    _timed: dict[int, ExecutionTiming] = field(default_factory=dict)
    """Timing of each execution, by its key."""
    _works: deque[TrainingWork] = field(init=False)
    """Work of the last trials asked for. While they are few, trials drawn from the space are
    included."""

    def __post_init__(self) -> None:
        self._works = deque(self.chooser.likely[:N_RECENT_WORKS], maxlen=N_RECENT_WORKS)

    @property
    def executions(self) -> Mapping[int, AdmittedExecution]:
        return self.placing.executions

    # --- what is learned ---

    def asked(self, params: Params) -> None:
        """Note the work of a trial with these params, which the study has asked for."""
        if (work := self.chooser.work(params)) is not None:
            self._works.append(work)

    def observe(self, now_seconds: float) -> None:
        """Time the steps that running executions have taken, after a reading of the devices."""
        steps = self.placing.ports.processes.n_steps()
        self._timed = {key: self._timed.get(key) or ExecutionTiming() for key in self.executions}
        for key, execution in self.executions.items():
            n_live = len(execution.live)
            if key in steps and n_live:
                timing = self._timed[key]
                timing.take(steps[key], n_live, now_seconds)
                if (step_seconds := timing.step_seconds) is not None:
                    self._learn(execution, n_live, step_seconds, timing)

    def finished(self, number: int, execution: AdmittedExecution, seconds: float) -> None:
        """Learn the pace of a trial that has come to its end."""
        kind = execution.placement.kind
        work = self.chooser.work(execution.members[number].trial.params)
        timing = self._timed.setdefault(execution.key, ExecutionTiming())
        if work is None:
            self.chooser.paces.finished(number, kind, seconds)
        elif timing.step_seconds is None:  # the trial was too short for its steps to be timed
            self._learn(execution, execution.n_lanes, seconds / work.n_steps, timing)

    def _learn(
        self,
        execution: AdmittedExecution,
        n_lanes: int,
        step_seconds: float,
        timing: ExecutionTiming,
    ) -> None:
        first = next(iter(execution.members.values()))
        work = self.chooser.work(first.trial.params)
        if work is None:
            return
        flops, kind = n_lanes * work.step_flops, execution.placement.kind
        self.chooser.timed(first.trial.number, kind, flops, step_seconds)
        if timing.is_due:
            timing.n_noted = timing.n_passes
            self.chooser.note(kind, flops, step_seconds, first.trial.number)

    # --- which trial is next ---

    def look(
        self,
        waiting: Sequence[WaitingTrial],
        n_to_come: int,
        try_start: TryStart,
        now_seconds: float,
    ) -> ExecutionStart | RefusedTrial | AllTrialsWait:
        """Return which trial starts next, in queue order, each on the kind chosen for it."""
        found: list[RefusedTrial] = []
        n_waiting = len(waiting)  # more trials may be asked for meanwhile
        look = self._begin(n_waiting + n_to_come, now_seconds)
        for trial in [*islice(waiting, self._n_looked_at + 1)]:
            chosen = look.choose(trial)
            decided = chosen.refusal or try_start(chosen.waiting, chosen.request)
            if isinstance(decided, ExecutionStart):
                return decided
            refused = RefusedTrial(replace(chosen.waiting, refusal=decided), chosen.request)
            if refused.is_put_aside:
                return refused
            look.waits(refused, chosen.seconds)
            found.append(refused)
        return AllTrialsWait(found, self._takes_more(look, n_waiting, now_seconds))

    def bound(self, waiting: WaitingTrial, kind: DeviceKind) -> WaitingTrial:
        """Return the trial bound to this kind of device for life."""
        return replace(waiting, kind=kind)

    def kept_kind(self, kind: DeviceKind | None) -> DeviceKind | None:
        """Return the same kind, or None if the sweep has none of that kind any more."""
        return kind if kind in self.chooser.kinds else None

    def _begin(self, n_to_come: int, now_seconds: float) -> QueuePass:
        left: dict[DeviceKind, list[float]] = {kind: [] for kind in DeviceKind}
        for execution in self.executions.values():
            end_seconds = self.durations.end(execution, now_seconds)
            left[execution.placement.kind].append(max(0.0, end_seconds - now_seconds))
        lines = {kind: DeviceQueue(ends) for kind, ends in left.items()}
        return QueuePass(self, lines, self._split(), n_to_come, now_seconds)

    def _split(self) -> DeviceSplit:
        """Return the best split of the last trials asked for between the CPU and the GPUs."""
        places = self.placing.n_places
        n_cpu, n_gpu = places.get(DeviceKind.CPU, 0), places.get(DeviceKind.GPU, 0)
        if not (n_cpu and n_gpu):
            return DeviceSplit()
        paces, trials = self.chooser.paces, []
        for work in self._works:
            cpu, gpu = (paces.seconds(work, kind) for kind in (DeviceKind.CPU, DeviceKind.GPU))
            if cpu and gpu:
                trials.append(TrialSecondsByKind(cpu, gpu))
        return best_device_kind_split(trials, n_cpu, n_gpu)

    @property
    def n_idle_on_cpu(self) -> int:
        """Number of free places on the CPU."""
        places = self.placing.n_places.get(DeviceKind.CPU, 0)
        return max(0, places - sum(e.placement.on_host for e in self.executions.values()))

    @property
    def _n_looked_at(self) -> int:
        """Number of trials looked at behind the first. It grows by the idle cores, because all
        trials asked for may wait for a GPU."""
        return self.n_ahead + self.n_idle_on_cpu if self.n_ahead else 0

    def _takes_more(self, look: QueuePass, n_waiting: int, now_seconds: float) -> bool:
        """Return whether a device that no trial waits for could take the least that a trial asks
        for."""
        idle = self.chooser.kinds - look.awaited
        if self.chooser.is_probing:
            idle -= {DeviceKind.CPU}
        if n_waiting > self._n_looked_at:
            return False
        least = (replace(self.placing.least, kinds=frozenset({kind})) for kind in idle)
        placements = (self.placing.place(request, now_seconds) for request in least)
        return any(isinstance(placement, Placement) for placement in placements)


def make_waiting_lines(
    chooser: DevicePaceModel | None,
    placing: TrialPlacer,
    durations: TrialDurations,
    n_ahead: int,
) -> WaitingLines:
    """Return one queue for each kind of device if there are several kinds, or a single queue."""
    if chooser is None:
        return WaitingLines(placing)
    return DeviceKindLines(placing, chooser, durations, n_ahead)


def make_durations(progress: GetProgress, chooser: DevicePaceModel | None) -> TrialDurations:
    """Return the estimate of durations, with the chooser's predictions if there is one."""
    if chooser is None:
        return TrialDurations(progress)
    return TrialDurations(progress, chooser.seconds)


@dataclass
class QueuePass:
    """One look at all waiting trials."""

    choosing: DeviceKindLines
    lines: Mapping[DeviceKind, DeviceQueue]
    split: DeviceSplit
    n_to_come: int
    """Number of trials that wait or are still to be asked for."""
    now_seconds: float
    awaited: set[DeviceKind] = field(default_factory=set)
    """Kinds of device that an earlier trial waits for. No trial passes it there."""

    def choose(self, waiting: WaitingTrial) -> DeviceKindChoice:
        """Return the kind of device on which this trial goes."""
        found = {kind: self._ask(waiting, kind) for kind in self._kinds_of(waiting)}
        open_ = {k: c for k, c in found.items() if c.refusal is None or not _is_closed(c.refusal)}
        if not open_:
            away = [
                c
                for c in found.values()
                if c.refusal is not None and c.refusal.kind in DEVICE_GONE_KINDS
            ]
            return (away or list(found.values()))[0]
        kind = self._kind(waiting, open_)
        return _with_reason(open_[kind], open_)

    def waits(self, refused: RefusedTrial, seconds: float) -> None:
        """Note that the trial does not start now. If it lacks main memory or a core beside a GPU,
        trials that would take these for the CPU do not pass it."""
        kind = refused.waiting.where
        assert kind is not None
        self.awaited |= {kind, DeviceKind.CPU} if refused.refusal.of_host else {kind}
        self.lines[kind].join(seconds)

    def _kinds_of(self, waiting: WaitingTrial) -> list[DeviceKind]:
        """Return the kinds on which the trial may and can run. If it can run on none, any of them
        refuses it."""
        can = self.choosing.placing.request(replace(waiting, chosen=None)).kinds
        kinds = self.choosing.chooser.kinds_of(waiting)
        # A trial that cannot run elsewhere goes to the CPU whether or not its work is known.
        others = [kind for kind in self.choosing.chooser.kinds if kind in can]
        return [kind for kind in kinds if kind in can] or others or kinds[:1]

    def _ask(self, waiting: WaitingTrial, kind: DeviceKind) -> DeviceKindChoice:
        there, placing = replace(waiting, chosen=kind), self.choosing.placing
        seconds = self.choosing.chooser.seconds(waiting, kind)
        seconds = math.inf if seconds is None else seconds
        known = placing.known_request(there) if kind is DeviceKind.GPU else None
        request = known or placing.request(there)
        if known is None and kind is DeviceKind.GPU:
            return DeviceKindChoice(there, request, SURVEYING_REFUSAL, seconds)
        found = BEHIND if kind in self.awaited else self._place(request)
        return DeviceKindChoice(
            there, request, None if isinstance(found, Placement) else found, seconds
        )

    def _place(self, request: ResourceRequest) -> Placement | AdmissionRefusal:
        """Place the request, or refuse it for now if its devices do not answer."""
        placing = self.choosing.placing
        away = request.kinds & self.choosing.chooser.kinds - placing.kinds
        if away and not request.kinds & placing.kinds and placing.has_read:
            return no_reading_refusal(request)
        return placing.place(request, self.now_seconds)

    def _kind(
        self, waiting: WaitingTrial, found: Mapping[DeviceKind, DeviceKindChoice]
    ) -> DeviceKind:
        if len(found) == 1:
            return next(iter(found))
        if self.choosing.chooser.is_probing:
            return DeviceKind.GPU
        if any(math.isinf(chosen.seconds) for chosen in found.values()):
            return self._kind_without_seconds(found)
        on_cpu, on_gpu = found[DeviceKind.CPU].seconds, found[DeviceKind.GPU].seconds
        if on_cpu > on_gpu and not self._is_known(waiting):
            return DeviceKind.GPU
        options = [DeviceOption(k, self._wait(k, c), c.seconds) for k, c in found.items()]
        return DeviceKind.CPU if self._helps(found) else first_option_to_end(options).kind

    def _helps(self, found: Mapping[DeviceKind, DeviceKindChoice]) -> bool:
        """Return whether all trials end sooner if this one starts on the CPU now."""
        cpu, gpu = found[DeviceKind.CPU], found[DeviceKind.GPU]
        if cpu.refusal is not None or not self.choosing.n_idle_on_cpu:
            return False
        is_best_there = cpu.seconds <= self.split.most_ratio * gpu.seconds
        all_seconds = self.n_to_come * self.split.trial_seconds
        return is_best_there and cpu.seconds <= MAX_CPU_FRACTION * all_seconds

    def _wait(self, kind: DeviceKind, chosen: DeviceKindChoice) -> float:
        return 0.0 if chosen.refusal is None else self.lines[kind].wait_seconds(chosen.seconds)

    def _kind_without_seconds(self, found: Mapping[DeviceKind, DeviceKindChoice]) -> DeviceKind:
        """Return the kind for a trial whose duration is unknown on one of the kinds."""
        cpu = found[DeviceKind.CPU]
        tries = math.isinf(cpu.seconds) and cpu.refusal is None and not self._runs_on_cpu()
        waits = found[DeviceKind.GPU].refusal is not None
        return DeviceKind.CPU if waits and tries else DeviceKind.GPU

    def _runs_on_cpu(self) -> bool:
        return any(e.placement.on_host for e in self.choosing.executions.values())

    def _is_known(self, waiting: WaitingTrial) -> bool:
        """Return whether trials like this one tell its pace on the CPU."""
        chooser = self.choosing.chooser
        work = chooser.work(waiting.trial.params)
        most = chooser.paces.most_timed(DeviceKind.CPU)
        return work is None or work.step_flops <= MAX_WORK_RATIO * most


def _is_closed(refusal: AdmissionRefusal) -> bool:
    """Return whether the trial cannot start there however long it waits."""
    return refusal.kind is RefusalKind.NEVER or refusal.kind in DEVICE_GONE_KINDS


def _with_reason(
    chosen: DeviceKindChoice, found: Mapping[DeviceKind, DeviceKindChoice]
) -> DeviceKindChoice:
    """Add why the trial waits for this kind of device, if it could have gone to the other.

    `waiting for a GPU (about 40 s there, 5:10 on the CPU): 1 trial is on GPU-8f…: …`
    """
    refusal = chosen.refusal
    if refusal is None or refusal is SURVEYING_REFUSAL or len(found) == 1:
        return chosen
    where = {DeviceKind.GPU: "a GPU", DeviceKind.CPU: "the CPU"}
    kind = chosen.waiting.where
    (other,) = (other for other in found if other is not kind)
    assert kind is not None
    text = f"waiting for {where[kind]}"
    if math.isfinite(chosen.seconds) and math.isfinite(found[other].seconds):
        there, elsewhere = duration_text(chosen.seconds), duration_text(found[other].seconds)
        text += f" (about {there} there, {elsewhere} on {where[other]})"
    why = refusal.reason.removeprefix("waiting: ")
    return replace(chosen, refusal=replace(refusal, reason=f"{text}: {why}"))
