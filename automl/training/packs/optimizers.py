"""SGD, Adam and AdamW for all lanes at once, each lane with its own learning rate and the like.

The formulas are those of `optimizers.py`; torch's own kernels take one learning rate for all. What
differs per lane but not per step is spread once over a vector as long as the weights; Adam's bias
corrections differ per step too, and are applied region by region.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import torch
import torch.nn.functional as F  # noqa: N812  torch's own documentation names it so

from automl.training.optimizers import CLIP_EPS
from automl.training.packs.layout import Lanes, Layout
from automl.training.params import TrainingParams

AnyLanes: TypeAlias = Lanes[Layout]
_EPS = 1e-8


class PackOptimizer(Protocol):
    """Steps of all lanes in place. Made anew for each layout."""

    moments: Mapping[str, AnyLanes]
    """Its state, by the names that the alone trainer's checkpoint gives it."""

    def begin_epoch(self, n_steps: Sequence[int], n_batches: int) -> None:
        """Make ready for an epoch; `n_steps` are the steps that each lane has made before it."""

    def step(self, index: int) -> None:
        """One step along the gradients; `index` counts from the epoch's start."""


class _SGD:
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

    def begin_epoch(self, n_steps: Sequence[int], n_batches: int) -> None:
        """Nothing changes from step to step."""

    def step(self, index: int) -> None:
        if self._decays:
            self._grads.addcmul_(self._values, self._decay)
        torch.addcmul(self._grads, self._momentum, self._keep, out=self._momentum)
        self._values.addcmul_(self._momentum, self._minus_lr)


class _Adam:
    """Adam (Kingma and Ba, 2015) or AdamW (Loshchilov and Hutter, 2019)."""

    def __init__(self, values: AnyLanes, grads: AnyLanes, params: Sequence[TrainingParams]) -> None:
        self._lanes, self._values, self._grads = values, values.flat, grads.flat
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

    def begin_epoch(self, n_steps: Sequence[int], n_batches: int) -> None:
        """Compute the bias corrections of each step, and cut them up by region."""
        # Powers by Python: torch's differ in the last bit with the place in a tensor.
        steps = [range(n + 1, n + 1 + n_batches) for n in n_steps]
        c1, c2 = (
            _float64([[1 - beta**t for t in ts] for beta, ts in zip(betas, steps, strict=True)])
            for betas in ([p.beta1 for p in self._params], [p.beta2 for p in self._params])
        )
        lr = _float64([p.lr for p in self._params]).unsqueeze(1)
        # lr/c1 · m / (√v/√c2 + ε) = (lr √c2/c1) · m / (√v + ε √c2)
        self._eps = self._by_region((_EPS * c2.sqrt()).t())
        self._lr = self._by_region((lr * c2.sqrt() / c1).t())

    def step(self, index: int) -> None:
        if self._decays and self._decoupled:
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

    def _by_region(self, numbers: torch.Tensor) -> list[list[torch.Tensor]]:
        """(S, K) → for each step, a tensor per region that broadcasts over it."""
        numbers = F.pad(numbers, (0, 1), value=1.0).to(self._values)
        columns = [r.rows(numbers).unbind(0) for r in self._lanes.layout.regions.values()]
        return [list(step) for step in zip(*columns, strict=True)]


class _Clip:
    """Scales each lane's gradient down to a norm of its own; see `FlatParameters.clip`."""

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
    """What clips the gradients of all lanes; None where no lane asks for it."""
    if all(p.clip_norm is None for p in params):
        return None
    return _Clip(grads, [math.inf if p.clip_norm is None else p.clip_norm for p in params])


def make_pack_optimizer(
    values: AnyLanes, grads: AnyLanes, params: Sequence[TrainingParams]
) -> PackOptimizer:
    """The optimizer that all of `params` name."""
    if params[0].optimizer == "sgd":
        return _SGD(values, grads, params)
    return _Adam(values, grads, params)


def _float64(numbers: Sequence[Any]) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def _like(lanes: AnyLanes) -> AnyLanes:
    return Lanes(lanes.layout, lanes.flat.dtype, lanes.flat.device)


def _spread(lanes: AnyLanes, numbers: Sequence[float]) -> torch.Tensor:
    spread = _like(lanes)
    spread.fill(numbers)
    return spread.flat
