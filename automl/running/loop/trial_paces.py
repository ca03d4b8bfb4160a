"""Knows how long trials take on each kind of device, for a sweep that has the CPU and GPUs.

The work of the built-in network is arithmetic. The seconds of a step come from probes of the CPU
(`cpu_probe.py`), from running trials, and from the record of earlier sweeps of the study.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from automl.admission.training_pace import TrainingPaces
from automl.record.study_record import StudyRecord
from automl.running.loop.messages import CpuProbed, WaitingTrial
from automl.trial import DeviceKind, FinishedOutcome, Params, TrainingWork

WINDOW_SECONDS = 1.0
WINDOW_STEPS = 5
"""Steps of a running trial tell its pace once they took `WINDOW_SECONDS` and are at least this
many."""
Note = Callable[[DeviceKind, float, float, "int | None"], None]
"""Records a pace: kind of device, operations and seconds of a step, and the number of the
execution's first trial (None for a probe)."""


def _forget(kind: DeviceKind, flops: float, seconds: float, execution: int | None) -> None:
    """Discard the pace of a sweep that has no record."""


@dataclass
class DevicePaceModel:
    """Predicts the duration of trials in a sweep that has several kinds of device. For the main
    thread."""

    work: Callable[[Params], TrainingWork | None]
    """Returns the work of a whole trial with these params, or None if it is unknown."""
    kinds: frozenset[DeviceKind]
    """Kinds of device that the sweep has, whether or not they answer now."""
    unknown_work_to_cpu: bool = False
    """Whether trials of unknown work may go to the CPU, too."""
    likely: Sequence[TrainingWork] = ()
    """Work of trials drawn from the space before any trial is asked for."""
    paces: TrainingPaces = field(default_factory=TrainingPaces)
    note: Note = _forget
    is_probing: bool = False
    """The CPU is being timed. Until the end no trial goes there that may go to a GPU."""
    _n_probed: int = 0

    @property
    def is_probed(self) -> bool:
        """Whether the CPU was timed, in this sweep or before."""
        return self._n_probed > 0

    def seconds(self, waiting: WaitingTrial, kind: DeviceKind) -> float | None:
        """Return the seconds that the trial will take on this kind of device, or None if
        unknown."""
        return self.paces.seconds(self.work(waiting.trial.params), kind)

    def kinds_of(self, waiting: WaitingTrial) -> list[DeviceKind]:
        """Return the kinds on which the trial may run, GPUs first."""
        if waiting.kind is not None:
            return [waiting.kind]
        kinds = sorted(self.kinds, key=lambda kind: kind is DeviceKind.CPU)
        if self.unknown_work_to_cpu or self.work(waiting.trial.params) is not None:
            return kinds
        return [kind for kind in kinds if kind is not DeviceKind.CPU] or kinds

    def probed(self, found: CpuProbed) -> None:
        """Take the timing of the CPU. Trials may go there from now on."""
        self.is_probing = False
        for params, step_seconds in found.steps:
            if (work := self.work(params)) is not None:
                self._take_probe(DeviceKind.CPU, work.step_flops, step_seconds)
                self.note(DeviceKind.CPU, work.step_flops, step_seconds, None)

    def timed(
        self, execution: int, kind: DeviceKind, step_flops: float, step_seconds: float
    ) -> None:
        """Take the seconds of a step of an execution, as measured so far."""
        self.paces.add(execution, kind, step_flops, step_seconds)

    def learn(self, record: StudyRecord) -> None:
        """Take what earlier sweeps of the study found."""
        for found in record.paces:
            if found.execution is None:
                self._take_probe(found.kind, found.step_flops, found.step_seconds)
            else:
                self.timed(found.execution, found.kind, found.step_flops, found.step_seconds)
        for trial in record.trials.values():
            whole = isinstance(trial.outcome, FinishedOutcome) and trial.n_starts == 1
            # Trials of a pack share its time.
            packed = any(n_lanes > 1 for n_lanes in trial.peaks)
            if trial.kind is not None and whole and not packed:
                self.paces.finished(trial.number, trial.kind, trial.seconds)

    def _take_probe(self, kind: DeviceKind, step_flops: float, step_seconds: float) -> None:
        self._n_probed += 1
        self.paces.add(-self._n_probed, kind, step_flops, step_seconds)


@dataclass
class ExecutionTiming:
    """Times the steps of an execution from the first one that was seen."""

    n_steps: int | None = None
    at_seconds: float = 0.0
    has_begun: bool = False
    n_passes: float = 0.0
    """Number of steps, each counted once for all lanes of a pack. Each lane counts its own
    steps."""
    seconds: float = 0.0
    n_noted: float | None = None
    """Number of passes seen when the pace was last noted. None if it never was."""

    def take(self, n_steps: int, n_lanes: int, now_seconds: float) -> None:
        """Take the total of steps as of now."""
        if self.n_steps is not None and n_steps > self.n_steps:
            if self.has_begun:
                self.n_passes += (n_steps - self.n_steps) / n_lanes
                self.seconds += now_seconds - self.at_seconds
            self.has_begun = True
        elif self.has_begun:
            return  # a step may take longer than a reading: its time counts when it ends
        self.n_steps, self.at_seconds = n_steps, now_seconds

    @property
    def step_seconds(self) -> float | None:
        """Seconds of a step, or None while they are unknown."""
        if self.seconds < WINDOW_SECONDS or self.n_passes < WINDOW_STEPS:
            return None
        return self.seconds / self.n_passes

    @property
    def is_due(self) -> bool:
        """Whether twice as much is known as was noted. If the trial is killed, at most half of it
        is lost."""
        return self.n_noted is None or self.n_passes >= 2 * max(self.n_noted, WINDOW_STEPS / 2)
