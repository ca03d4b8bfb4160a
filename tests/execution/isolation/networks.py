"""A network of the user's whose function changes the process."""

from __future__ import annotations

import multiprocessing
import os
import threading

from torch import nn

HERE = __name__
if multiprocessing.parent_process() is not None:
    os.environ["AUTOML_TEST_MODULE"] = "module"


def build(n_inputs: int, n_outputs: int, act: str = "nothing") -> nn.Module:
    said = [os.environ.get(f"AUTOML_TEST_{name}", "clean") for name in ("LEFT", "MODULE")]
    print(*said, flush=True)  # noqa: T201  read from its log
    os.environ["AUTOML_TEST_LEFT"] = "left"
    if act == "leave_thread":
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    return nn.Sequential(nn.Linear(n_inputs, 4), nn.Tanh(), nn.Linear(4, n_outputs))
