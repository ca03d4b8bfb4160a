"""The built-in network: an MLP, whose weights and dropout are drawn from generators of its own.

A pack trains many of these as one batched model, so the arithmetic stays plain: x W' + b, ReLU,
dropout by a mask that is drawn in the shape (B, width) of the layer's own width.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from automl.training.mlp.encoding import EDGES, Bins, PiecewiseLinear


@dataclass(frozen=True)
class MLPShape:
    """All that is needed to build the network again."""

    n_inputs: int
    hidden_widths: tuple[int, ...]
    n_outputs: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """Units of each layer, inputs and outputs included."""
        return (self.n_inputs, *self.hidden_widths, self.n_outputs)


class _UndrawnLinear(nn.Linear):
    """A Linear whose weights are not drawn from torch's global generator when it is made.

    `torch.nn.utils.skip_init` does the same, but costs 0.5 s at its first call (it loads torch's
    code for the meta device).
    """

    def reset_parameters(self) -> None:
        return


def dropout_mask(
    x: torch.Tensor, dropout: float, generator: torch.Generator | None
) -> torch.Tensor:
    """0 for the units left out, 1 / (1 - dropout) for those kept; the same in each precision.

    Not by `bernoulli_`, which takes 244 µs for (256, 128) on one core, and this 100.
    """
    uniform = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    return uniform.uniform_(generator=generator).ge_(dropout).mul_(1 / (1 - dropout))


class MLP(nn.Module):
    """Linear layers with ReLU between them; the last layer gives class scores, or one value."""

    def __init__(
        self,
        shape: MLPShape,
        dtype: torch.dtype = torch.float32,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
        bins: Bins | None = None,
    ) -> None:
        """`shape` is that behind the bins, if there are any. While training, masks for `dropout`
        > 0 are drawn from `generator`."""
        super().__init__()
        pairs = pairwise(shape.sizes)
        self.layers = nn.ModuleList(_UndrawnLinear(a, b, dtype=dtype) for a, b in pairs)
        self.dropout, self.generator = dropout, generator
        self.encoding = None if bins is None else PiecewiseLinear(bins.edges, dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, n_inputs) → (B, n_outputs)."""
        *hidden, last = self.layers
        if self.encoding is not None:
            x = self.encoding(x)
        for layer in hidden:
            x = torch.relu(layer(x))
            if self.training and self.dropout > 0:
                x = x * dropout_mask(x, self.dropout, self.generator)
        out: torch.Tensor = last(x)
        return out


@torch.no_grad()
def draw_weights(model: MLP, generator: torch.Generator) -> None:
    """Draw all weights in a fixed order; hidden layers after He et al. (2015), biases 0.

    The last layer is drawn narrower, by 1/√fan_in, so that training starts from even odds.
    """
    *hidden, last = model.layers
    for layer, gain in [*((layer, 6.0) for layer in hidden), (last, 1.0)]:
        assert isinstance(layer, nn.Linear)
        bound = math.sqrt(gain / layer.in_features)
        layer.weight.uniform_(-bound, bound, generator=generator)
        layer.bias.zero_()


@dataclass(frozen=True)
class MLPNetwork:
    """See `network.Network`."""

    shape: MLPShape
    """Of the layers; the first takes what the bins give, if there are any."""
    dropout: float = 0.0
    bins: Bins | None = None

    @property
    def n_inputs(self) -> int:
        return self.shape.n_inputs if self.bins is None else self.bins.n_inputs

    @property
    def n_outputs(self) -> int:
        return self.shape.n_outputs

    @property
    def n_members(self) -> int:
        return 1

    def build(self, dtype: torch.dtype, device: torch.device, seed: int) -> nn.Module:
        model = MLP(self.shape, dtype, self.dropout, torch.Generator(device), self.bins)
        draw_weights(model, torch.Generator().manual_seed(seed))
        return model.to(device)

    def seed_draws(self, module: nn.Module, seed: int) -> None:
        generator = module.generator
        assert isinstance(generator, torch.Generator), "made by `build`"
        generator.manual_seed(seed)

    def plain(self) -> dict[str, Any]:
        if self.bins is None:
            return asdict(self.shape)
        edges = [list(edges) for edges in self.bins.edges]
        return {**asdict(self.shape), "n_inputs": self.n_inputs, EDGES: edges}

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Of its module's weights, by name."""
        shapes: dict[str, tuple[int, ...]] = {}
        for i, (n_in, n_out) in enumerate(pairwise(self.shape.sizes)):
            shapes |= {f"layers.{i}.weight": (n_out, n_in), f"layers.{i}.bias": (n_out,)}
        return shapes
