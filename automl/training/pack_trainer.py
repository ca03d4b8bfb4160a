"""Trains many networks as one batched model, epoch by epoch: `Trainer` for all lanes of a pack.

Each lane draws its weights, its shuffling and its dropout as the alone trainer does, from the same
seeds, so a trial's losses in a pack and alone agree up to rounding, and their states are the same.
Lanes come and go between epochs; the others do not change, on a CPU not in the last bit. Knows no
study and writes no file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from automl.config import Precision, Task
from automl.training.models import MLP, MLPShape, draw_weights
from automl.training.pack_layout import Lanes, Layout
from automl.training.pack_loss import make_pack_loss
from automl.training.pack_mlp import Dropout, PackedPass, Scratch, TrainingPass
from automl.training.pack_optimizers import make_pack_optimizer
from automl.training.params import MLPParams
from automl.training.seeds import Stream, stream_seed
from automl.training.tensors import DataTensors, PartTensors
from automl.training.trainer import DivergedError, Problem, check_finite

# Numbers in one lane's activations while looking at the validation part: 16 lanes then fit the
# second cache of a CPU. Not by the lanes there are: sums over rows would depend on the neighbours.
_LOOK_NUMBERS_ON_HOST = 2**14
_LOOK_NUMBERS_ON_GPU = 2**20


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
    """Its state, until it has a place."""


class _Placed:
    """Lanes in their places: all that is made anew when the lanes change."""

    def __init__(
        self, lanes: Mapping[int, _Lane], width: int, scratch: Scratch, dtype: torch.dtype
    ):
        by_depth = sorted(lanes.items(), key=lambda item: -len(item[1].shape.hidden_widths))
        self.positions = {number: position for position, (number, _) in enumerate(by_depth)}
        self.lanes = [lane for _, lane in by_depth]
        layout = Layout([lane.shape for lane in self.lanes], width)
        self.values, self.grads = (Lanes(layout, dtype, scratch.device) for _ in range(2))
        self.optimizer = make_pack_optimizer(
            self.values, self.grads, [lane.params for lane in self.lanes]
        )
        # bfloat16 computes with a rounded copy of float32 weights, as autocast does.
        self.mixed = scratch.dtype is not dtype
        self._work_values, self._work_grads = (
            Lanes(layout, scratch.dtype, scratch.device) if self.mixed else lanes
            for lanes in (self.values, self.grads)
        )
        self._scratch = scratch
        self._passes: dict[int, TrainingPass] = {}
        self._looks: dict[int, PackedPass] = {}

    @property
    def kept(self) -> dict[str, Lanes]:
        """What a state holds: the weights and the optimizer's moments."""
        return {"weights": self.values, **self.optimizer.moments}

    def training_pass(self, n_rows: int) -> TrainingPass:
        """The pass for batches of so many rows."""
        if n_rows not in self._passes:
            dropouts = [lane.dropout for lane in self.lanes]
            self._passes[n_rows] = TrainingPass(
                self._work_values, self._work_grads, self._scratch, n_rows, dropouts
            )
        return self._passes[n_rows]

    def look(self, n_rows: int) -> PackedPass:
        """The pass for so many rows of the validation part."""
        if n_rows not in self._looks:
            self._looks[n_rows] = PackedPass(self._work_values, self._scratch, n_rows)
        return self._looks[n_rows]

    def round_weights(self) -> None:
        """Before a pass: bring the rounded copy up to date."""
        if self.mixed:
            self._work_values.flat.copy_(self.values.flat)

    def widen_grads(self) -> None:
        """After a pass: what the optimizer sees of its gradients."""
        if self.mixed:
            self.grads.flat.copy_(self._work_grads.flat)


class PackTrainer:
    """The lanes of one pack: one problem, one optimizer kind, one batch size, one padded width."""

    def __init__(
        self, problem: Problem, batch_size: int, width: int, data: DataTensors, *, device: str
    ) -> None:
        """`width` is that of every hidden layer with its padding; 0: nothing is padded, and all
        lanes are of one shape."""
        self.problem, self._width, self._device = problem, width, torch.device(device)
        self._batch_size = min(batch_size, len(data.train.x))
        dtype = torch.bfloat16 if problem.precision is Precision.bfloat16 else problem.dtype
        self._train_part, self._validation_part = (
            PartTensors(part.x.to(dtype), part.y) for part in (data.train, data.validation)
        )
        self._shuffle = torch.Generator()  # on the CPU, so that every device draws the same order
        self._scratch = Scratch(dtype, self._device)
        self._loss = make_pack_loss(problem.task)
        self._lanes: dict[int, _Lane] = {}
        self._placed: _Placed | None = None
        self._before: dict[str, torch.Tensor] = {}

    # --- who is in the pack ---------------------------------------------------------------------

    def add(
        self, number: int, params: MLPParams, seed: int, state: Mapping[str, Any] | None
    ) -> int:
        """Give a trial a lane, from its start or its state; returns the epoch it goes on with.

        Raises ValueError for a state of another network; the pack is then as it was.
        """
        shape = self.problem.shape(params)
        if state is not None:
            _check_state(state, shape)
        self._lanes[number] = _Lane(
            params=params,
            shape=shape,
            seed=seed,
            epoch=0 if state is None else int(state["epoch"]) + 1,
            dropout=Dropout(params.dropout, torch.Generator(self._device)),
            arriving=state if state is not None else self._first_state(shape, seed),
        )
        return self._lanes[number].epoch

    def remove(self, number: int) -> None:
        """Take a trial out; its state can be had until the next epoch."""
        del self._lanes[number]

    def shape(self, number: int) -> MLPShape:
        """The network of a lane."""
        return self._lanes[number].shape

    @torch.inference_mode()
    def weights(self, number: int) -> dict[str, torch.Tensor]:
        """A copy of a lane's weights, as `MLP.state_dict` names them."""
        placed = self._require_placed()
        parts = placed.values.of(placed.positions[number])
        kinds = ("weight", "bias")
        return {f"layers.{i // 2}.{kinds[i % 2]}": p.contiguous() for i, p in enumerate(parts)}

    @torch.inference_mode()
    def state(self, number: int, epoch: int) -> dict[str, Any]:
        """All that is needed to go on after `epoch`, here or alone: see `Trainer.state`."""
        placed = self._require_placed()
        position = placed.positions[number]
        optimizer = {k: lanes.vector(position) for k, lanes in placed.optimizer.moments.items()}
        if "mean" in optimizer:
            n_steps = (epoch + 1) * self._n_batches
            optimizer["n_steps"] = torch.tensor(n_steps, dtype=torch.float32)
        return {"epoch": epoch, "weights": self.weights(number), "optimizer": optimizer}

    @torch.inference_mode()
    def rewind(self) -> None:
        """After an epoch that broke: take all lanes back to its start, where states stand."""
        for name, flat in self._before.items():
            self._require_placed().kept[name].flat.copy_(flat)

    # --- training -------------------------------------------------------------------------------

    @torch.inference_mode()
    def run_epoch(self) -> dict[int, dict[str, float] | DivergedError]:
        """Train one epoch of every lane, and return its metrics or why it cannot go on.

        See `Trainer.run_epoch` for what they are. Lanes may be in different epochs.
        """
        placed = self._place()
        self._before = {name: lanes.flat.clone() for name, lanes in placed.kept.items()}
        sums = torch.stack([self._train(placed), *self._evaluate(placed)]).tolist()
        ended: dict[int, dict[str, float] | DivergedError] = {}
        for number, position in placed.positions.items():
            lane = self._lanes[number]
            metrics = self._metrics(*(row[position] for row in sums))
            try:
                check_finite(metrics, lane.epoch, lane.params)
                ended[number] = metrics
            except DivergedError as error:
                ended[number] = error
            lane.epoch += 1
        self._before = {}
        return ended

    @property
    def _n_batches(self) -> int:
        return -(-len(self._train_part.x) // self._batch_size)

    def _train(self, placed: _Placed) -> torch.Tensor:
        """One pass over the training part; the sums (K,) of its losses."""
        for lane in placed.lanes:
            if lane.dropout.rate > 0:
                seed = stream_seed(lane.seed, Stream.DROPOUT, lane.epoch)
                lane.dropout.generator.manual_seed(seed)
        n_steps = [lane.epoch * self._n_batches for lane in placed.lanes]
        placed.optimizer.begin_epoch(n_steps, self._n_batches)
        totals = torch.zeros(
            len(placed.lanes), 1, self._batch_size, dtype=torch.float64, device=self._device
        )
        for index, rows in enumerate(self._orders(placed)):
            self._step(placed, index, rows, totals)
        return totals.sum((1, 2))

    def _step(self, placed: _Placed, index: int, rows: torch.Tensor, totals: torch.Tensor) -> None:
        """One optimizer step on the rows (K · B,); their losses are added to (K, 1, B)."""
        work = placed.training_pass(len(rows) // len(placed.lanes))
        torch.index_select(self._train_part.x, 0, rows, out=work.x)
        y = self._train_part.y.index_select(0, rows).view(len(placed.lanes), -1)
        placed.round_weights()
        work.draw_masks()
        out = work.forward().to(self.problem.dtype)
        self._loss.train(out, y, work.out_g, totals[:, :, : work.n_rows])
        work.backward()
        placed.widen_grads()
        placed.optimizer.step(index)

    def _evaluate(self, placed: _Placed) -> tuple[torch.Tensor, torch.Tensor]:
        """Sums (K,) over the validation part: losses, and misses or squared errors."""
        placed.round_weights()
        x, y = self._validation_part.x, self._validation_part.y
        limit = _LOOK_NUMBERS_ON_HOST if self._device.type == "cpu" else _LOOK_NUMBERS_ON_GPU
        n_rows = max(64, limit // max(placed.values.layout.widths))
        loss, miss = (
            torch.zeros(len(placed.lanes), dtype=torch.float64, device=x.device) for _ in "lm"
        )
        for some_x, some_y in zip(torch.split(x, n_rows), torch.split(y, n_rows), strict=True):
            look = placed.look(len(some_x))
            look.rows.copy_(some_x)
            more_loss, more_miss = self._loss.look(look.forward().to(self.problem.dtype), some_y)
            loss, miss = loss + more_loss, miss + more_miss
        return loss, miss

    def _orders(self, placed: _Placed) -> list[torch.Tensor]:
        """For each batch, the rows of all lanes (K · B,), each lane in an order of its own."""
        n = len(self._train_part.x)
        orders = torch.empty(len(placed.lanes), n, dtype=torch.int64)
        for lane, order in zip(placed.lanes, orders, strict=True):
            self._shuffle.manual_seed(stream_seed(lane.seed, Stream.SHUFFLE, lane.epoch))
            torch.randperm(n, generator=self._shuffle, out=order)
        batches = torch.split(orders.to(self._device), self._batch_size, dim=1)
        return [batch.reshape(-1) for batch in batches]

    def _metrics(self, train_sum: float, val_sum: float, miss_sum: float) -> dict[str, float]:
        n_train, n_validation = len(self._train_part.x), len(self._validation_part.x)
        metrics = {"train_loss": train_sum / n_train, "val_loss": val_sum / n_validation}
        if self.problem.task is Task.regression:
            metrics["val_rmse"] = self.problem.target_scale * math.sqrt(miss_sum / n_validation)
        else:
            metrics["val_error"] = miss_sum / n_validation
        return metrics

    # --- places ---------------------------------------------------------------------------------

    def _place(self) -> _Placed:
        """The lanes in their places; made anew where lanes have come or gone."""
        old = self._placed
        stayed = {n for n, lane in self._lanes.items() if lane.arriving is None}
        if old is not None and stayed == old.positions.keys() == self._lanes.keys():
            return old
        placed = _Placed(self._lanes, self._width, self._scratch, self.problem.dtype)
        if old is not None:
            moves = {old.positions[n]: placed.positions[n] for n in stayed}
            for name, lanes in placed.kept.items():
                lanes.take(old.kept[name], moves)
        for number, lane in self._lanes.items():
            if lane.arriving is not None:
                _arrive(placed, placed.positions[number], lane.arriving)
                lane.arriving = None
        self._placed = placed
        return placed

    def _require_placed(self) -> _Placed:
        assert self._placed is not None, "a lane has a state after its first epoch"
        return self._placed

    def _first_state(self, shape: MLPShape, seed: int) -> dict[str, Any]:
        model = MLP(shape, dtype=self.problem.dtype)
        draw_weights(model, torch.Generator().manual_seed(stream_seed(seed, Stream.WEIGHTS)))
        return {"weights": model.state_dict()}


def _arrive(placed: _Placed, position: int, state: Mapping[str, Any]) -> None:
    """Put a state into a lane; a moment that it lacks stays 0."""
    placed.values.write(position, list(state["weights"].values()))
    for name, lanes in placed.optimizer.moments.items():
        if "optimizer" in state:
            lanes.write_vector(position, state["optimizer"][name])


def _check_state(state: Mapping[str, Any], shape: MLPShape) -> None:
    """Raise ValueError where a checkpoint holds another network than the params ask for."""
    sizes = (shape.n_inputs, *shape.hidden_widths, shape.n_outputs)
    wanted = [size for a, b in pairwise(sizes) for size in ((b, a), (b,))]
    found = [tuple(weight.shape) for weight in state["weights"].values()]
    if found != wanted:
        raise ValueError(
            f"the checkpoint holds weights of shapes {found}, the trial's params ask for {wanted}."
        )
