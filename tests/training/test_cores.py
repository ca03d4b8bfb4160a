"""Threads of torch are lent, and come back however it ends."""

from __future__ import annotations

import pytest
import torch

from automl.training.cores import computing_with, leaving_a_core


def raise_within() -> None:
    with computing_with(1):
        raise ValueError("no")


def test_threads_come_back_as_they_were() -> None:
    with computing_with(3):
        assert torch.get_num_threads() == 3
        with leaving_a_core():
            assert torch.get_num_threads() == 2
        with pytest.raises(ValueError, match=r"^no$"):
            raise_within()
        assert torch.get_num_threads() == 3
    with computing_with(1), leaving_a_core():
        assert torch.get_num_threads() == 1
