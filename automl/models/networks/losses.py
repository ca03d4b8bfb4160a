"""The losses that the training of a network descends, and the misses counted on validation rows.

Class scores have shape (B, C) for targets (B,), or (B, C, …) for targets (B, …), as in torch.
Numbers have shape (B, 1) for targets (B,), else the shape of their targets. The losses of packs are
in `packs/mlp_pass.py`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812  torch's own documentation names it so

from automl.config.metrics import SQUARED_ERROR, ValueLoss
from automl.data.dataset import NetworkOutputs, Size
from automl.in_trial.user_code import resolve_loss


class TrainingLoss(Protocol):
    """A function of outputs and targets that training descends."""

    def check(self, out: torch.Tensor, y: torch.Tensor) -> None:
        """Raise ValueError if the outputs do not have the shape that the loss takes."""

    def mean(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the mean loss over a batch."""


class EvaluatedLoss(TrainingLoss, Protocol):
    """A loss that also counts misses. A row counts with the mean over its targets."""

    def total(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the sum of the loss over rows."""

    def misses(self, out: torch.Tensor, y: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        """Return the sum of wrong classes, or of squared errors; `total` is the sum of the loss."""


class CrossEntropy:
    """The cross entropy of class scores; targets are class numbers."""

    def __init__(self, n_classes: int, weights: torch.Tensor | None = None) -> None:
        """Take the weight (C,) of a row of each class in the mean; None weighs all rows alike."""
        self.n_classes, self._weights = n_classes, weights

    def check(self, out: torch.Tensor, y: torch.Tensor) -> None:
        _check_shape(out, (len(y), self.n_classes, *y.shape[1:]), y)

    def mean(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if self._weights is None:
            return F.cross_entropy(out, y)
        weights = self._weights.to(out.dtype)[y]
        return (F.cross_entropy(out, y, reduction="none") * weights).mean()

    def total(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return _sum_of_row_means(F.cross_entropy(out, y, reduction="sum"), y)

    def misses(self, out: torch.Tensor, y: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        return _sum_of_row_means((out.argmax(1) != y).sum(), y)


class SquaredError:
    """The squared error of numbers; the targets of a table are scaled."""

    def check(self, out: torch.Tensor, y: torch.Tensor) -> None:
        _check_shape(out, (len(y), 1) if y.ndim == 1 else tuple(y.shape), y)

    def mean(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.mse_loss(_as_targets(out, y), y)

    def total(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return _sum_of_row_means(F.mse_loss(_as_targets(out, y), y, reduction="sum"), y)

    def misses(self, out: torch.Tensor, y: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        return total


class _ErrorPerTarget(SquaredError, ABC):
    """A loss that is a mean over targets. Misses are squared errors."""

    def mean(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self._per_target(out, y).mean()

    def total(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return _sum_of_row_means(self._per_target(out, y).sum(), y)

    def misses(self, out: torch.Tensor, y: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        return super().total(out, y)

    @abstractmethod
    def _per_target(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the loss of each target, in the shape of `y`."""


class Pinball(_ErrorPerTarget):
    """The loss of numbers that is minimal at a quantile (Koenker and Bassett, 1978).

    At the quantile 0.5, doubled, it is the absolute error.
    """

    def __init__(self, quantile: float, factor: float = 1.0) -> None:
        self.quantile, self._factor = quantile, factor

    def _per_target(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        error = y - _as_targets(out, y)
        return self._factor * torch.maximum(self.quantile * error, (self.quantile - 1) * error)


_LEAST_SHARE = 1e-6
"""Share of the target's scale that a rate counts as at least, as in `data/scoring/metrics.py`."""


class PoissonDeviance(_ErrorPerTarget):
    """The deviance of rates (twice the log-likelihood ratio of Poisson), given as scaled values."""

    def __init__(self, mean: float, scale: float) -> None:
        self._mean, self._scale = mean, scale

    def _per_target(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        rates = (_as_targets(out, y) * self._scale + self._mean).clamp(_LEAST_SHARE * self._scale)
        counts = (y * self._scale + self._mean).clamp(0.0)
        # Not counts · log(counts / rates): its gradient is 0 / 0 where a count is 0.
        return 2 * (torch.xlogy(counts, counts) - counts * rates.log() - counts + rates)


class UserLoss:
    """A loss function from the user's code: (outputs, targets) → the mean over a batch.

    Misses are those of the built-in loss for the same targets. Without a built-in loss, `misses`
    returns the sum of the loss.
    """

    def __init__(self, target: str, built_in: CrossEntropy | SquaredError | None) -> None:
        self._target, self._built_in = target, built_in
        self._function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = resolve_loss(target)

    def check(self, out: torch.Tensor, y: torch.Tensor) -> None:
        if self._built_in is not None:
            self._built_in.check(out, y)

    def mean(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the mean over a batch. Raises TypeError if the function returns another thing."""
        if isinstance(self._built_in, SquaredError):
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
        if isinstance(self._built_in, SquaredError):
            return self._built_in.total(out, y)
        return total if self._built_in is None else self._built_in.misses(out, y, total)


class MemberwiseLoss:
    """A loss for networks with several outputs per row, (B, K, …); each output counts by itself."""

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
    unit: tuple[float, float] = (0.0, 1.0),
) -> EvaluatedLoss:
    """Return the loss for these outputs: the user's function that `target` names, else a built-in.

    `value_loss` is the built-in loss of numbers, and `unit` the mean and scale of a table's. Raises
    ConfigError if `target` cannot be loaded.
    """
    built_in: CrossEntropy | SquaredError | None = None
    if outputs is NetworkOutputs.SCORES:
        assert isinstance(n_outputs, int), "a number of classes"
        built_in = CrossEntropy(n_outputs)
    elif outputs is NetworkOutputs.NUMBERS:
        built_in = _make_value_loss(value_loss, unit)
    if target is not None:
        return UserLoss(target, built_in)
    assert built_in is not None, "only a loss of the user's takes any outputs"
    return built_in


def _make_value_loss(loss: ValueLoss, unit: tuple[float, float]) -> SquaredError:
    if loss.name == "poisson":
        return PoissonDeviance(*unit)
    if loss.name == "absolute_error":
        return Pinball(0.5, 2.0)
    assert loss.name in ("squared_error", "quantile"), "families refuse what they do not have"
    return Pinball(loss.quantile) if loss.name == "quantile" else SquaredError()


def weight_classes(loss: EvaluatedLoss, weights: torch.Tensor) -> EvaluatedLoss:
    """Return the loss with a weight (C,) for the rows of each class.

    The mean weight over the training part is 1. Only the mean that training descends changes, not
    the sums on validation rows.
    """
    assert isinstance(loss, CrossEntropy), "check_class_weight refuses others"
    return CrossEntropy(loss.n_classes, weights)


def _as_targets(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return outputs (B, 1) as (B,) for targets (B,), which would else broadcast to (B, B)."""
    return out.squeeze(1) if y.ndim == 1 else out


def _as_rows(out: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return outputs (B, K, …) and targets (B,) as (B · K, …) and (B · K,)."""
    return out.flatten(0, 1), y.repeat_interleave(out.shape[1], 0)


def _sum_of_row_means(total: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return a sum over all targets as the sum over rows of the mean over a row's targets."""
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
