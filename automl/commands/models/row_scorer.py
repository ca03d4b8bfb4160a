"""Which device computes the scores of `predict`: the CPU, or a GPU where that is faster.

Nobody knows it before: to start a GPU takes seconds, which a small table is scored in, and a small
network waits for its rows wherever it is. So the first rows are scored on the CPU; where the others
would take longer than the start of a GPU, the next ones are scored on it, and whichever was faster
has the rest. A GPU that fails is left, with a word, for the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from automl.config import DevicesConfig
from automl.devices.device_reading import DeviceSnapshot
from automl.devices.device_selection import same_device
from automl.errors import AutoMLError, ConfigError
from automl.objectives.outcomes import is_out_of_memory
from automl.record.texts import fit_line

if TYPE_CHECKING:
    from automl.data.scoring.metrics import Floats
    from automl.data.tables.chunked_table import TableChunk
    from automl.data.tables.frames import Frame
    from automl.models.predictor import Predictor

    Said: TypeAlias = Callable[[Frame], Floats]
    """(N, C) probabilities, or (N,) values, of raw rows."""

CPU, AUTO = "cpu", "auto"
GPU_START_SECONDS = 5.0
"""What a GPU may take before it computes anything: CUDA's context, its kernels."""
FREE_BYTES = 2**30
"""Of a GPU's memory, that it takes: the context, a network, some thousand rows."""
N_WARM_UP = 256
FAILURES = (RuntimeError, AutoMLError)
"""What torch raises of a GPU that is broken, busy or has no room, and of a network that cannot
compute there."""


@dataclass(frozen=True)
class ScoringPace:
    """How fast rows were scored."""

    n_rows: int
    seconds: float

    def is_faster_than(self, other: ScoringPace) -> bool:
        return self.n_rows * other.seconds > other.n_rows * self.seconds


def worth_a_start(seconds: float, share: float) -> bool:
    """Whether what is left takes longer than a GPU takes to start, where `share` of the table, 0 to
    1, took these seconds."""
    return share > 0 and seconds * (1 - share) / share > GPU_START_SECONDS


class RowScorer:
    """Scores chunks of a table, the first ones on several devices where it may choose."""

    def __init__(
        self,
        said: Said,
        on: Callable[[str], Said],
        find_gpu: Callable[[], str | None] | None,
        *,
        now: Callable[[], float],
        say: Callable[[str], None],
    ) -> None:
        """`said` scores on the CPU, `on` gives what does on a GPU. `find_gpu` names one with room,
        or none; None: there is nothing to choose."""
        self._said, self._on, self._find_gpu = said, on, find_gpu
        self._now, self._say = now, say
        self._on_cpu: ScoringPace | None = None
        self._gpu: tuple[str, Said] | None = None
        """The one that has the rest."""

    def __call__(self, chunk: TableChunk) -> Floats | None:
        """The scores of its rows; None: it has none that can be read."""
        if not len(chunk.frame):
            return None
        if self._gpu is not None:
            return self._rest(chunk, *self._gpu)
        if self._find_gpu is None:
            return self._said(chunk.frame)
        if self._on_cpu is None:
            return self._first(chunk, self._find_gpu)
        return self._second(chunk, self._find_gpu, self._on_cpu)

    def _first(self, chunk: TableChunk, find_gpu: Callable[[], str | None]) -> Floats:
        scores, pace = self._timed(self._said, chunk)
        if worth_a_start(pace.seconds, chunk.share):
            self._on_cpu = pace
        else:
            self._find_gpu = None
        return scores

    def _second(
        self, chunk: TableChunk, find_gpu: Callable[[], str | None], on_cpu: ScoringPace
    ) -> Floats:
        self._find_gpu, gpu = None, None
        try:
            gpu = find_gpu()
            if gpu is None:
                return self._said(chunk.frame)
            said = self._on(gpu)
            said(chunk.frame.head(N_WARM_UP))
            scores, pace = self._timed(said, chunk)
        except FAILURES as error:
            return self._without(gpu or "the GPU", error, chunk)
        if pace.is_faster_than(on_cpu):
            self._gpu = gpu, said
            times = pace.n_rows / pace.seconds / (on_cpu.n_rows / on_cpu.seconds)
            self._say(f"on {gpu}, {times:.1f} times as fast as on the CPU")
        else:
            self._say(f"on the CPU, which is faster than {gpu}")
        return scores

    def _rest(self, chunk: TableChunk, gpu: str, said: Said) -> Floats:
        try:
            return said(chunk.frame)
        except FAILURES as error:
            self._gpu = None
            return self._without(gpu, error, chunk)

    def _without(self, gpu: str, error: Exception, chunk: TableChunk) -> Floats:
        """On the CPU from now on, whose model stands as it was; what is wrong there too is raised
        there."""
        first, *_ = str(error).splitlines() or [type(error).__name__]
        full = is_out_of_memory(error)
        self._say(f"on the CPU: {gpu} {'has no room' if full else f'failed: {fit_line(first)}'}")
        return self._said(chunk.frame)

    def _timed(self, said: Said, chunk: TableChunk) -> tuple[Floats, ScoringPace]:
        began = self._now()
        scores = said(chunk.frame)
        return scores, ScoringPace(len(chunk.frame), max(self._now() - began, 1e-9))


def make_scorer(
    predictor: Predictor,
    device: str,
    devices: DevicesConfig,
    *,
    now: Callable[[], float],
    say: Callable[[str], None],
) -> RowScorer:
    """That of a model, by `predict.device`. Raises ConfigError for a device that is not there."""
    if device == AUTO:
        find = (lambda: roomiest_gpu(devices)) if predictor.has_network else None

        def on(gpu: str) -> Said:
            return _said_by(predictor.copied_to(gpu))

        return RowScorer(_said_by(predictor), on, find, now=now, say=say)
    if device != CPU:
        _refuse_absent(predictor, device)
    said = _said_by(predictor.to(device))
    return RowScorer(said, lambda _: said, None, now=now, say=say)


def _said_by(predictor: Predictor) -> Said:
    return predictor.predict_probabilities if predictor.classes else predictor.predict


def roomiest_gpu(devices: DevicesConfig) -> str | None:
    """The GPU, as torch names it, with the most memory free, of those that trials may use; None:
    there is none with room, or none can be read."""
    from automl.models.cuda_uuids import cuda_uuids

    uuids = cuda_uuids()
    if not uuids:
        return None
    from automl.devices.device_reader import open_reader

    try:
        reader = open_reader(devices)
    except AutoMLError:  # it can be done without one
        return None
    try:
        return roomiest_device(reader.read(), uuids)
    finally:
        reader.close()


def roomiest_device(found: Sequence[DeviceSnapshot], uuids: Sequence[str]) -> str | None:
    """Likewise, of what was read; `uuids` are the GPUs in the order in which torch counts."""
    numbers = {
        one.address: number
        for one in found
        for number, uuid in enumerate(uuids)
        if not one.address.on_host and same_device(uuid, one.address.uuid)
    }
    takes = [
        one
        for one in found
        if one.address in numbers
        and one.fault is None
        and one.free_bytes >= FREE_BYTES
        and (one.max_processes is None or len(one.processes) < one.max_processes)
    ]
    if not takes:
        return None
    best = max(takes, key=lambda one: one.free_bytes)
    return f"cuda:{numbers[best.address]}"


def _refuse_absent(predictor: Predictor, device: str) -> None:
    key = f"predict.device={device}"
    if not predictor.has_network:
        raise ConfigError(f"{key}: the model is no network, and computes on the CPU: leave it out.")
    from automl.models.cuda_uuids import cuda_uuids

    n_gpus = len(cuda_uuids())
    number = int(device.partition(":")[2] or 0)
    if number >= n_gpus:
        there = f"cuda:0 to cuda:{n_gpus - 1}" if n_gpus else "no GPU"
        raise ConfigError(f"{key}: torch sees {there} here: leave it out, or take another.")
