"""The losses of all lanes of a pack at once: sums for the metrics, and gradients of the outputs.

Outputs are (K, C, B), as `mlp_pass.py` returns them; training descends the mean over a batch. The
formulas are those of `losses.py`.
"""

from __future__ import annotations

from typing import Protocol

import torch

from automl.config import Task
from automl.config.metrics import SQUARED_ERROR, ValueLoss


class PackLoss(Protocol):
    """A loss that is computed for each lane by itself."""

    def train(
        self, out: torch.Tensor, y: torch.Tensor, out_g: torch.Tensor, totals: torch.Tensor
    ) -> None:
        """Add the losses of rows with targets `y` (K, B) to `totals` (K, 1, B) float64.

        The gradient of their mean is written to `out_g`.
        """

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
