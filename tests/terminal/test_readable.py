"""Values as people read them."""

from __future__ import annotations

import pytest

from automl.record.texts import duration_text
from automl.terminal.console import params_text, short_device_name


@pytest.mark.parametrize(
    ("seconds", "expected"), [(-1, "0 s"), (59.4, "59 s"), (60, "1:00"), (3723, "1:02:03")]
)
def test_clock(seconds: float, expected: str) -> None:
    assert duration_text(seconds) == expected


@pytest.mark.parametrize("maker", ["NVIDIA ", "NVIDIA GeForce "])
def test_a_gpu_is_told_from_the_others_of_the_machine_by_few_letters(maker: str) -> None:
    uuid = "GPU-8f3a12b4-0000-1111-2222-333344445555"
    assert short_device_name(f"{maker}RTX 4090 {uuid}") == "RTX 4090 GPU-8f3a12b4"


def test_the_params_of_one_of_several_families_are_named_as_it_names_them() -> None:
    assert (
        params_text({"family": "mlp", "mlp_lr": 0.012, "mlp_depth": 3}) == "mlp: lr 0.012, depth 3"
    )
    assert params_text({"family": "mlp", "lr": 0.012}) == "family mlp, lr 0.012"
    assert params_text({"family": "a", "a_b": 1, "c": 2}) == "family a, a_b 1, c 2"
    assert params_text({"lr": 0.5}) == "lr 0.5"
