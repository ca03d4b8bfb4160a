"""To which kind of device each waiting trial goes, where a sweep has the CPU and GPUs.

It goes where it ends first, by what trials before it took there (`admission/pace.py`), its wait
counted (`admission/choice.py`). Those that wait are looked at in their order, and each kind of
device has a line of its own: who waits for a GPU holds nobody back who goes to the CPU, and nobody
behind it takes its place. What a trial waits for is chosen anew each time; where it started it
stays for life, as its numbers depend on it.

Nothing known yet: of the built-in network the work is arithmetic, and before any trial ran on a
kind a prior tells how fast that is. By the prior alone a trial goes to the CPU only where it would
be faster there even if a GPU were free; so the small ones measure the CPU. Of a trial whose work
nobody knows one at a time tries the CPU, when no GPU takes it, until one has finished there.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from automl.admission.choice import Line, Option, Seconds, Split, best_split, first_to_end
from automl.admission.pace import Paces
from automl.admission.reasons import SURVEYING, Refusal, RefusalKind
from automl.record.trial_record import TrialRecord
from automl.running.durations import Durations
from automl.running.held_back import AWAY
from automl.running.messages import Execution, Running, Waiting
from automl.running.placing import Placing
from automl.trial import DeviceKind, Finished, Params, Placement, Request, Work

MOST_BEYOND = 8.0
"""So many times the work of the largest trial that was timed on the CPU is known by it."""
N_LIKE = 64
"""Trials asked for last that tell what those are like which are to come."""
WINDOW_SECONDS = 1.0
WINDOW_STEPS = 5
"""Steps of a trial that runs tell its pace once they took so long, and are so many."""
BEHIND = Refusal("waiting: for those before it", RefusalKind.FULL)


@dataclass
class Chooser:
    """What is known of the trials of a sweep that has several kinds of device."""

    work: Callable[[Params], Work | None]
    """Of a whole trial; None: nobody knows."""
    kinds: frozenset[DeviceKind]
    """That the sweep has, whether they answer now or not."""
    anyone_to_cpu: bool = False
    """Those, too, whose work nobody knows."""
    paces: Paces = field(default_factory=Paces)

    def seconds(self, waiting: Waiting, kind: DeviceKind) -> float | None:
        """That it will take on such a device; None: nobody knows."""
        return self.paces.seconds(self.work(waiting.trial.params), kind)

    def kinds_of(self, waiting: Waiting) -> list[DeviceKind]:
        """Where it may go, GPUs first."""
        if waiting.kind is not None:
            return [waiting.kind]
        kinds = sorted(self.kinds, key=lambda kind: kind is DeviceKind.CPU)
        if self.anyone_to_cpu or self.work(waiting.trial.params) is not None:
            return kinds
        return [kind for kind in kinds if kind is not DeviceKind.CPU] or kinds


@dataclass(frozen=True)
class Chosen:
    """What was decided of one that waits: `waiting` says for which kind."""

    waiting: Waiting
    request: Request
    refusal: Refusal | None
    """None: it can start there now."""
    seconds: float = math.inf


@dataclass
class Choosing:
    """Chooses for the loop. For the main thread."""

    chooser: Chooser
    placing: Placing
    durations: Durations
    running: Mapping[int, Running]
    executions: Mapping[int, Execution]
    _timed: dict[int, _Timing] = field(default_factory=dict)
    """By execution."""
    _works: deque[Work] = field(default_factory=lambda: deque(maxlen=N_LIKE))
    """Of those asked for last."""

    def observe(self, n_steps: Mapping[int, int], now_seconds: float) -> None:
        """What runs has taken so many steps: how long each took is learned."""
        self._timed = {key: self._timed.get(key) or _Timing() for key in self.executions}
        for key, execution in self.executions.items():
            n_live = len(execution.live)
            if key in n_steps and n_live:
                timing = self._timed[key]
                timing.take(n_steps[key], n_live, now_seconds)
                if (step_seconds := timing.step_seconds) is not None:
                    self._learn(execution, n_live, step_seconds)

    def finished(self, running: Running, execution: Execution, now_seconds: float) -> None:
        """A trial has come to its end."""
        seconds, kind = now_seconds - running.since_seconds, running.placement.kind
        number = running.waiting.trial.number
        work = self.chooser.work(running.waiting.trial.params)
        if work is None:
            self.chooser.paces.finished(number, kind, seconds)
        elif self._timed.get(execution.key, _Timing()).step_seconds is None:  # it was too short
            self._learn(execution, execution.n_lanes, seconds / work.n_steps)

    def begin(self, now_seconds: float, n_to_come: int) -> Pass:
        """Look at those that wait, one after another in their order; with those still to be asked
        for they are so many."""
        left: dict[DeviceKind, list[float]] = {kind: [] for kind in DeviceKind}
        for execution in self.executions.values():
            end_seconds = self.durations.end(execution, self.running, now_seconds)
            left[execution.placement.kind].append(max(0.0, end_seconds - now_seconds))
        lines = {kind: Line(ends) for kind, ends in left.items()}
        return Pass(self, lines, self._split(), n_to_come, now_seconds)

    def asked(self, params: Params) -> None:
        """The study has asked for one with these."""
        if (work := self.chooser.work(params)) is not None:
            self._works.append(work)

    def _split(self) -> Split:
        """As those that were asked for last would be shared."""
        places = self.placing.n_places
        n_cpu, n_gpu = places.get(DeviceKind.CPU, 0), places.get(DeviceKind.GPU, 0)
        if not (n_cpu and n_gpu):
            return Split()
        paces, trials = self.chooser.paces, []
        for work in self._works:
            cpu, gpu = (paces.seconds(work, kind) for kind in (DeviceKind.CPU, DeviceKind.GPU))
            if cpu and gpu:
                trials.append(Seconds(cpu, gpu))
        return best_split(trials, n_cpu, n_gpu)

    def _learn(self, execution: Execution, n_lanes: int, step_seconds: float) -> None:
        first = next(iter(execution.members.values()))
        work = self.chooser.work(first.trial.params)
        if work is not None:
            flops, kind = n_lanes * work.step_flops, execution.placement.kind
            self.chooser.paces.add(execution.key, kind, flops, step_seconds)


@dataclass
class Pass:
    """One look at all that wait."""

    choosing: Choosing
    lines: Mapping[DeviceKind, Line]
    split: Split
    n_to_come: int
    """Trials that wait or are still to be asked for."""
    now_seconds: float
    awaited: set[DeviceKind] = field(default_factory=set)
    """Kinds that one before waits for: nobody passes it there."""

    def choose(self, waiting: Waiting) -> Chosen:
        """Where this one goes."""
        found = {kind: self._ask(waiting, kind) for kind in self._kinds_of(waiting)}
        open_ = {k: c for k, c in found.items() if c.refusal is None or not _is_closed(c.refusal)}
        if not open_:
            away = [c for c in found.values() if c.refusal is not None and c.refusal.kind in AWAY]
            return (away or list(found.values()))[0]
        return open_[self._kind(waiting, open_)]

    def waits(self, chosen: Chosen) -> None:
        """It does not start now."""
        kind = chosen.waiting.where
        assert kind is not None
        self.awaited.add(kind)
        self.lines[kind].join(chosen.seconds)

    def _kinds_of(self, waiting: Waiting) -> list[DeviceKind]:
        """Where it may go and can run at all; one that can run nowhere is refused anywhere."""
        can = self.choosing.placing.request(replace(waiting, chosen=None)).kinds
        kinds = self.choosing.chooser.kinds_of(waiting)
        return [kind for kind in kinds if kind in can] or kinds[:1]

    def _ask(self, waiting: Waiting, kind: DeviceKind) -> Chosen:
        there, placing = replace(waiting, chosen=kind), self.choosing.placing
        seconds = self.choosing.chooser.seconds(waiting, kind)
        seconds = math.inf if seconds is None else seconds
        request = placing.request(there)
        if placing.known_request(there) is None:
            return Chosen(there, request, SURVEYING, seconds)
        found = BEHIND if kind in self.awaited else placing.place(request, self.now_seconds)
        return Chosen(there, request, None if isinstance(found, Placement) else found, seconds)

    def _kind(self, waiting: Waiting, found: Mapping[DeviceKind, Chosen]) -> DeviceKind:
        if len(found) == 1:
            return next(iter(found))
        if any(math.isinf(chosen.seconds) for chosen in found.values()):
            return self._untold(found)
        on_cpu, on_gpu = found[DeviceKind.CPU].seconds, found[DeviceKind.GPU].seconds
        if on_cpu > on_gpu and not self._is_known(waiting):
            return DeviceKind.GPU
        options = [Option(k, self._wait(k, c), c.seconds) for k, c in found.items()]
        return DeviceKind.CPU if self._helps(found) else first_to_end(options).kind

    def _helps(self, found: Mapping[DeviceKind, Chosen]) -> bool:
        """Whether all end sooner where this one starts on the CPU now."""
        cpu, gpu = found[DeviceKind.CPU], found[DeviceKind.GPU]
        if cpu.refusal is not None:
            return False
        is_best_there = cpu.seconds <= self.split.most_ratio * gpu.seconds
        return is_best_there and cpu.seconds <= self.n_to_come * self.split.trial_seconds

    def _wait(self, kind: DeviceKind, chosen: Chosen) -> float:
        return 0.0 if chosen.refusal is None else self.lines[kind].wait_seconds(chosen.seconds)

    def _untold(self, found: Mapping[DeviceKind, Chosen]) -> DeviceKind:
        """Of a trial whose seconds nobody knows on some kind."""
        cpu = found[DeviceKind.CPU]
        tries = math.isinf(cpu.seconds) and cpu.refusal is None and not self._runs_on_cpu()
        waits = found[DeviceKind.GPU].refusal is not None
        return DeviceKind.CPU if waits and tries else DeviceKind.GPU

    def _runs_on_cpu(self) -> bool:
        return any(e.placement.on_host for e in self.choosing.executions.values())

    def _is_known(self, waiting: Waiting) -> bool:
        """Whether its pace on the CPU is known by trials like it."""
        chooser = self.choosing.chooser
        work = chooser.work(waiting.trial.params)
        most = chooser.paces.most_timed(DeviceKind.CPU)
        return work is None or work.step_flops <= MOST_BEYOND * most


@dataclass
class _Timing:
    """Steps of an execution, from the first that was seen."""

    n_steps: int | None = None
    at_seconds: float = 0.0
    has_begun: bool = False
    n_passes: float = 0.0
    """Of all lanes of a pack at once, each of which counts its steps."""
    seconds: float = 0.0

    def take(self, n_steps: int, n_lanes: int, now_seconds: float) -> None:
        if self.n_steps is not None and n_steps > self.n_steps:
            if self.has_begun:
                self.n_passes += (n_steps - self.n_steps) / n_lanes
                self.seconds += now_seconds - self.at_seconds
            self.has_begun = True
        elif self.has_begun:
            return  # a step that takes longer than a reading: its time counts when it ends
        self.n_steps, self.at_seconds = n_steps, now_seconds

    @property
    def step_seconds(self) -> float | None:
        """None: not known yet."""
        if self.seconds < WINDOW_SECONDS or self.n_passes < WINDOW_STEPS:
            return None
        return self.seconds / self.n_passes


def _is_closed(refusal: Refusal) -> bool:
    """Whether it does not start there however long it waits."""
    return refusal.kind is RefusalKind.NEVER or refusal.kind in AWAY


def learn_pace(chooser: Chooser, trial: TrialRecord, n_reports: int | None) -> None:
    """Take what a trial of an earlier sweep took where it ran last. `n_reports`: of a whole trial,
    where it is known. Of those in packs the record does not tell how many there were at a time."""
    work, outcome = chooser.work(trial.params), trial.outcome
    if trial.kind is None or any(n_lanes > 1 for n_lanes in trial.peaks):
        return
    if work is not None and n_reports and trial.report_seconds is not None:
        seconds = trial.report_seconds * n_reports / work.n_steps
        chooser.paces.add(trial.number, trial.kind, work.step_flops, seconds)
    elif work is None and isinstance(outcome, Finished) and trial.n_starts == 1:
        chooser.paces.finished(trial.number, trial.kind, outcome.time - trial.started)
