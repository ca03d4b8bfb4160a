"""SGD, Adam and AdamW on all of a network's weights at once, with their schedules.

The weights are views of one flat tensor, so a step is one call of torch's own fused kernel whatever
the depth: 15–20 µs for 2,000 weights where `torch.optim.AdamW` takes 44, 0.5 ms for 700,000 where
it takes 2.8. The first optimizer object of a process would load torch's compiler, 0.9 s.
`packs/optimizers.py` repeats torch's formulas per lane.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from automl.config import LearningRateSchedule
from automl.models.networks.network_family import TrainingParams

_EPS = 1e-8
CLIP_EPS = 1e-6  # torch's


class FlatParameters:
    """A module's trained parameters and gradients in one flat tensor each (P,), at least one."""

    def __init__(self, module: nn.Module) -> None:
        parameters = [p for p in module.parameters() if p.requires_grad]
        if not parameters:
            raise ValueError(f"{type(module).__name__} has no parameter that requires a gradient.")
        self.values = torch.cat([p.detach().reshape(-1) for p in parameters])
        self.grads = torch.zeros_like(self.values)
        start = 0
        for parameter in parameters:
            end = start + parameter.numel()
            parameter.data = self.values[start:end].view_as(parameter)
            parameter.grad = self.grads[start:end].view_as(parameter)  # backward adds in place
            start = end

    @contextmanager
    def replaced(self, values: torch.Tensor | None) -> Iterator[None]:
        """Give the module these values within the `with`; None leaves its own."""
        if values is None:
            yield
            return
        own = self.values.clone()
        self.values.copy_(values)
        try:
            yield
        finally:
            self.values.copy_(own)

    def clip(self, norm: float) -> None:
        """Scale the gradient down to this norm if it is larger, as torch's clip_grad_norm_."""
        self.grads.mul_((norm / (self.grads.norm() + CLIP_EPS)).clamp(max=1.0))


class FlatOptimizer(Protocol):
    """An optimizer that changes `FlatParameters` in place; its state is plain tensors."""

    def step(self, lr_factor: float = 1.0) -> None:
        """Take one step along the gradient, with the learning rate times `lr_factor`."""

    def state(self) -> dict[str, torch.Tensor]:
        """Return the live tensors by name, for a checkpoint."""


class _FlatSGD:
    """Gradient descent with momentum; weight decay is added to the gradient."""

    def __init__(self, flat: FlatParameters, params: TrainingParams) -> None:
        self._flat, self._params = flat, params
        self._momentum = torch.zeros_like(flat.values)

    def step(self, lr_factor: float = 1.0) -> None:
        sgd(
            [self._flat.values],
            [self._flat.grads],
            [self._momentum],
            weight_decay=self._params.weight_decay,
            momentum=self._params.momentum,
            lr=self._params.lr * lr_factor,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            fused=True,
        )

    def state(self) -> dict[str, torch.Tensor]:
        return {"momentum": self._momentum}


class _FlatAdam:
    """Adam (Kingma and Ba, 2015) or AdamW (Loshchilov and Hutter, 2019)."""

    def __init__(self, flat: FlatParameters, params: TrainingParams) -> None:
        self._flat, self._params = flat, params
        self._function: Any = adamw if params.optimizer == "adamw" else adam
        self._mean = torch.zeros_like(flat.values)
        self._square = torch.zeros_like(flat.values)
        self._n_steps = torch.zeros((), dtype=torch.float32, device=flat.values.device)

    def step(self, lr_factor: float = 1.0) -> None:
        self._function(
            [self._flat.values],
            [self._flat.grads],
            [self._mean],
            [self._square],
            [],
            [self._n_steps],
            amsgrad=False,
            beta1=self._params.beta1,
            beta2=self._params.beta2,
            lr=self._params.lr * lr_factor,
            weight_decay=self._params.weight_decay,
            eps=_EPS,
            maximize=False,
            fused=True,
        )

    def state(self) -> dict[str, torch.Tensor]:
        return {"mean": self._mean, "square": self._square, "n_steps": self._n_steps}


def make_optimizer(flat: FlatParameters, params: TrainingParams) -> FlatOptimizer:
    """Return the optimizer that `params.optimizer` names."""
    return _FlatSGD(flat, params) if params.optimizer == "sgd" else _FlatAdam(flat, params)


# The defaults of torch's OneCycleLR.
_RISE_FRACTION = 0.3
_FIRST_FACTOR = 1 / 25
_LAST_FACTOR = _FIRST_FACTOR / 1e4


def lr_factor(schedule: str, step: int, n_steps: int) -> float:
    """Return the factor of the learning rate in a step, counted from 0.

    cosine is torch's CosineAnnealingLR (Loshchilov and Hutter, 2017), onecycle its OneCycleLR
    without a cycle of momentum (Smith and Topin, 2018), each once over `n_steps`.
    """
    if schedule == LearningRateSchedule.cosine.value:
        return _between(1.0, 0.0, step / n_steps)
    if schedule == LearningRateSchedule.onecycle.value:
        top, last = _RISE_FRACTION * n_steps - 1, n_steps - 1
        if step <= top:
            return _between(_FIRST_FACTOR, 1.0, step / top if top > 0 else 1.0)
        return _between(1.0, _LAST_FACTOR, (step - top) / (last - top))
    return 1.0


def average_rate(decay: float, step: int) -> float:
    """Return the fraction by which the weight average moves to the weights after a step.

    Steps count from 0. The average keeps less at first, because it begins with drawn weights: after
    n steps it keeps at most (1 + n) / (10 + n), as TensorFlow's ExponentialMovingAverage.
    """
    return 1.0 - min(decay, (1 + step) / (10 + step))


def _between(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))
