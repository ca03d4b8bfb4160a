"""Where `predict` computes: a GPU is started where that can pay, and keeps what it is faster at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from automl.commands.models.row_scorer import (
    NEEDED_FREE_BYTES,
    RowScorer,
    ScoringPace,
    is_worth_gpu_start,
    roomiest_device,
)
from automl.data.tables.chunked_table import TableChunk
from automl.devices.device_reading import DeviceSnapshot
from automl.errors import AutoMLError
from automl.trial import LOCAL_HOST, DeviceId

N_ROWS = 1000


class Machine:
    """A model that takes its time on each device, by a clock of its own."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self.seconds, self.now, self.said = seconds, 0.0, list[str]()
        self.scored: list[tuple[str, int]] = []
        self.fails: dict[int, Exception] = {}
        """What a GPU raises, by how many times it was asked before."""

    def on(self, device: str) -> Callable[[Any], Any]:
        def score(frame: Any) -> Any:
            n_before = sum(name != "cpu" for name, _ in self.scored)
            self.scored.append((device, len(frame)))
            if device != "cpu" and n_before in self.fails:
                raise self.fails[n_before]
            self.now += self.seconds[device] * len(frame) / N_ROWS
            return np.zeros(len(frame))

        return score

    def scorer(self, find_gpu: Callable[[], str | None] | None) -> RowScorer:
        return RowScorer(
            self.on("cpu"), self.on, find_gpu, now=lambda: self.now, say=self.said.append
        )


def chunk(share: float, n_rows: int = N_ROWS) -> TableChunk:
    frame = pd.DataFrame({"a": np.arange(n_rows)})
    return TableChunk(n_rows, frame, np.arange(n_rows), (), share)


def run(machine: Machine, find_gpu: Callable[[], str | None] | None, shares: list[float]) -> None:
    by = machine.scorer(find_gpu)
    for share in shares:
        scores = by(chunk(share))
        assert scores is not None
        assert len(scores) == N_ROWS


def test_a_gpu_that_is_faster_has_the_rest() -> None:
    machine = Machine({"cpu": 2.0, "cuda:0": 0.5})
    run(machine, lambda: "cuda:0", [0.1, 0.2, 0.3, 1.0])
    whole = [device for device, n_rows in machine.scored if n_rows == N_ROWS]
    assert whole == ["cpu", "cuda:0", "cuda:0", "cuda:0"]
    assert machine.scored[1] == ("cuda:0", 256), "its start is not its pace"
    assert machine.said == ["on cuda:0, 4.0 times as fast as on the CPU"]


def test_a_gpu_that_is_slower_is_left_again() -> None:
    machine = Machine({"cpu": 2.0, "cuda:0": 2.1})
    run(machine, lambda: "cuda:0", [0.1, 0.2, 0.3])
    assert machine.scored[-1] == ("cpu", N_ROWS)
    assert machine.said == ["on the CPU, which is faster than cuda:0"]


def test_a_small_table_starts_none() -> None:
    machine = Machine({"cpu": 2.0})

    def find() -> str:
        raise AssertionError("looking for one starts CUDA")

    run(machine, find, [0.5, 1.0])
    assert machine.said == []


BROKEN = RuntimeError("CUDA error: uncorrectable ECC error\nCompile with TORCH_USE_CUDA_DSA")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "has no room"),
        (BROKEN, "failed: CUDA error: uncorrectable ECC error"),
        (AutoMLError("to('cuda:0'): torch cannot compute there"), "failed: to('cuda:0'): torch"),
    ],
)
@pytest.mark.parametrize("n_before", [0, 1, 2])
def test_a_gpu_that_fails_at_any_time_is_left_for_the_cpu(
    error: Exception, said: str, n_before: int
) -> None:
    machine = Machine({"cpu": 2.0, "cuda:0": 0.5})
    machine.fails = {n_before: error}
    run(machine, lambda: "cuda:0", [0.1, 0.2, 0.3, 1.0])
    assert machine.said[-1].startswith(f"on the CPU: cuda:0 {said}")
    assert "TORCH_USE" not in machine.said[-1]
    n_on_gpu = sum(device != "cpu" for device, _ in machine.scored)
    assert n_on_gpu == n_before + 1, "it is not asked again"


def test_a_gpu_that_cannot_be_asked_for_is_left() -> None:
    machine = Machine({"cpu": 2.0})

    def find() -> str:
        raise RuntimeError("CUDA driver initialization failed")

    run(machine, find, [0.1, 0.2, 0.3])
    assert machine.said == ["on the CPU: the GPU failed: CUDA driver initialization failed"]


def test_what_fails_on_the_cpu_too_is_raised() -> None:
    machine = Machine({"cpu": 2.0, "cuda:0": 0.5})
    by = machine.scorer(lambda: "cuda:0")
    by(chunk(0.1))
    machine.fails = {0: KeyError("a column")}
    with pytest.raises(KeyError, match="a column"):
        by(chunk(0.2))


@pytest.mark.parametrize("find", [None, lambda: None])
def test_where_nothing_is_to_choose_nothing_is_said(find: Callable[[], None] | None) -> None:
    machine = Machine({"cpu": 2.0})
    run(machine, find, [0.01, 0.02, 0.03])
    assert machine.scored == [("cpu", N_ROWS)] * 3
    assert machine.said == []


def test_rows_that_cannot_be_read_tell_no_pace() -> None:
    machine = Machine({"cpu": 2.0, "cuda:0": 0.5})
    by = machine.scorer(lambda: "cuda:0")
    assert by(chunk(0.1, 0)) is None
    assert by(chunk(0.2)) is not None
    assert machine.scored == [("cpu", N_ROWS)]


def test_a_start_is_worth_what_is_left() -> None:
    assert is_worth_gpu_start(1.0, 0.1)
    assert not is_worth_gpu_start(1.0, 0.5)
    assert not is_worth_gpu_start(100.0, 1.0)
    assert ScoringPace(10, 1.0).is_faster_than(ScoringPace(5, 1.0))
    assert not ScoringPace(10, 2.0).is_faster_than(ScoringPace(5, 1.0))


def gpu(uuid: str, free_bytes: int, **more: Any) -> DeviceSnapshot:
    return DeviceSnapshot(DeviceId("here", uuid), uuid, 2**40, free_bytes, **more)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([gpu("GPU-a", 2 * NEEDED_FREE_BYTES), gpu("GPU-b", 3 * NEEDED_FREE_BYTES)], "cuda:0"),
        ([gpu("GPU-a", 2 * NEEDED_FREE_BYTES), gpu("GPU-b", NEEDED_FREE_BYTES - 1)], "cuda:1"),
        ([gpu("GPU-b", 3 * NEEDED_FREE_BYTES, fault="it is lost")], None),
        ([gpu("GPU-b", 3 * NEEDED_FREE_BYTES, max_processes=0)], None),
        ([gpu("GPU-c", 3 * NEEDED_FREE_BYTES)], None),
        ([DeviceSnapshot(LOCAL_HOST, "host", 2**40, 2**39)], None),
    ],
)
def test_the_gpu_with_the_most_room(found: list[DeviceSnapshot], said: str | None) -> None:
    """As torch counts, which is not as NVML does."""
    assert roomiest_device(found, ["GPU-b", "GPU-a"]) == said
