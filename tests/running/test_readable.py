"""Values as people read them."""

from __future__ import annotations

import pytest

from automl.running.readable import clock, short_device


@pytest.mark.parametrize(
    ("seconds", "expected"), [(-1, "0 s"), (59.4, "59 s"), (60, "1:00"), (3723, "1:02:03")]
)
def test_clock(seconds: float, expected: str) -> None:
    assert clock(seconds) == expected


@pytest.mark.parametrize("maker", ["NVIDIA ", "NVIDIA GeForce "])
def test_a_gpu_is_told_from_the_others_of_the_machine_by_few_letters(maker: str) -> None:
    uuid = "GPU-8f3a12b4-0000-1111-2222-333344445555"
    assert short_device(f"{maker}RTX 4090 {uuid}") == "RTX 4090 GPU-8f3a12b4"
