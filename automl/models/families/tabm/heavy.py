"""Defines batch ensembles of MLPs: all members in one pass, as more rows of the same matrices.

A step of 16 members costs as much as a step of one network with batches 16 times as large.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  torch's own documentation names it so
from torch import nn

from automl.models.families.mlp.family import MLPParams
from automl.models.families.mlp.heavy import check_weights, make_layers, rates_of, read_layers
from automl.models.families.mlp.network import (
    MLPNetwork,
    PiecewiseLinearEncoding,
    RateOutput,
    dropout_mask,
)
from automl.models.families.tabm.family import MAX_MEMBERS, TabMFamily
from automl.models.family import NetworkBuilder
from automl.models.model_file import check_content, is_positive_size
from automl.models.networks.network_estimator import NetworkHeavySide
from automl.models.networks.trainer import TrainingProblem


class SharedLinear(nn.Module):
    """A linear layer (B, K, n_in) → (B, K, n_out) with scales and a bias for each member."""

    def __init__(self, n_members: int, n_in: int, n_out: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_out, n_in, dtype=dtype))
        self.scale_in = nn.Parameter(torch.ones(n_members, n_in, dtype=dtype))
        self.scale_out = nn.Parameter(torch.ones(n_members, n_out, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(n_members, n_out, dtype=dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x * self.scale_in, self.weight) * self.scale_out + self.bias


class TabM(nn.Module):
    """A batch ensemble. It gives the outputs of each member (B, K, n_outputs) while training, and
    else their mean (B, n_outputs)."""

    def __init__(
        self,
        network: TabMNetwork,
        dtype: torch.dtype = torch.float32,
        generator: torch.Generator | None = None,
    ) -> None:
        """Make undrawn layers. While training, masks for dropout are drawn from `generator`."""
        super().__init__()
        shape, n_members = network.shape, network.n_members
        sizes = zip(shape.sizes, shape.hidden_widths, strict=False)
        self.layers = nn.ModuleList(SharedLinear(n_members, a, b, dtype) for a, b in sizes)
        n_last, n_outputs = shape.sizes[-2:]
        self.last = nn.Parameter(torch.empty(n_members, n_last, n_outputs, dtype=dtype))
        self.last_bias = nn.Parameter(torch.zeros(n_members, 1, n_outputs, dtype=dtype))
        self.n_members, self.dropout, self.generator = n_members, network.dropout, generator
        self.rates = network.rates
        self.encoding = (
            None if network.bins is None else PiecewiseLinearEncoding(network.bins.edges, dtype)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs for rows (B, n_inputs)."""
        if self.encoding is not None:
            x = self.encoding(x)
        x = x.unsqueeze(1).expand(-1, self.n_members, -1)
        for layer in self.layers:
            x = torch.relu(layer(x))
            if self.training and self.dropout > 0:
                x = x * dropout_mask(x, self.dropout, self.generator)
        out = (torch.bmm(x.transpose(0, 1), self.last) + self.last_bias).transpose(0, 1)
        out = out if self.rates is None else self.rates.scaled(out)
        return out if self.training else mean_of_members(out)


def mean_of_members(out: torch.Tensor) -> torch.Tensor:
    """Return scores (B, C) whose softmax is the mean of the members' (B, K, C), or means (B, 1)."""
    if out.shape[2] == 1:
        return out.mean(1)
    return torch.logsumexp(torch.log_softmax(out, 2), 1) - math.log(out.shape[1])


@torch.no_grad()
def draw_weights(model: TabM, generator: torch.Generator) -> None:
    """Draw weights like those of an MLP, with other signs and last layers for each member."""
    for layer in model.layers:
        assert isinstance(layer, SharedLinear)
        bound = math.sqrt(6.0 / layer.weight.shape[1])
        layer.weight.uniform_(-bound, bound, generator=generator)
    for layer in list(model.layers)[:1]:
        assert isinstance(layer, SharedLinear)
        layer.scale_in.bernoulli_(0.5, generator=generator).mul_(2).sub_(1)
    bound = math.sqrt(1.0 / model.last.shape[1])
    model.last.uniform_(-bound, bound, generator=generator)


@dataclass(frozen=True)
class TabMNetwork(MLPNetwork):
    """A `network.NetworkDescription` of a batch ensemble."""

    members: int = 16

    @property
    def n_members(self) -> int:
        return self.members

    def build(self, dtype: torch.dtype, device: torch.device, seed: int) -> nn.Module:
        model = TabM(self, dtype, torch.Generator(device))
        draw_weights(model, torch.Generator().manual_seed(seed))
        return model.to(device)

    def plain(self) -> dict[str, Any]:
        return {**super().plain(), "members": self.members}

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        shape, k = self.shape, self.members
        shapes: dict[str, tuple[int, ...]] = {}
        for i, (n_in, n_out) in enumerate(zip(shape.sizes, shape.hidden_widths, strict=False)):
            own = {"weight": (n_out, n_in), "scale_in": (k, n_in), "scale_out": (k, n_out)}
            shapes |= {f"layers.{i}.{n}": s for n, s in {**own, "bias": (k, n_out)}.items()}
        n_last, n_outputs = shape.sizes[-2:]
        return shapes | {"last": (k, n_last, n_outputs), "last_bias": (k, 1, n_outputs)}


class TabMHeavySide(NetworkHeavySide):
    """The `family.HeavySide` of batch ensembles."""

    def network(self, problem: TrainingProblem, params: MLPParams) -> TabMNetwork:
        shape, bins = make_layers(problem, params)
        assert isinstance(problem.family, TabMFamily), "the family of this module"
        return TabMNetwork(shape, params.dropout, bins, rates_of(problem), problem.family.members)

    def network_of(
        self,
        plain: Mapping[str, Any],
        weights: Mapping[str, torch.Tensor],
        build: NetworkBuilder | None,
    ) -> TabMNetwork:
        members = plain["members"]
        check_content(is_positive_size(members) and members <= MAX_MEMBERS, "no members", members)
        shape, bins = read_layers(plain)
        return check_weights(
            TabMNetwork(shape, bins=bins, rates=RateOutput.from_plain(plain), members=members),
            weights,
        )


SIDE = TabMHeavySide()
