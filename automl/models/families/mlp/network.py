"""Defines the built-in network, an MLP, and how it encodes numbers (the param `encoding`).

Weights and dropout are drawn from generators of the network. A pack trains many of these networks
as one batched model, so the arithmetic stays plain: x W' + b, ReLU, and dropout by a mask that is
drawn in the shape (B, width) of the layer's own width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from automl.data.features import Edges
from automl.models.families.mlp.family import PIECEWISE_LINEAR_ENCODING
from automl.models.model_file import check_content, is_positive_size

EDGES_KEY = "edges"
"""Key of the bins' edges in the plain form of a network that has bins."""


class PiecewiseLinearEncoding(nn.Module):
    """Encodes each number as how full each of its bins is, from 0 to 1: (B, D) → (B, E).

    Other features stay as they are (Gorishniy et al., 2022, https://arxiv.org/abs/2203.05556). In
    the paper, the outermost bins extend beyond their edges. Here they do not, so that one absurd
    cell in production cannot decide alone.
    """

    place: torch.Tensor
    low: torch.Tensor
    width: torch.Tensor

    def __init__(self, edges: Edges, dtype: torch.dtype) -> None:
        super().__init__()
        self._n_numbers = len(edges)
        bins = [(i, low, high - low) for i, e in enumerate(edges) for low, high in pairwise(e)]
        place, low, width = zip(*bins, strict=True)
        # These are no weights, and the network's description has them, so state_dict does not.
        self.register_buffer("place", torch.tensor(place, dtype=torch.int64), persistent=False)
        self.register_buffer("low", torch.tensor(low, dtype=dtype), persistent=False)
        self.register_buffer("width", torch.tensor(width, dtype=dtype), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the encoded rows (B, E)."""
        full = ((x.index_select(1, self.place) - self.low) / self.width).clamp(0.0, 1.0)
        return torch.cat([full, x[:, self._n_numbers :]], 1)


@dataclass(frozen=True)
class EncodingBins:
    """The bins that encode the numbers of rows (B, n_inputs); at least one column has edges."""

    n_inputs: int
    edges: Edges

    @property
    def n_features(self) -> int:
        """Number E of features that the first layer takes."""
        n_bins = sum(len(edges) - 1 for edges in self.edges if edges)
        return self.n_inputs - len(self.edges) + n_bins

    def build(self, dtype: torch.dtype, device: torch.device) -> PiecewiseLinearEncoding:
        return PiecewiseLinearEncoding(self.edges, dtype).to(device)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> EncodingBins | None:
        """Read the bins in a stranger's description; None: it has none. Raises ValueError."""
        edges = plain.get(EDGES_KEY)
        if edges is None:
            return None
        check_content(is_positive_size(plain["n_inputs"]), "no inputs", plain["n_inputs"])
        is_list = isinstance(edges, list | tuple) and len(edges) <= plain["n_inputs"]
        check_content(is_list and all(map(_is_rising, edges)), "no edges", edges)
        check_content(any(map(len, edges)), "no edges", edges)
        return cls(plain["n_inputs"], tuple(map(tuple, edges)))


def bins_for(encoding: str, n_inputs: int, get_edges: Callable[[], Edges]) -> EncodingBins | None:
    """Return the bins of a trial's network; None: rows stay as they are."""
    if encoding != PIECEWISE_LINEAR_ENCODING:
        return None
    edges = get_edges()
    return EncodingBins(n_inputs, edges) if any(edges) else None


def _is_rising(edges: object) -> bool:
    """Return whether edges are empty, or at least two finite numbers that rise as float32."""
    if not isinstance(edges, list | tuple) or len(edges) == 1:
        return False
    if not all(type(edge) is float for edge in edges):
        return False
    widths = torch.tensor(edges, dtype=torch.float32).diff()
    return bool((widths > 0).all() and widths.isfinite().all())


@dataclass(frozen=True)
class MLPShape:
    """The layers of a network: all that is needed to build it again."""

    n_inputs: int
    hidden_widths: tuple[int, ...]
    n_outputs: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """Units of each layer, inputs and outputs included."""
        return (self.n_inputs, *self.hidden_widths, self.n_outputs)


_LARGEST_LOG = 30.0
"""Largest logarithm of a rate, as a multiple of the mean: exp of more leaves float32."""
RATES_KEY = "rates"
"""Key of a `RateOutput` in the plain form of a network that has one."""


@dataclass(frozen=True)
class RateOutput:
    """Makes scaled values of the logarithms of rates (`training.loss=poisson`) that layers give.

    A logarithm of 0 stands for the mean of the target.
    """

    mean: float
    scale: float

    def scaled(self, logs: torch.Tensor) -> torch.Tensor:
        """Return values in the unit of scaled targets."""
        return (logs.clamp(max=_LARGEST_LOG).exp() - 1) * (self.mean / self.scale)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> RateOutput | None:
        """Read the unit in a stranger's description; None: it has none. Raises ValueError."""
        unit = plain.get(RATES_KEY)
        if unit is None:
            return None
        is_list = isinstance(unit, list | tuple) and len(unit) == 2
        fits = is_list and all(type(x) is float and math.isfinite(x) for x in unit)
        check_content(fits and unit[0] >= 0 and unit[1] > 0, "no unit of rates", unit)
        return cls(*unit)


class _UndrawnLinear(nn.Linear):
    """A linear layer that draws no weights. `skip_init` would take 0.5 s at first."""

    def reset_parameters(self) -> None:
        return


def dropout_mask(
    x: torch.Tensor, dropout: float, generator: torch.Generator | None
) -> torch.Tensor:
    """Return 0 for units left out, and 1 / (1 - dropout) for others; the same in each precision.

    It takes 100 µs for (256, 128) on one core; `bernoulli_` takes 244.
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
        bins: EncodingBins | None = None,
    ) -> None:
        """Make undrawn layers. Masks for `dropout` are drawn from `generator` while training."""
        super().__init__()
        pairs = pairwise(shape.sizes)
        self.layers = nn.ModuleList(_UndrawnLinear(a, b, dtype=dtype) for a, b in pairs)
        self.dropout, self.generator = dropout, generator
        self.encoding = None if bins is None else PiecewiseLinearEncoding(bins.edges, dtype)
        self.rates: RateOutput | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return outputs (B, n_outputs) for rows (B, n_inputs)."""
        *hidden, last = self.layers
        if self.encoding is not None:
            x = self.encoding(x)
        for layer in hidden:
            x = torch.relu(layer(x))
            if self.training and self.dropout > 0:
                x = x * dropout_mask(x, self.dropout, self.generator)
        out: torch.Tensor = last(x)
        return out if self.rates is None else self.rates.scaled(out)


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
    """A `network.NetworkDescription` of the built-in network."""

    shape: MLPShape
    """Shape of the layers; the first takes the encoded numbers if there are bins."""
    dropout: float = 0.0
    bins: EncodingBins | None = None
    rates: RateOutput | None = None
    """Unit of the rates whose logarithms the layers give; None: they give scores or values."""

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
        model.rates = self.rates
        draw_weights(model, torch.Generator().manual_seed(seed))
        return model.to(device)

    def seed_draws(self, module: nn.Module, seed: int) -> None:
        generator = module.generator
        assert isinstance(generator, torch.Generator), "made by `build`"
        generator.manual_seed(seed)

    def plain(self) -> dict[str, Any]:
        plain = asdict(self.shape)
        if self.rates is not None:
            plain[RATES_KEY] = [self.rates.mean, self.rates.scale]
        if self.bins is None:
            return plain
        edges = [list(edges) for edges in self.bins.edges]
        return {**plain, "n_inputs": self.n_inputs, EDGES_KEY: edges}

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the module's weights, by name."""
        shapes: dict[str, tuple[int, ...]] = {}
        for i, (n_in, n_out) in enumerate(pairwise(self.shape.sizes)):
            shapes |= {f"layers.{i}.weight": (n_out, n_in), f"layers.{i}.bias": (n_out,)}
        return shapes
