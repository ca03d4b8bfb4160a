"""Loss of all lanes of a pack at once: sums for the metrics, and the gradient of the outputs.

Outputs are (K, C, B), as `mlp_pass.py` gives them; the mean over a batch is what training descends.
"""

from __future__ import annotations

from typing import Protocol

import torch

from automl.config import Task
from automl.config.metrics import SQUARED_ERROR, ValueLoss


class PackLoss(Protocol):
    """Cross entropy or squared error, lane by lane."""

    def train(
        self, out: torch.Tensor, y: torch.Tensor, out_g: torch.Tensor, totals: torch.Tensor
    ) -> None:
        """Add the losses of rows with targets `y` (K, B) to `totals` (K, 1, B) float64.

        The gradient of their mean goes to `out_g`.
        """

    def look(
        self, out: torch.Tensor, y: torch.Tensor, counts: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Sums over rows, each (K,) float64: loss, and wrong classes or squared errors.

        `y` are the targets (B,) of all lanes, or (K, B) of each; `counts` (K, B) says which rows
        count; None: all.
        """


class _PackCrossEntropy:
    """Of class scores; targets are class numbers."""

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

    def look(
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
    """Of one value; targets are scaled."""

    def train(
        self, out: torch.Tensor, y: torch.Tensor, out_g: torch.Tensor, totals: torch.Tensor
    ) -> None:
        error = out - y.unsqueeze(1)
        torch.mul(error, 2 / out.shape[2], out=out_g)
        totals.add_(error.square_())

    def look(
        self, out: torch.Tensor, y: torch.Tensor, counts: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        squares = (out - y.unsqueeze(-2)).square_()
        if counts is not None:
            squares = squares * counts.unsqueeze(1)
        total = squares.sum((1, 2), dtype=torch.float64)
        return total, total


class _PackPinball(_PackSquaredError):
    """See `losses.Pinball`."""

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

    def look(
        self, out: torch.Tensor, y: torch.Tensor, counts: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        losses = self._losses(y.unsqueeze(-2) - out)
        if counts is not None:
            losses = losses * counts.unsqueeze(1)
        squares = super().look(out, y, counts)[1]
        return losses.sum((1, 2), dtype=torch.float64), squares

    def _losses(self, error: torch.Tensor) -> torch.Tensor:
        return self._factor * torch.maximum(self._quantile * error, (self._quantile - 1) * error)


def make_pack_loss(
    task: Task, weights: torch.Tensor | None = None, loss: ValueLoss = SQUARED_ERROR
) -> PackLoss:
    """The loss of a task; `weights` (C,): what a row of each class counts, None: the same; of
    numbers `loss`."""
    if task is not Task.regression:
        return _PackCrossEntropy(weights)
    if loss.name == "squared_error":
        return _PackSquaredError()
    assert loss.name in ("absolute_error", "quantile"), "families refuse what they do not have"
    return _PackPinball(loss.quantile) if loss.name == "quantile" else _PackPinball(0.5, 2.0)
