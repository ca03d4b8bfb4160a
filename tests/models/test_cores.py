"""Threads of torch are lent, and come back however it ends."""

from __future__ import annotations

import pytest
import torch

from automl.models.mean_model import leave_one_core, use_threads


def raise_within() -> None:
    with use_threads(1):
        raise ValueError("no")


def test_threads_come_back_as_they_were() -> None:
    with use_threads(3):
        assert torch.get_num_threads() == 3
        with leave_one_core():
            assert torch.get_num_threads() == 2
        with pytest.raises(ValueError, match=r"^no$"):
            raise_within()
        assert torch.get_num_threads() == 3
    with use_threads(1), leave_one_core():
        assert torch.get_num_threads() == 1
