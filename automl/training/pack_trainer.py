"""Trains many networks as one batched model, epoch by epoch: `Trainer`, for all lanes of a pack.

Each lane draws its weights, its shuffling and its dropout as the alone trainer does, from the same
seeds, so that a trial gives the same losses in a pack and alone, up to rounding. Lanes come and go
between epochs; the others do not change by a bit on a CPU. Knows no study and writes no file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from automl.config import Growth, Precision, Task
from automl.training.models import MLP, MLPShape, draw_weights
from automl.training.pack_layout import Lanes, Layout
from automl.training.pack_loss import make_pack_loss
from automl.training.pack_mlp import Dropout, PackedPass, Scratch, TrainingPass
from automl.training.pack_optimizers import PackOptimizer, make_pack_optimizer
from automl.training.packing import padded_width
from automl.training.params import MLPParams
from automl.training.seeds import Stream, stream_seed
from automl.training.tensors import DataTensors, PartTensors
from automl.training.trainer import DivergedError, Problem, check_finite

# Activations of a look at the validation part: on a CPU they should stay in its cache.
_LOOK_ELEMENTS = {"cpu": 2**18}
_LOOK_ELEMENTS_ON_GPU = 2**26


@dataclass
class _Lane:
    """A trial in the pack."""

    params: MLPParams
    shape: MLPShape
    seed: int
    epoch: int
    """The one to train next."""
    dropout: Dropout
    arriving: Mapping[str, Any] | None
    """Its state, until it has a place in the layout."""


class PackTrainer:
    """The lanes of one pack: one problem, one optimizer kind, one batch size, one padded width."""

    def __init__(
        self, problem: Problem, batch_size: int, width: int, data: DataTensors, *, device: str
    ) -> None:
        """`width` is that of every hidden layer with its padding; not used where layers grow."""
        self.problem, self._width, self._device = problem, width, torch.device(device)
        self._batch_size = min(batch_size, len(data.train.x))
        self._dtype = torch.bfloat16 if problem.precision is Precision.bfloat16 else problem.dtype
        self._train_part, self._look_part = (
            PartTensors(part.x.to(self._dtype), part.y) for part in (data.train, data.validation)
        )
        self._shuffle = torch.Generator()
        self._scratch = Scratch(self._dtype, self._device)
        self._loss = make_pack_loss(problem.task)
        self._lanes: dict[int, _Lane] = {}
        self._order: list[int] = []
        self._placed: _Placed | None = None

    # --- who is in the pack ---------------------------------------------------------------------

    @property
    def numbers(self) -> tuple[int, ...]:
        """The trials in the pack."""
        return tuple(self._lanes)

    def add(
        self, number: int, params: MLPParams, seed: int, state: Mapping[str, Any] | None
    ) -> int:
        """Give a trial a lane, from its start or its state; returns the epoch it goes on with.

        Raises what a state that does not fit raises; the pack is then as it was.
        """
        shape = self.problem.shape(params)
        lane = _Lane(
            params=params,
            shape=shape,
            seed=seed,
            epoch=0 if state is None else int(state["epoch"]) + 1,
            dropout=Dropout(params.dropout, torch.Generator(self._device)),
            arriving=self._fresh_state(shape, seed) if state is None else _checked(state, shape),
        )
        self._lanes[number] = lane
        return lane.epoch

    def remove(self, number: int) -> None:
        """Take a trial out; its state can be had until the next epoch is trained."""
        del self._lanes[number]

    def _fresh_state(self, shape: MLPShape, seed: int) -> dict[str, Any]:
        model = MLP(shape, dtype=self.problem.dtype)
        draw_weights(model, torch.Generator().manual_seed(stream_seed(seed, Stream.WEIGHTS)))
        return {"weights": {name: p.detach() for name, p in model.named_parameters()}}
