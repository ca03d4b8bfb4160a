"""SGD, Adam and AdamW for all lanes at once, each lane with its own learning rate and other params.

The formulas are those of `networks/optimizers.py`; torch's own kernels take one learning rate for
all. A number that differs per lane but not per step is spread once over a vector as long as the
weights. Adam's bias corrections differ per step too, and are applied region by region.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812  torch's own documentation names it so

from automl.models.networks.network_family import TrainingParams
from automl.models.networks.optimizers import CLIP_EPS, average_rate
from automl.models.networks.packs.layout import LaneWeights, PackLayout

AnyLanes: TypeAlias = LaneWeights[PackLayout]
Numbers: TypeAlias = Sequence[Sequence[float]]
_EPS = 1e-8


class PackOptimizer(Protocol):
    """An optimizer that steps all lanes in place; each layout has a new one."""

    moments: Mapping[str, AnyLanes]
    """The optimizer's state, by the names of `FlatOptimizer.state`."""

    def begin_epoch(
        self, n_steps: Sequence[int], n_batches: int, lr_factors: Numbers | None = None
    ) -> None:
        """Prepare for an epoch of `n_batches` steps.

        `n_steps` are the steps that each lane has made before. `lr_factors` (K, S) are the factors
        of each lane's learning rate in the steps of the epoch; None means 1.
        """

    def step(self, index: int) -> None:
        """Take one step along the gradients; `index` counts from the epoch's start."""


class _PackSGD:
    """Gradient descent with momentum; weight decay is added to the gradient."""

    def __init__(self, values: AnyLanes, grads: AnyLanes, params: Sequence[TrainingParams]) -> None:
        self._values, self._grads = values.flat, grads.flat
        momentum = _like(values)
        self.moments: Mapping[str, AnyLanes] = {"momentum": momentum}
        self._momentum = momentum.flat
        self._minus_lr = _spread(values, [-p.lr for p in params])
        self._keep = _spread(values, [p.momentum for p in params])
        self._decay = _spread(values, [p.weight_decay for p in params])
        self._decays = any(p.weight_decay > 0 for p in params)
        self._work = _like(values)
        self._parts = list(self._work.views.values())
        self._factors: list[list[torch.Tensor]] | None = None

    def begin_epoch(
        self, n_steps: Sequence[int], n_batches: int, lr_factors: Numbers | None = None
    ) -> None:
        """Cut the learning-rate factors up by region."""
        if lr_factors is not None:
            self._factors = by_region(self._work, _float64(lr_factors).t())

    def step(self, index: int) -> None:
        if self._decays:
            self._grads.addcmul_(self._values, self._decay)
        torch.addcmul(self._grads, self._momentum, self._keep, out=self._momentum)
        if self._factors is None:
            self._values.addcmul_(self._momentum, self._minus_lr)
            return
        torch.mul(self._momentum, self._minus_lr, out=self._work.flat)
        torch._foreach_mul_(self._parts, self._factors[index])
        self._values.add_(self._work.flat)


class _PackAdam:
    """Adam (Kingma and Ba, 2015) or AdamW (Loshchilov and Hutter, 2019)."""

    def __init__(self, values: AnyLanes, grads: AnyLanes, params: Sequence[TrainingParams]) -> None:
        self._values, self._grads = values.flat, grads.flat
        self._value_parts = list(values.views.values())
        mean, square, self._work = _like(values), _like(values), _like(values)
        self.moments: Mapping[str, AnyLanes] = {"mean": mean, "square": square}
        self._mean, self._square = mean.flat, square.flat
        self._params = params
        self._new_mean = _spread(values, [1 - p.beta1 for p in params])
        self._new_square = _spread(values, [1 - p.beta2 for p in params])
        self._decoupled = params[0].optimizer == "adamw"
        self._decays = any(p.weight_decay > 0 for p in params)
        decay = [1 - p.lr * p.weight_decay if self._decoupled else p.weight_decay for p in params]
        self._decay = _spread(values, decay)
        self._parts = list(self._work.views.values())
        self._eps: list[list[torch.Tensor]] = []
        self._lr: list[list[torch.Tensor]] = []
        self._keep: list[list[torch.Tensor]] | None = None
        """The factor that weight decay leaves of the weights in each step; None if constant."""

    def begin_epoch(
        self, n_steps: Sequence[int], n_batches: int, lr_factors: Numbers | None = None
    ) -> None:
        """Compute the bias corrections of each step, and cut them up by region."""
        # Powers by Python: torch's differ in the last bit with the place in a tensor.
        steps = [range(n + 1, n + 1 + n_batches) for n in n_steps]
        c1, c2 = (
            _float64([[1 - beta**t for t in ts] for beta, ts in zip(betas, steps, strict=True)])
            for betas in ([p.beta1 for p in self._params], [p.beta2 for p in self._params])
        )
        lr = _float64([p.lr for p in self._params]).unsqueeze(1)
        if lr_factors is not None:
            lr = lr * _float64(lr_factors)
            decays = _float64([p.weight_decay for p in self._params]).unsqueeze(1)
            self._keep = by_region(self._work, (1 - lr * decays).t())
        # lr/c1 · m / (√v/√c2 + ε) = (lr √c2/c1) · m / (√v + ε √c2)
        self._eps = by_region(self._work, (_EPS * c2.sqrt()).t())
        self._lr = by_region(self._work, (lr * c2.sqrt() / c1).t())

    def step(self, index: int) -> None:
        if self._decays and self._decoupled and self._keep is not None:
            torch._foreach_mul_(self._value_parts, self._keep[index])
        elif self._decays and self._decoupled:
            self._values.mul_(self._decay)
        elif self._decays:
            self._grads.addcmul_(self._values, self._decay)
        work = self._work.flat
        self._mean.lerp_(self._grads, self._new_mean)
        torch.mul(self._grads, self._grads, out=work)
        self._square.lerp_(work, self._new_square)
        torch.sqrt(self._square, out=work)
        torch._foreach_add_(self._parts, self._eps[index])
        torch.div(self._mean, work, out=work)
        torch._foreach_mul_(self._parts, self._lr[index])
        self._values.sub_(work)


class PackWeightAverage:
    """The moving averages of all lanes' weights, each with a decay of its own."""

    def __init__(self, values: AnyLanes, params: Sequence[TrainingParams]) -> None:
        self._values, self._params = values, params
        self.lanes, self._work = _like(values), _like(values)
        self._parts = list(self._work.views.values())
        self._rates: list[list[torch.Tensor]] = []

    def begin_epoch(self, n_steps: Sequence[int], n_batches: int) -> None:
        """Prepare for an epoch, as `PackOptimizer.begin_epoch` does."""
        rates = [
            [average_rate(p.ema_decay, step) for step in range(n, n + n_batches)]
            for p, n in zip(self._params, n_steps, strict=True)
        ]
        self._rates = by_region(self._work, _float64(rates).t())

    def step(self, index: int) -> None:
        """Move the averages after a step of the optimizer; `index` counts in the epoch."""
        torch.sub(self._values.flat, self.lanes.flat, out=self._work.flat)
        torch._foreach_mul_(self._parts, self._rates[index])
        self.lanes.flat.add_(self._work.flat)


def make_pack_average(
    values: AnyLanes, params: Sequence[TrainingParams]
) -> PackWeightAverage | None:
    """Return an average of all lanes' weights, or None if no lane asks for it."""
    return PackWeightAverage(values, params) if any(p.ema_decay > 0 for p in params) else None


def by_region(lanes: AnyLanes, numbers: torch.Tensor) -> list[list[torch.Tensor]]:
    """Return for each step of (S, K) one tensor per region, which broadcasts over the region."""
    numbers = F.pad(numbers, (0, 1), value=1.0).to(lanes.flat)
    columns = [region.rows(numbers).unbind(0) for region in lanes.layout.regions.values()]
    return [list(step) for step in zip(*columns, strict=True)]


class _PackGradientClip:
    """Scales each lane's gradient down to a norm of its own, as `FlatParameters.clip` does."""

    def __init__(self, grads: AnyLanes, norms: Sequence[float]) -> None:
        self._grads = grads
        self._norms = torch.tensor(norms, dtype=grads.flat.dtype, device=grads.flat.device)

    def __call__(self) -> None:
        regions, views = self._grads.layout.regions, self._grads.views
        squares = torch.zeros_like(self._norms)
        for name, region in regions.items():
            own = views[name][: region.n_lanes].reshape(region.n_lanes, -1)
            squares[region.first : region.first + region.n_lanes] += own.square().sum(1)
        scales = (self._norms / (squares.sqrt() + CLIP_EPS)).clamp(max=1.0)
        scales = F.pad(scales.where(self._norms.isfinite(), 1.0), (0, 1), value=1.0)
        for name, region in regions.items():
            views[name].mul_(region.rows(scales))


def make_pack_clip(grads: AnyLanes, params: Sequence[TrainingParams]) -> Callable[[], None] | None:
    """Return a function that clips the gradients of all lanes, or None if no lane asks for it."""
    if all(p.clip_norm is None for p in params):
        return None
    return _PackGradientClip(
        grads, [math.inf if p.clip_norm is None else p.clip_norm for p in params]
    )


def make_pack_optimizer(
    values: AnyLanes, grads: AnyLanes, params: Sequence[TrainingParams]
) -> PackOptimizer:
    """Return the optimizer that all of `params` name."""
    if params[0].optimizer == "sgd":
        return _PackSGD(values, grads, params)
    return _PackAdam(values, grads, params)


def _float64(numbers: Sequence[Any]) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def _like(lanes: AnyLanes) -> AnyLanes:
    return LaneWeights(lanes.layout, lanes.flat.dtype, lanes.flat.device)


def _spread(lanes: AnyLanes, numbers: Sequence[float]) -> torch.Tensor:
    spread = _like(lanes)
    spread.fill(numbers)
    return spread.flat
