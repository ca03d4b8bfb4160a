"""A network of the user's whose function changes the process."""

from __future__ import annotations

import os

import torch
from torch import nn

HERE = __name__


def build(n_inputs: int, n_outputs: int, act: str = "nothing") -> nn.Module:
    print(os.environ.get("AUTOML_TEST_LEFT", "clean"), flush=True)  # noqa: T201  read from its log
    os.environ["AUTOML_TEST_LEFT"] = "left"
    if act == "replace_function":
        torch.nn.functional.relu = torch.nn.functional.gelu  # type: ignore[assignment]
    return nn.Sequential(nn.Linear(n_inputs, 4), nn.Tanh(), nn.Linear(4, n_outputs))
