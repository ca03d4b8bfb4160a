"""What training descends, and what is told of the validation part.

Class scores are (B, C) for targets (B,), or (B, C, …) for targets (B, …), as torch has it; numbers
are (B, 1) for targets (B,), else of their targets' shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812  torch's own documentation names it so

from automl.config.metrics import SQUARED_ERROR, ValueLoss
from automl.data.data_facts import NetworkOutputs, Size
from automl.objectives.user_code import resolve_loss


class TrainingLoss(Protocol):
    """What training descends."""

    def check(self, out: torch.Tensor, y: torch.Tensor) -> None:
        """Raise ValueError where the network does not give what the loss takes."""

    def mean(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Over a batch."""


class EvaluatedLoss(TrainingLoss, Protocol):
    """A loss with what counts as a miss. Sums are over rows, of means over a row's targets."""

    def total(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """The sum over rows."""

    def misses(self, out: torch.Tensor, y: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        """The sum over rows of wrong classes, or squared errors; `total` is that of the loss."""


class CrossEntropy:
    """Of class scores; targets are class numbers."""

    def __init__(self, n_classes: int, weights: torch.Tensor | None = None) -> None:
        """`weights` (C,): what a row of each class counts in the mean; None: all the same."""
        self.n_classes, self._weights = n_classes, weights

    def check(self, out: torch.Tensor, y: torch.Tensor) -> None:
        _check_shape(out, (len(y), self.n_classes, *y.shape[1:]), y)

    def mean(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if self._weights is None:
            return F.cross_entropy(out, y)
        weights = self._weights.to(out.dtype)[y]
        return (F.cross_entropy(out, y, reduction="none") * weights).mean()

    def total(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return _by_row(F.cross_entropy(out, y, reduction="sum"), y)

    def misses(self, out: torch.Tensor, y: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        return _by_row((out.argmax(1) != y).sum(), y)


class SquaredError:
    """Of numbers; a table's targets are scaled."""

    def check(self, out: torch.Tensor, y: torch.Tensor) -> None:
        _check_shape(out, (len(y), 1) if y.ndim == 1 else tuple(y.shape), y)

    def mean(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(_as_targets(out, y), y)

    def total(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return _by_row(F.mse_loss(_as_targets(out, y), y, reduction="sum"), y)

    def misses(self, out: torch.Tensor, y: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        return total


class Pinball(SquaredError):
    """Of numbers: what is minimal at a quantile (Koenker and Bassett, 1978); at a half, doubled,
    the absolute error. What counts as a miss is the squared error."""

    def __init__(self, quantile: float, factor: float = 1.0) -> None:
        self.quantile, self._factor = quantile, factor

    def mean(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self._per_target(out, y).mean()

    def total(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return _by_row(self._per_target(out, y).sum(), y)

    def misses(self, out: torch.Tensor, y: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        return super().total(out, y)

    def _per_target(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        error = y - _as_targets(out, y)
        return self._factor * torch.maximum(self.quantile * error, (self.quantile - 1) * error)


class UserLoss:
    """A function of the user's, (outputs, targets) → the mean over a batch. What counts as a miss
    is that of the loss of ours that would suit the targets, if one does."""

    def __init__(self, target: str, ours: CrossEntropy | SquaredError | None) -> None:
        self._target, self._ours = target, ours
        self._function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = resolve_loss(target)

    def check(self, out: torch.Tensor, y: torch.Tensor) -> None:
        if self._ours is not None:
            self._ours.check(out, y)

    def mean(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Raises TypeError where it gives no single number."""
        if isinstance(self._ours, SquaredError):
            out = _as_targets(out, y)
        loss = self._function(out, y)
        if not isinstance(loss, torch.Tensor) or loss.ndim:
            what = f"a tensor {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else repr(loss)
            raise TypeError(
                f"training.loss={self._target} returned {what[:100]} for outputs "
                f"{tuple(out.shape)}; it must return a tensor of one number, the mean over the "
                "batch."
            )
        return loss

    def total(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.mean(out, y) * len(y)

    def misses(self, out: torch.Tensor, y: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        if isinstance(self._ours, SquaredError):
            return self._ours.total(out, y)
        return total if self._ours is None else self._ours.misses(out, y, total)


class MemberwiseLoss:
    """Of a network that gives several outputs for a row, (B, K, …): each is judged by itself."""

    def __init__(self, loss: TrainingLoss) -> None:
        self._loss = loss

    def check(self, out: torch.Tensor, y: torch.Tensor) -> None:
        self._loss.check(*_as_rows(out, y))

    def mean(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self._loss.mean(*_as_rows(out, y))


def make_loss(
    target: str | None,
    outputs: NetworkOutputs,
    n_outputs: Size,
    value_loss: ValueLoss = SQUARED_ERROR,
) -> EvaluatedLoss:
    """That of such outputs (of numbers `value_loss`), or the function of the user's that `target`
    names. Raises ConfigError where it cannot be had."""
    ours: CrossEntropy | SquaredError | None = None
    if outputs is NetworkOutputs.SCORES:
        assert isinstance(n_outputs, int), "a number of classes"
        ours = CrossEntropy(n_outputs)
    elif outputs is NetworkOutputs.NUMBERS:
        ours = _of_values(value_loss)
    if target is not None:
        return UserLoss(target, ours)
    assert ours is not None, "only a loss of the user's takes any outputs"
    return ours


def _of_values(loss: ValueLoss) -> SquaredError:
    if loss.name == "absolute_error":
        return Pinball(0.5, 2.0)
    assert loss.name in ("squared_error", "quantile"), "families refuse what they do not have"
    return Pinball(loss.quantile) if loss.name == "quantile" else SquaredError()


def weight_classes(loss: EvaluatedLoss, weights: torch.Tensor) -> EvaluatedLoss:
    """The same with a weight for the rows of each class (C,), whose mean over the training part is
    1; only what is descended changes."""
    assert isinstance(loss, CrossEntropy), "check_class_weight refuses others"
    return CrossEntropy(loss.n_classes, weights)


def _as_targets(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A single number of each row without its dimension: else (B, 1) and (B,) make (B, B)."""
    return out.squeeze(1) if y.ndim == 1 else out


def _as_rows(out: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(B, K, …) and (B,) as (B · K, …) and (B · K,)."""
    return out.flatten(0, 1), y.repeat_interleave(out.shape[1], 0)


def _by_row(total: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A sum over all targets as one of means over those of a row."""
    return total if y.ndim == 1 else total / math.prod(y.shape[1:])


def _check_shape(out: torch.Tensor, wanted: tuple[int, ...], y: torch.Tensor) -> None:
    if out.shape == wanted:
        return
    last = out.ndim > 2 and tuple(out.movedim(-1, 1).shape) == wanted
    hint = ": scores of classes come second, as by out.movedim(-1, 1)" if last else ""
    names = {2: "(rows, n_outputs)"}.get(len(wanted), "(rows, n_outputs, …)")
    raise ValueError(
        f"the network returned {tuple(out.shape)} for {len(y)} rows; it must return {names}, "
        f"here {wanted}{hint}."
    )
