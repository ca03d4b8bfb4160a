"""Where `predict` computes: a GPU is started where that can pay, and keeps what it is faster at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from automl.commands.scorer import FREE_BYTES, Pace, Scorer, roomiest, worth_a_start
from automl.data.chunks import Chunk
from automl.devices.device import DeviceSnapshot
from automl.trial import HOST, DeviceId

N_ROWS = 1000


class Machine:
    """A model that takes its time on each device, by a clock of its own."""

    def __init__(self, seconds: dict[str, float], *, room: bool = True) -> None:
        self.seconds, self.room = seconds, room
        self.device, self.now, self.said = "cpu", 0.0, list[str]()
        self.scored: list[tuple[str, int]] = []

    def score(self, frame: Any) -> Any:
        if self.device != "cpu" and not self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.now += self.seconds[self.device] * len(frame) / N_ROWS
        self.scored.append((self.device, len(frame)))
        return np.zeros(len(frame))

    def move(self, device: str) -> None:
        self.device = device

    def scorer(self, find_gpu: Callable[[], str | None] | None) -> Scorer:
        return Scorer(self.score, self.move, find_gpu, now=lambda: self.now, say=self.said.append)


def chunk(share: float, n_rows: int = N_ROWS) -> Chunk:
    frame = pd.DataFrame({"a": np.arange(n_rows)})
    return Chunk(n_rows, frame, np.arange(n_rows), (), share)


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


def test_without_room_it_goes_on_on_the_cpu() -> None:
    machine = Machine({"cpu": 2.0, "cuda:0": 0.5}, room=False)
    run(machine, lambda: "cuda:0", [0.1, 0.2, 0.3])
    assert {device for device, _ in machine.scored} == {"cpu"}
    assert machine.said == ["on the CPU: cuda:0 has no room for the model"]


def test_another_error_is_not_taken_for_it() -> None:
    machine = Machine({"cpu": 2.0})
    machine.move = lambda device: torch.zeros(2).view(3)  # type: ignore[method-assign,assignment]
    with pytest.raises(RuntimeError, match="invalid for input"):
        run(machine, lambda: "cuda:0", [0.1, 0.2])


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
    assert machine.device == "cpu"


def test_a_start_is_worth_what_is_left() -> None:
    assert worth_a_start(1.0, 0.1)
    assert not worth_a_start(1.0, 0.5)
    assert not worth_a_start(100.0, 1.0)
    assert Pace(10, 1.0).is_faster_than(Pace(5, 1.0))
    assert not Pace(10, 2.0).is_faster_than(Pace(5, 1.0))


def gpu(uuid: str, free_bytes: int, **more: Any) -> DeviceSnapshot:
    return DeviceSnapshot(DeviceId("here", uuid), uuid, 2**40, free_bytes, **more)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([gpu("GPU-a", 2 * FREE_BYTES), gpu("GPU-b", 3 * FREE_BYTES)], "cuda:0"),
        ([gpu("GPU-a", 2 * FREE_BYTES), gpu("GPU-b", FREE_BYTES - 1)], "cuda:1"),
        ([gpu("GPU-b", 3 * FREE_BYTES, fault="it is lost")], None),
        ([gpu("GPU-b", 3 * FREE_BYTES, max_processes=0)], None),
        ([gpu("GPU-c", 3 * FREE_BYTES)], None),
        ([DeviceSnapshot(HOST, "host", 2**40, 2**39)], None),
    ],
)
def test_the_gpu_with_the_most_room(found: list[DeviceSnapshot], said: str | None) -> None:
    """As torch counts, which is not as NVML does."""
    assert roomiest(found, ["GPU-b", "GPU-a"]) == said
