"""What a network makes of a table's numbers before its first layer: the param `encoding`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from automl.data.bins import Edges
from automl.training.mlp.family import PIECEWISE_LINEAR
from automl.training.model_file import check, is_size

EDGES = "edges"
"""Stands in the plain form of a network that has bins."""


class PiecewiseLinear(nn.Module):
    """(B, D) → (B, E): each number as how far each of its bins is full, from 0 to 1, the rest as it
    is (Gorishniy et al., 2022, https://arxiv.org/abs/2203.05556).

    There the outermost bins go on beyond their edges; here none does: one absurd cell in production
    must not decide alone.
    """

    place: torch.Tensor
    low: torch.Tensor
    width: torch.Tensor

    def __init__(self, edges: Edges, dtype: torch.dtype) -> None:
        super().__init__()
        self._n_numbers = len(edges)
        bins = [(i, low, high - low) for i, e in enumerate(edges) for low, high in pairwise(e)]
        place, low, width = zip(*bins, strict=True)
        # Not in state_dict: they are no weights, and stand in the network's description.
        self.register_buffer("place", torch.tensor(place, dtype=torch.int64), persistent=False)
        self.register_buffer("low", torch.tensor(low, dtype=dtype), persistent=False)
        self.register_buffer("width", torch.tensor(width, dtype=dtype), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, E)."""
        full = ((x.index_select(1, self.place) - self.low) / self.width).clamp(0.0, 1.0)
        return torch.cat([full, x[:, self._n_numbers :]], 1)


@dataclass(frozen=True)
class Bins:
    """How rows (B, n_inputs) are taken apart; some column has edges."""

    n_inputs: int
    edges: Edges

    @property
    def n_features(self) -> int:
        """E, of what the first layer takes."""
        n_bins = sum(len(edges) - 1 for edges in self.edges if edges)
        return self.n_inputs - len(self.edges) + n_bins

    def build(self, dtype: torch.dtype, device: torch.device) -> PiecewiseLinear:
        return PiecewiseLinear(self.edges, dtype).to(device)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Bins | None:
        """Of a network's description, which may be a stranger's; None: it has none. Raises
        ValueError."""
        edges = plain.get(EDGES)
        if edges is None:
            return None
        check(is_size(plain["n_inputs"]), "no inputs", plain["n_inputs"])
        is_list = isinstance(edges, list | tuple) and len(edges) <= plain["n_inputs"]
        check(is_list and all(map(_is_rising, edges)), "no edges", edges)
        check(any(map(len, edges)), "no edges", edges)
        return cls(plain["n_inputs"], tuple(map(tuple, edges)))


def bins_for(encoding: str, n_inputs: int, get_edges: Callable[[], Edges]) -> Bins | None:
    """None: rows are taken as they are, as those are in which no number differs from another."""
    if encoding != PIECEWISE_LINEAR:
        return None
    edges = get_edges()
    return Bins(n_inputs, edges) if any(edges) else None


def _is_rising(edges: object) -> bool:
    """Empty, or at least two finite numbers that differ as float32."""
    if not isinstance(edges, list | tuple) or len(edges) == 1:
        return False
    if not all(type(edge) is float for edge in edges):
        return False
    widths = torch.tensor(edges, dtype=torch.float32).diff()
    return bool((widths > 0).all() and widths.isfinite().all())
