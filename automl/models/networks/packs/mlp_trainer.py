"""Trains packs of the built-in network: MLPs of one padded width, whose depths may differ.

The passes are in `mlp_pass.py`, and the course of an epoch in `trainer.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import nn

from automl.config import Precision
from automl.in_trial.seeds import SeedUse, derive_seed
from automl.models.families.mlp.family import PLAIN_ENCODING
from automl.models.families.mlp.network import MLPNetwork, bins_for
from automl.models.networks.network import NetworkDescription
from automl.models.networks.packs.layout import LaneWeights, MLPLayout
from automl.models.networks.packs.mlp_pass import (
    LaneDropout,
    PackedPass,
    PackLoss,
    ScratchMemory,
    TrainingPass,
    make_pack_loss,
)
from automl.models.networks.packs.trainer import LanePlaces, PackLane, PackTrainer
from automl.models.networks.tensors import DataTensors, PartTensors
from automl.models.networks.trainer import TrainingProblem

# Numbers in one lane's activations in an evaluation: 16 lanes then fit the second cache of a CPU.
# The limit ignores the number of lanes, or sums over rows would depend on the other lanes.
_EVALUATION_NUMBERS_ON_HOST = 2**14
_EVALUATION_NUMBERS_ON_GPU = 2**20


class MLPPackTrainer(PackTrainer):
    """A `PackTrainer` for the built-in network, with padded layers and passes written by hand."""

    def __init__(
        self,
        problem: TrainingProblem,
        batch_size: int,
        width: int,
        data: DataTensors,
        *,
        device: str,
        weighs_classes: bool = False,
        encoding: str = PLAIN_ENCODING,
    ) -> None:
        """Pad every hidden layer to `width`; 0 pads nothing, and all lanes must have one shape."""
        super().__init__(problem, batch_size, data, device=device)
        dtype = torch.bfloat16 if problem.precision is Precision.bfloat16 else problem.dtype
        self._width, self._scratch = width, ScratchMemory(dtype, self._device)
        assert isinstance(problem.n_inputs, int), "of a table"
        bins = bins_for(encoding, problem.n_inputs, problem.get_edges)
        encode = nn.Identity() if bins is None else bins.build(problem.dtype, self._device)
        train, validation = (
            PartTensors(encode(part.x).to(dtype), part.y) for part in (data.train, data.validation)
        )
        self._data = DataTensors(train, validation, data.folds)
        weighs = weighs_classes and problem.class_weights
        weights = torch.tensor(problem.class_weights, device=self._device) if weighs else None
        self._loss = make_pack_loss(problem.task, weights, problem.training.value_loss)

    def make_places(self, lanes: Mapping[int, PackLane]) -> MLPLanePlaces:
        by_depth = sorted(
            lanes.items(), key=lambda item: -len(_mlp(item[1].network).shape.hidden_widths)
        )
        return MLPLanePlaces(
            [number for number, _ in by_depth],
            [lane for _, lane in by_depth],
            width=self._width,
            max_rows=self._batch_size,
            data=self._data,
            loss=self._loss,
            scratch=self._scratch,
            dtype=self.problem.dtype,
        )

    def weight_shapes(self, network: NetworkDescription) -> Mapping[str, tuple[int, ...]]:
        return _mlp(network).weight_shapes()


class MLPLanePlaces(LanePlaces[MLPLayout]):
    """The `LanePlaces` of built-in networks: padded weights, and the passes of `mlp_pass.py`."""

    def __init__(
        self,
        numbers: Sequence[int],
        lanes: Sequence[PackLane],
        *,
        width: int,
        max_rows: int,
        data: DataTensors,
        loss: PackLoss,
        scratch: ScratchMemory,
        dtype: torch.dtype,
    ) -> None:
        layout = MLPLayout([_mlp(lane.network).shape for lane in lanes], width)
        values, grads = (LaneWeights(layout, dtype, scratch.device) for _ in range(2))
        super().__init__(numbers, lanes, values, grads)
        self._data, self._loss, self._scratch, self._dtype = data, loss, scratch, dtype
        # bfloat16 computes with a rounded copy of float32 weights, as autocast does.
        self._mixed = scratch.dtype is not dtype
        self._work_values, self._work_grads = (
            LaneWeights(layout, scratch.dtype, scratch.device) if self._mixed else own
            for own in (values, grads)
        )
        self._dropouts = [
            LaneDropout(_mlp(lane.network).dropout, torch.Generator(scratch.device))
            for lane in lanes
        ]
        # Without `self`: a cycle would keep a pack's memory until Python's garbage collector runs.
        weights, weight_grads, dropouts = self._work_values, self._work_grads, self._dropouts
        self._training_pass = cache(
            lambda n_rows: TrainingPass(weights, weight_grads, scratch, n_rows, dropouts)
        )
        self._shared_rows_pass = cache(
            lambda n_rows: PackedPass(weights, scratch, n_rows, shares_rows=True)
        )
        self._own_rows_pass = cache(lambda n_rows: PackedPass(weights, scratch, n_rows))
        self._judged = _LaneJudgedRows.from_lanes(lanes, data) if data.folds else None
        self._totals = torch.zeros(
            len(lanes), 1, max_rows, dtype=torch.float64, device=scratch.device
        )

    def begin_epoch(self) -> None:
        self._totals.zero_()
        for lane, dropout in zip(self.lanes, self._dropouts, strict=True):
            if dropout.rate > 0:
                seed = derive_seed(lane.seed, SeedUse.DROPOUT, lane.epoch)
                dropout.generator.manual_seed(seed)

    def find_gradients(self, rows: torch.Tensor) -> None:
        work = self._training_pass(rows.shape[1])
        rows = rows.reshape(-1)
        torch.index_select(self._data.train.x, 0, rows, out=work.x)
        y = self._data.train.y.index_select(0, rows).view(len(self.lanes), -1)
        self._round_weights()
        work.draw_masks()
        out = work.forward().to(self._dtype)
        self._loss.train(out, y, work.out_g, self._totals[:, :, : work.n_rows])
        work.backward()
        if self._mixed:
            self.grads.flat.copy_(self._work_grads.flat)

    def train_sums(self) -> torch.Tensor:
        return self._totals.sum((1, 2))

    def evaluate(self, outputs: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        self._round_weights()
        device = self._data.train.x.device
        limit = _EVALUATION_NUMBERS_ON_HOST if device.type == "cpu" else _EVALUATION_NUMBERS_ON_GPU
        n_rows = max(64, limit // max(self.values.layout.widths))
        batch_sums = (
            self._evaluate_shared_rows(n_rows, outputs)
            if self._judged is None
            else self._evaluate_own_rows(n_rows, outputs)
        )
        loss, miss = (
            torch.zeros(len(self.lanes), dtype=torch.float64, device=device) for _ in "lm"
        )
        for batch_loss, batch_miss in batch_sums:
            loss, miss = loss + batch_loss, miss + batch_miss
        return loss, miss

    def _evaluate_shared_rows(
        self, n_rows: int, outputs: torch.Tensor | None
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Evaluate all lanes on the validation part, and yield the sums of `n_rows` at a time."""
        x, y = self._data.validation.x, self._data.validation.y
        begin = 0
        for batch_x, batch_y in zip(torch.split(x, n_rows), torch.split(y, n_rows), strict=True):
            shared = self._shared_rows_pass(len(batch_x))
            shared.x.copy_(batch_x)
            out = shared.forward().to(self._dtype)
            if outputs is not None:
                outputs[:, :, begin : begin + len(batch_x)] = out
                begin += len(batch_x)
            yield self._loss.sums(out, batch_y)

    def _evaluate_own_rows(
        self, n_rows: int, outputs: torch.Tensor | None
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Evaluate each lane on the rows of its fold, and yield the sums of `n_rows` at a time."""
        assert self._judged is not None
        x, y = self._data.train.x, self._data.train.y
        places, counts = (torch.split(t, n_rows, dim=1) for t in self._judged)
        begin = 0
        for batch, weights in zip(places, counts, strict=True):
            own = self._own_rows_pass(batch.shape[1])
            torch.index_select(x, 0, batch.reshape(-1), out=own.x)
            batch_y = y.index_select(0, batch.reshape(-1)).view(batch.shape)
            out = own.forward().to(self._dtype)
            if outputs is not None:
                outputs[:, :, begin : begin + out.shape[2]] = out
                begin += out.shape[2]
            yield self._loss.sums(out, batch_y, weights)

    def weights(self, position: int) -> dict[str, torch.Tensor]:
        parts = self.values.parts(position)
        kinds = ("weight", "bias")
        # Every part is copied, also one that is already contiguous in the lane's own memory.
        return {
            f"layers.{i // 2}.{kinds[i % 2]}": p.clone(memory_format=torch.contiguous_format)
            for i, p in enumerate(parts)
        }

    def write_weights(self, position: int, weights: Mapping[str, torch.Tensor]) -> None:
        self.values.write(position, list(weights.values()))

    def _round_weights(self) -> None:
        """Update the rounded copy of the weights before a pass."""
        if self._mixed:
            self._work_values.flat.copy_(self.values.flat)


class _LaneJudgedRows(NamedTuple):
    """The rows (K, M) that judge each lane, and how often each row counts.

    A lane with fewer rows than others repeats its last row, which then counts 0 times instead of 1.
    """

    places: torch.Tensor
    counts: torch.Tensor

    @classmethod
    def from_lanes(cls, lanes: Sequence[PackLane], data: DataTensors) -> _LaneJudgedRows:
        rows = [data.folds[lane.fold].judged for lane in lanes if lane.fold is not None]
        n_rows = [len(own) for own in rows]
        places = torch.stack(
            [torch.cat([own, own[-1:].expand(max(n_rows) - len(own))]) for own in rows]
        )
        counts = torch.arange(max(n_rows), device=places.device) < torch.tensor(
            n_rows, device=places.device
        ).unsqueeze(1)
        return cls(places, counts)


def _mlp(network: NetworkDescription) -> MLPNetwork:
    assert isinstance(network, MLPNetwork)
    return network
