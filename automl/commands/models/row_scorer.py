"""Decides which device computes the scores of `predict`: the CPU, or a GPU where that is faster.

This cannot be known in advance: a small table is scored in the seconds that a GPU takes to start,
and reading the rows limits a small network on any device. The first rows are therefore scored on
the CPU. If the others would take longer than the start of a GPU, the next rows are scored on it,
and the faster device scores the rest. If the GPU fails, the CPU goes on, with a message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from automl.config import DevicesConfig, DevicesKind
from automl.devices.device_reading import DeviceSnapshot
from automl.devices.device_selection import is_same_device
from automl.errors import AutoMLError
from automl.in_trial.reports.outcomes import is_out_of_memory
from automl.record.texts import fit_line

if TYPE_CHECKING:
    from automl.data.scoring.metrics import Floats
    from automl.data.tables.chunked_table import TableChunk
    from automl.data.tables.frames import Frame
    from automl.models.predictor import Predictor

    ScoreFunction: TypeAlias = Callable[[Any], Floats]
    """Scores rows: (N, C) probabilities, or (N,) values."""
    ReadFunction: TypeAlias = Callable[[Frame], Any]
    """Makes of raw rows what is scored."""

GPU_START_SECONDS = 5.0
"""Seconds that a GPU may take before it computes anything: CUDA's context, its kernels."""
NEEDED_FREE_BYTES = 2**30
"""Free memory in bytes that a GPU needs: for the context, a network, some thousand rows."""
N_WARM_UP = 256
FAILURES = (RuntimeError, AutoMLError)
"""The errors that torch raises for a GPU that is broken, busy or full, and for a network that
cannot compute there."""


@dataclass(frozen=True)
class ScoringPace:
    """The speed at which a device scored some rows."""

    n_rows: int
    seconds: float

    def is_faster_than(self, other: ScoringPace) -> bool:
        return self.n_rows * other.seconds > other.n_rows * self.seconds


def is_worth_gpu_start(seconds: float, share: float) -> bool:
    """Return whether the rest of the table takes longer than a GPU takes to start, where `share` of
    the table, 0 to 1, took these seconds."""
    return share > 0 and seconds * (1 - share) / share > GPU_START_SECONDS


class RowScorer:
    """Scores chunks of a table; if it may choose, the first chunks on several devices to compare
    them."""

    def __init__(
        self,
        score: ScoreFunction,
        score_on: Callable[[str], ScoreFunction],
        find_gpu: Callable[[], str | None] | None,
        *,
        now: Callable[[], float],
        say: Callable[[str], None],
        read: ReadFunction | None = None,
    ) -> None:
        """Take the functions that score: `score` on the CPU, and `score_on`, which returns one for
        a GPU. `find_gpu` returns a GPU with free memory, or None; without `find_gpu` there is no
        choice. `read` is called once for each chunk; None: raw rows are scored."""
        self._score_on_cpu, self._score_on, self._find_gpu = score, score_on, find_gpu
        self._now, self._say, self._read = now, say, read
        self._cpu_pace: ScoringPace | None = None
        self._chosen_gpu: tuple[str, ScoreFunction] | None = None
        """The GPU that scores all further chunks, with its function."""

    def __call__(self, chunk: TableChunk) -> Floats | None:
        """Return the scores of the chunk's rows; None if no row can be read."""
        if not len(chunk.frame):
            return None
        rows = chunk.frame if self._read is None else self._read(chunk.frame)
        if self._chosen_gpu is not None:
            return self._rest(rows, *self._chosen_gpu)
        if self._find_gpu is None:
            return self._score_on_cpu(rows)
        if self._cpu_pace is None:
            return self._first(rows, chunk.share)
        return self._second(rows, self._find_gpu, self._cpu_pace)

    def _first(self, rows: Any, share: float) -> Floats:
        scores, pace = self._timed(self._score_on_cpu, rows)
        if is_worth_gpu_start(pace.seconds, share):
            self._cpu_pace = pace
        else:
            self._find_gpu = None
        return scores

    def _second(
        self, rows: Any, find_gpu: Callable[[], str | None], cpu_pace: ScoringPace
    ) -> Floats:
        self._find_gpu, gpu = None, None
        try:
            gpu = find_gpu()
            if gpu is None:
                return self._score_on_cpu(rows)
            score = self._score_on(gpu)
            score(rows[:N_WARM_UP])
            scores, pace = self._timed(score, rows)
        except FAILURES as error:
            return self._without(gpu or "the GPU", error, rows)
        if pace.is_faster_than(cpu_pace):
            self._chosen_gpu = gpu, score
            times = pace.n_rows / pace.seconds / (cpu_pace.n_rows / cpu_pace.seconds)
            self._say(f"on {gpu}, {times:.1f} times as fast as on the CPU")
        else:
            self._say(f"on the CPU, which is faster than {gpu}")
        return scores

    def _rest(self, rows: Any, gpu: str, score: ScoreFunction) -> Floats:
        try:
            return score(rows)
        except FAILURES as error:
            self._chosen_gpu = None
            return self._without(gpu, error, rows)

    def _without(self, gpu: str, error: Exception, rows: Any) -> Floats:
        """Score the rows on the CPU, as all later ones; the CPU's model is unchanged. An error of
        the rows themselves is raised there again."""
        first, *_ = str(error).splitlines() or [type(error).__name__]
        full = is_out_of_memory(error)
        self._say(f"on the CPU: {gpu} {'has no room' if full else f'failed: {fit_line(first)}'}")
        return self._score_on_cpu(rows)

    def _timed(self, score: ScoreFunction, rows: Any) -> tuple[Floats, ScoringPace]:
        began = self._now()
        scores = score(rows)
        return scores, ScoringPace(len(rows), max(self._now() - began, 1e-9))


def make_scorer(
    predictor: Predictor,
    devices: DevicesConfig,
    *,
    now: Callable[[], float],
    say: Callable[[str], None],
    read: ReadFunction,
) -> RowScorer:
    """Return the scorer of a model, on the CPU or on a GPU that `devices` may use. `read` encodes
    raw rows."""
    takes_gpu = predictor.has_network and devices.kind is not DevicesKind.host
    find = (lambda: roomiest_gpu(devices)) if takes_gpu else None

    def on(gpu: str) -> ScoreFunction:
        return predictor.copied_to(gpu).scores

    return RowScorer(predictor.scores, on, find, now=now, say=say, read=read)


def roomiest_gpu(devices: DevicesConfig) -> str | None:
    """Return the GPU, as torch names it, with the most free memory of those that trials may use;
    None if none has enough, or none can be read."""
    from automl.models.cuda_uuids import cuda_uuids

    uuids = cuda_uuids()
    if not uuids:
        return None
    from automl.devices.device_reader import open_device_reader

    try:
        reader = open_device_reader(devices)
    except AutoMLError:  # the CPU can score everything
        return None
    try:
        return roomiest_device(reader.read(), uuids)
    finally:
        reader.close()


def roomiest_device(devices: Sequence[DeviceSnapshot], uuids: Sequence[str]) -> str | None:
    """Return the GPU with the most free memory among the readings, as torch names it; `uuids` are
    the GPUs in torch's order."""
    numbers = {
        device.address: number
        for device in devices
        for number, uuid in enumerate(uuids)
        if not device.address.on_host and is_same_device(uuid, device.address.uuid)
    }
    candidates = [
        device
        for device in devices
        if device.address in numbers
        and device.fault is None
        and device.free_bytes >= NEEDED_FREE_BYTES
        and (device.max_processes is None or len(device.processes) < device.max_processes)
    ]
    if not candidates:
        return None
    best = max(candidates, key=lambda device: device.free_bytes)
    return f"cuda:{numbers[best.address]}"
