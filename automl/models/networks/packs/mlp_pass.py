"""The passes and losses of all lanes of a pack, by hand, as batched matrix products.

A small network's step is mostly autograd's bookkeeping: 300 µs for one network, where the
arithmetic of twenty takes 250. Results go to tensors made once per layout, of shapes (K, B, W) for
hidden layers and (K, C, B) for outputs (log_softmax over the middle dimension is 8 times as fast as
over a last one of 2 to 10).

A lane's numbers do not depend on the other lanes, on a CPU not in the last bit: no operation mixes
rows of different lanes, and products have at least two matrices (see `layout.WeightRegion`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch

from automl.config import Task
from automl.config.metrics import SQUARED_ERROR, ValueLoss
from automl.models.networks.packs.layout import LaneWeights, MLPLayout

Product: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Two factors (n, a, b) and (n, b, c), and the tensor (n, a, c) that receives their product."""

_relu_backward = torch.ops.aten.threshold_backward.grad_input


@dataclass(frozen=True)
class LaneDropout:
    """The dropout rate of one lane, and the generator that draws its masks."""

    rate: float
    generator: torch.Generator


class ScratchMemory:
    """Memory by name that outlives a layout: fresh pages cost more than the numbers in them."""

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype, self.device = dtype, device
        self._flat: dict[str, torch.Tensor] = {}

    def get(self, name: str, *shape: int) -> torch.Tensor:
        """Return a tensor of this shape with undefined content."""
        n_elements = math.prod(shape)
        if name not in self._flat or len(self._flat[name]) < n_elements:
            self._flat[name] = torch.zeros(n_elements, dtype=self.dtype, device=self.device)
        return self._flat[name][:n_elements].view(shape)


@dataclass(frozen=True)
class _DropoutMask:
    """The dropout mask of one hidden layer: 0 where dropped, 1 / (1 - rate) where kept."""

    uniform: torch.Tensor
    rate: torch.Tensor
    scale: torch.Tensor
    mask: torch.Tensor


@dataclass
class _ForwardSlot:
    """The forward pass through one hidden layer, of all lanes that have it."""

    h: torch.Tensor
    bias: torch.Tensor
    products: list[Product]
    """The products into `h`: from the layer below, then from the input if a lane begins here."""
    mask: _DropoutMask | None = None


@dataclass(frozen=True)
class _BackwardSlot:
    """The backward pass through one hidden layer, of all lanes that have it."""

    forward: _ForwardSlot
    g: torch.Tensor
    """The gradient of `forward.h`."""
    bias_g: torch.Tensor
    products: list[Product]
    """The products to the gradients of the layer's weights, and of the layer below."""


class PackedPass:
    """The forward pass of all lanes. Fill `x`, call `forward`."""

    def __init__(
        self,
        values: LaneWeights[MLPLayout],
        scratch: ScratchMemory,
        n_rows: int,
        *,
        shares_rows: bool = False,
    ) -> None:
        """Take `shares_rows`: all lanes have the same rows, not each lane its own."""
        self._values, self._scratch, self.n_rows = values, scratch, n_rows
        layout = values.layout
        self._n, shape = layout.n_lanes, layout.shapes[0]
        name, n_own = ("rows", 1) if shares_rows else ("x", self._n)
        x = scratch.get(name, 1 if shares_rows else self._n + 1, n_rows, shape.n_inputs)
        self.x = x[:n_own].view(-1, shape.n_inputs)
        """The rows (K · B, D) of all lanes, or (B, D), which the caller fills before `forward`."""
        self._x = x.expand(self._n + 1, -1, -1)
        self._h = self._hidden_layers()
        self._all_out = scratch.get("out", self._n + 1, shape.n_outputs, n_rows)
        self.out = self._all_out[: self._n]
        views = values.views
        n = len(views["out"])
        self._out_product = (views["out"], self._h[0][:n].transpose(1, 2), self._all_out[:n])
        self._out_bias = views["out_bias"].unsqueeze(2)
        self._slots = [self._slot(t) for t in reversed(range(len(layout.widths)))]

    def _hidden_layers(self) -> list[torch.Tensor]:
        """Return two tensors that take turns, those of training: activations are not kept."""
        return self._layer_memory("g0", "g1")

    def _layer_memory(self, *names: str) -> list[torch.Tensor]:
        """Return (n + 1, B, W) for each layer: products have at least two matrices."""
        layout = self._values.layout
        return [
            self._scratch.get(names[t % len(names)], layout.counts[t] + 1, self.n_rows, width)
            for t, width in enumerate(layout.widths)
        ]

    def _slot(self, t: int) -> _ForwardSlot:
        views, counts = self._values.views, self._values.layout.counts
        products: list[Product] = []
        if (w := views.get(f"hidden{t}")) is not None:
            products.append((self._h[t + 1][: len(w)], w, self._h[t][: len(w)]))
        if (w := views.get(f"entry{t}")) is not None:
            part = slice(counts[t + 1], counts[t + 1] + len(w))
            products.append((self._x[part], w, self._h[t][part]))
        return _ForwardSlot(self._h[t][: counts[t]], views[f"bias{t}"].unsqueeze(1), products)

    def forward(self) -> torch.Tensor:
        """Return the outputs (K, C, B): class scores, or one value."""
        for slot in self._slots:
            for a, b, product in slot.products:
                torch.bmm(a, b, out=product)
            slot.h.add_(slot.bias).relu_()
            if slot.mask is not None:
                slot.h.mul_(slot.mask.mask)
        a, b, product = self._out_product
        torch.bmm(a, b, out=product)
        return self.out.add_(self._out_bias)


class TrainingPass(PackedPass):
    """The two passes of a training step: every lane has rows of its own, and activations stay.

    Fill `x`, call `forward`, write the gradient of its result to `out_g`, call `backward`.
    """

    def __init__(
        self,
        values: LaneWeights[MLPLayout],
        grads: LaneWeights[MLPLayout],
        scratch: ScratchMemory,
        n_rows: int,
        dropouts: Sequence[LaneDropout],
    ) -> None:
        super().__init__(values, scratch, n_rows)
        self._grads = grads
        g = self._layer_memory("g0", "g1")
        self._build_out_backward(g[0])
        self._backward = [self._backward_slot(t, g) for t in range(len(g))]
        self._draws: list[tuple[torch.Tensor, torch.Generator]] = []
        if any(d.rate > 0 for d in dropouts):
            self._build_masks(dropouts)

    def _hidden_layers(self) -> list[torch.Tensor]:
        return self._layer_memory(*(f"h{t}" for t in range(len(self._values.layout.widths))))

    def draw_masks(self) -> None:
        """Draw the dropout masks of the next step, for each lane in the order of its layers."""
        for uniform, generator in self._draws:
            uniform.uniform_(generator=generator)
        for slot in self._slots:
            if (m := slot.mask) is not None:
                torch.ge(m.uniform, m.rate, out=m.mask).mul_(m.scale)

    def backward(self) -> None:
        """Compute the gradients of all weights from `out_g`."""
        torch.sum(self.out_g, 2, out=self._out_bias_g)
        for a, b, product in self._out_backward:
            torch.bmm(a, b, out=product)
        for slot in self._backward:
            if slot.forward.mask is not None:
                slot.g.mul_(slot.forward.mask.mask)
            _relu_backward(slot.g, slot.forward.h, 0, grad_input=slot.g)
            torch.sum(slot.g, 1, out=slot.bias_g)
            for a, b, product in slot.products:
                torch.bmm(a, b, out=product)

    def _build_out_backward(self, g: torch.Tensor) -> None:
        views, grads = self._values.views, self._grads.views
        all_out_g = self._scratch.get("out_g", *self._all_out.shape)
        self.out_g, n = all_out_g[: self._n], len(views["out"])
        self._out_bias_g = grads["out_bias"]
        self._out_backward = [
            (all_out_g[:n], self._h[0][:n], grads["out"]),
            (all_out_g[:n].transpose(1, 2), views["out"], g[:n]),
        ]

    def _backward_slot(self, t: int, g: list[torch.Tensor]) -> _BackwardSlot:
        views, grads = self._values.views, self._grads.views
        counts = self._values.layout.counts
        products: list[Product] = []
        if (w := views.get(f"hidden{t}")) is not None:
            n = len(w)
            products.append((self._h[t + 1][:n].transpose(1, 2), g[t][:n], grads[f"hidden{t}"]))
            products.append((g[t][:n], w.transpose(1, 2), g[t + 1][:n]))
        if (w := views.get(f"entry{t}")) is not None:
            part = slice(counts[t + 1], counts[t + 1] + len(w))
            products.append((self._x[part].transpose(1, 2), g[t][part], grads[f"entry{t}"]))
        slot = self._slots[-1 - t]
        return _BackwardSlot(slot, g[t][: counts[t]], grads[f"bias{t}"], products)

    def _build_masks(self, dropouts: Sequence[LaneDropout]) -> None:
        """Build the dropout masks in float32; lanes without dropout and padding keep a 1."""
        rates = torch.tensor([d.rate for d in dropouts], device=self._scratch.device).view(-1, 1, 1)
        scales = torch.tensor([1 / (1 - d.rate) for d in dropouts], device=rates.device)
        for slot in self._slots[::-1]:
            n, mask = len(slot.h), torch.ones(slot.h.shape, device=rates.device)
            slot.mask = _DropoutMask(mask.clone(), rates[:n], scales[:n].view(-1, 1, 1), mask)
        for position, dropout in enumerate(dropouts):
            widths = self._values.layout.shapes[position].hidden_widths
            for slot, width in zip(self._slots[-len(widths) :], widths, strict=True):
                if dropout.rate > 0 and slot.mask is not None:
                    part = slot.mask.uniform[position, :, :width]
                    self._draws.append((part, dropout.generator))


class PackLoss(Protocol):
    """A loss that is computed for each lane by itself."""

    def train(
        self, out: torch.Tensor, y: torch.Tensor, out_g: torch.Tensor, totals: torch.Tensor
    ) -> None:
        """Add the losses of `y` (K, B) to `totals`, and write their gradient to `out_g`."""

    def sums(
        self, out: torch.Tensor, y: torch.Tensor, counts: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return sums over rows, (K,) float64: of the loss, and of wrong classes or squared errors.

        `y` are the targets (B,) of all lanes, or (K, B) of each. `counts` (K, B) marks the rows
        that count; None counts all.
        """


class _PackCrossEntropy:
    """The cross entropy of class scores; targets are class numbers."""

    def __init__(self, weights: torch.Tensor | None) -> None:
        self._weights = weights

    def train(
        self, out: torch.Tensor, y: torch.Tensor, out_g: torch.Tensor, totals: torch.Tensor
    ) -> None:
        columns = y.unsqueeze(1)
        log_p = torch.log_softmax(out, 1)
        weights = None if self._weights is None else self._weights.to(out.dtype)[columns]
        own = log_p.gather(1, columns)
        totals.sub_(own if weights is None else own * weights)
        torch.exp(log_p, out=log_p)
        log_p.scatter_add_(1, columns, log_p.new_full((), -1.0).expand_as(columns))
        if weights is not None:
            log_p.mul_(weights)
        torch.mul(log_p, 1 / out.shape[2], out=out_g)

    def sums(
        self, out: torch.Tensor, y: torch.Tensor, counts: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        n_classes = out.shape[1]
        log_p = torch.log_softmax(out, 1)
        losses = log_p.gather(1, y.unsqueeze(-2).expand(len(out), 1, -1)).neg_()
        # The first of the largest, as argmax has it, which takes 30 times as long in this shape.
        ranks = torch.arange(n_classes, 0, -1, dtype=out.dtype, device=out.device).unsqueeze(1)
        first = (out == out.amax(1, keepdim=True)).to(out.dtype).mul_(ranks).amax(1)
        wrong = first != (n_classes - y)
        if counts is not None:
            losses, wrong = losses * counts.unsqueeze(1), wrong & counts
        return losses.sum((1, 2), dtype=torch.float64), wrong.sum(1, dtype=torch.float64)


class _PackSquaredError:
    """The squared error of one value; targets are scaled."""

    def train(
        self, out: torch.Tensor, y: torch.Tensor, out_g: torch.Tensor, totals: torch.Tensor
    ) -> None:
        error = out - y.unsqueeze(1)
        torch.mul(error, 2 / out.shape[2], out=out_g)
        totals.add_(error.square_())

    def sums(
        self, out: torch.Tensor, y: torch.Tensor, counts: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        squares = (out - y.unsqueeze(-2)).square_()
        if counts is not None:
            squares = squares * counts.unsqueeze(1)
        total = squares.sum((1, 2), dtype=torch.float64)
        return total, total


class _PackPinball(_PackSquaredError):
    """The loss of `losses.Pinball`, lane by lane."""

    def __init__(self, quantile: float, factor: float = 1.0) -> None:
        self._quantile, self._factor = quantile, factor

    def train(
        self, out: torch.Tensor, y: torch.Tensor, out_g: torch.Tensor, totals: torch.Tensor
    ) -> None:
        error = y.unsqueeze(1) - out
        totals.add_(self._losses(error))
        slope = torch.where(error > 0, -self._quantile, 1 - self._quantile).to(out.dtype)
        slope.masked_fill_(error == 0, 0.5 - self._quantile)  # as torch has it where both are equal
        torch.mul(slope, self._factor / out.shape[2], out=out_g)

    def sums(
        self, out: torch.Tensor, y: torch.Tensor, counts: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        losses = self._losses(y.unsqueeze(-2) - out)
        if counts is not None:
            losses = losses * counts.unsqueeze(1)
        squares = super().sums(out, y, counts)[1]
        return losses.sum((1, 2), dtype=torch.float64), squares

    def _losses(self, error: torch.Tensor) -> torch.Tensor:
        return self._factor * torch.maximum(self._quantile * error, (self._quantile - 1) * error)


def make_pack_loss(
    task: Task, weights: torch.Tensor | None = None, loss: ValueLoss = SQUARED_ERROR
) -> PackLoss:
    """Return the loss of a task: the cross entropy of classes, or `loss` for numbers.

    `weights` (C,) are those of a row of each class; None weighs all alike.
    """
    if task is not Task.regression:
        return _PackCrossEntropy(weights)
    if loss.name == "squared_error":
        return _PackSquaredError()
    assert loss.name in ("absolute_error", "quantile"), "families refuse what they do not have"
    return _PackPinball(loss.quantile) if loss.name == "quantile" else _PackPinball(0.5, 2.0)
