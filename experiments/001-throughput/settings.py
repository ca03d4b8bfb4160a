"""The three things that are trained in this experiment, and the arguments that name them.

Their counterparts for automl are the files of the same names in `conf/`: change both.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from space import Data, Space, disc

_LOSSES = ("train_loss", "val_loss")
_SMALL = Space(depth=(2, 6), width=(8, 64), lr=(1e-3, 0.5), batch_sizes=(50, 100, 200))
_ONE_SHAPE = Space(depth=(3, 3), width=(568, 568), lr=(1e-3, 0.5), batch_sizes=(256,))


@dataclass(frozen=True)
class Setting:
    """A space, how long a trial trains in it, and what is recorded of every epoch."""

    space: Space
    n_epochs: int
    recorded: tuple[str, ...] = _LOSSES

    def record(self, metrics: Mapping[str, float]) -> dict[str, float]:
        return {name: metrics[name] for name in self.recorded}


SETTINGS = {
    "disc": Setting(_SMALL, n_epochs=20),
    "real_work": Setting(_ONE_SHAPE, n_epochs=10),
    "error_over_time": Setting(_SMALL, n_epochs=5, recorded=(*_LOSSES, "val_error")),
}


def parser(description: str | None) -> argparse.ArgumentParser:
    """The arguments that the bare loops and both peers share."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--trials", type=int, default=256)
    made.add_argument("--setting", choices=SETTINGS, default="disc")
    made.add_argument("--table", help="file that adult.py wrote (settings other than disc)")
    made.add_argument("--seed", type=int, default=0)
    return made


def peer_parser(description: str | None) -> argparse.ArgumentParser:
    """The same, and what only a system that searches has."""
    made = parser(description)
    made.add_argument("--sampler", choices=["random", "tpe"], default="random")
    made.add_argument("--seconds", type=float, help="no new trial after this time")
    return made


def load_data(setting: str, table: str | None) -> Data:
    """The disc set, or the arrays that adult.py wrote."""
    if setting == "disc":
        return disc()
    if table is None:
        raise SystemExit(f"--setting {setting} needs --table FILE, which adult.py writes.")
    with np.load(table) as arrays:
        return Data(
            train_x=torch.from_numpy(arrays["train_x"]),
            train_y=torch.from_numpy(arrays["train_y"]),
            val_x=torch.from_numpy(arrays["val_x"]),
            val_y=torch.from_numpy(arrays["val_y"]),
        )
