"""The layout of the weights of a pack's lanes in one flat tensor.

Lanes are sorted by depth, deepest first, and their layers are counted from the top. Slot 0 is the
last hidden layer of every lane, and a lane of d layers begins at slot d - 1. Slot t therefore
concerns the first `counts[t]` lanes; the lanes from `counts[t + 1]` on read the input there. Each
slot has a region per kind of weight, with one row per lane:

    hidden[t] (n, W, W)    entry[t] (n, D, W)    bias[t] (n, W)    out (K, C, W)    out_bias (K, C)

Rows are zero beyond the lane's own width, and stay zero, because their gradients are zero.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import torch

from automl.models.families.mlp.network import MLPShape

_ALIGNED = 64  # elements: vectorised loops over a region then have no remainder


@dataclass(frozen=True)
class WeightRegion:
    """A block of the flat tensor: row i belongs to the lane at position `first + i`.

    A product of one matrix is not computed as one among many (with MKL, where one of its sides is
    1, last bits differ). A region of matrices therefore has at least two rows; a row without a lane
    has no effect.
    """

    name: str
    offset: int
    shape: tuple[int, ...]
    first: int
    n_lanes: int

    def view(self, flat: torch.Tensor) -> torch.Tensor:
        """Return the region of `flat` in its shape."""
        return flat[self.offset : self.offset + math.prod(self.shape)].view(self.shape)

    def rows(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return `numbers` (…, K + 1) of this region's lanes, in a shape (…, n, 1, 1)."""
        own = numbers[..., self.first : self.first + self.shape[0]]
        return own.reshape(*own.shape, *[1] * (len(self.shape) - 1))


class PackLayout(ABC):
    """The regions of the flat tensor, and the place of each lane's weights in them."""

    def __init__(self, n_lanes: int) -> None:
        self.n_lanes, self.n_elements = n_lanes, 0
        self.regions: dict[str, WeightRegion] = {}

    @abstractmethod
    def parts(self, views: Mapping[str, torch.Tensor], position: int) -> list[torch.Tensor]:
        """Return one lane's weights from the `views`, unpadded, as `nn.Module.parameters()`."""

    def _add(self, name: str, first: int, n_lanes: int, shape: tuple[int, ...]) -> None:
        n_rows = n_lanes if len(shape) == 1 else max(n_lanes, 2)
        self._add_rows(name, first, n_lanes, (n_rows, *shape))

    def _add_rows(self, name: str, first: int, n_lanes: int, shape: tuple[int, ...]) -> None:
        if n_lanes == 0:
            return
        self.regions[name] = WeightRegion(name, self.n_elements, shape, first, n_lanes)
        self.n_elements += -(-math.prod(shape) // _ALIGNED) * _ALIGNED


class MLPLayout(PackLayout):
    """The regions of a pack of MLPs of these shapes, deepest first."""

    def __init__(self, shapes: Sequence[MLPShape], width: int) -> None:
        """Pad hidden layers to `width`; 0 pads nothing, and all shapes must be the same."""
        super().__init__(len(shapes))
        self.shapes = tuple(shapes)
        depths = [len(shape.hidden_widths) for shape in shapes]
        assert depths == sorted(depths, reverse=True), "deepest first"
        assert depths[-1] > 0, "a linear model trains alone"
        self.counts = [sum(d > t for d in depths) for t in range(depths[0] + 1)]  # the last is 0
        self.widths = (width,) * depths[0] if width else shapes[0].hidden_widths[::-1]
        n_inputs, n_outputs = shapes[0].n_inputs, shapes[0].n_outputs
        for t in reversed(range(depths[0])):
            n_all, n_hidden, width = self.counts[t], self.counts[t + 1], self.widths[t]
            if n_hidden:
                self._add(f"hidden{t}", 0, n_hidden, (self.widths[t + 1], width))
            self._add(f"entry{t}", n_hidden, n_all - n_hidden, (n_inputs, width))
            self._add(f"bias{t}", 0, n_all, (width,))
        self._add("out", 0, self.n_lanes, (n_outputs, self.widths[0]))
        self._add("out_bias", 0, self.n_lanes, (n_outputs,))

    def parts(self, views: Mapping[str, torch.Tensor], position: int) -> list[torch.Tensor]:
        shape = self.shapes[position]
        depth, n_inputs = len(shape.hidden_widths), shape.n_inputs
        parts: list[torch.Tensor] = []
        for layer, width in enumerate(shape.hidden_widths):
            name = f"{'hidden' if layer else 'entry'}{depth - 1 - layer}"
            row = position - self.regions[name].first
            parts.append(views[name][row, :n_inputs, :width].t())
            parts.append(views[f"bias{depth - 1 - layer}"][position, :width])
            n_inputs = width
        return [*parts, views["out"][position, :, :n_inputs], views["out_bias"][position]]


class StackedLayout(PackLayout):
    """The regions of a pack of modules of one shape: one per parameter, with all lanes' values."""

    def __init__(self, n_lanes: int, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Take the shapes of the trained parameters, by name."""
        super().__init__(n_lanes)
        for name, shape in shapes.items():
            self._add_rows(name, 0, n_lanes, (n_lanes, *shape))

    def parts(self, views: Mapping[str, torch.Tensor], position: int) -> list[torch.Tensor]:
        return [view[position] for view in views.values()]


AnyLayout = TypeVar("AnyLayout", bound=PackLayout, covariant=True)


class LaneWeights(Generic[AnyLayout]):
    """One number per weight of each lane (the weights, their gradients, a moment), in a layout."""

    def __init__(self, layout: AnyLayout, dtype: torch.dtype, device: torch.device) -> None:
        self.layout = layout
        self.flat = torch.zeros(layout.n_elements, dtype=dtype, device=device)

    @cached_property
    def views(self) -> Mapping[str, torch.Tensor]:
        """The regions by name, in their shapes."""
        return {name: region.view(self.flat) for name, region in self.layout.regions.items()}

    def parts(self, position: int) -> list[torch.Tensor]:
        """Return views of one lane's numbers, as `PackLayout.parts` does."""
        return self.layout.parts(self.views, position)

    def write(self, position: int, parts: Sequence[torch.Tensor]) -> None:
        """Set one lane from tensors in the order and shapes of `MLP.parameters()`."""
        for own, part in zip(self.parts(position), parts, strict=True):
            own.copy_(part)

    def write_vector(self, position: int, vector: torch.Tensor) -> None:
        """Set one lane from a flat vector (P,), as `FlatParameters` orders it."""
        own = self.parts(position)
        pieces = torch.split(vector, [part.numel() for part in own])
        self.write(
            position, [piece.view(part.shape) for piece, part in zip(pieces, own, strict=True)]
        )

    def vector(self, position: int) -> torch.Tensor:
        """Return one lane as a flat vector (P,), without padding."""
        return torch.cat([part.reshape(-1) for part in self.parts(position)])

    def fill(self, numbers: Sequence[float]) -> None:
        """Set each lane to a number of its own, padding included; rows without a lane stay 0."""
        column = torch.tensor([*numbers, 0.0], dtype=self.flat.dtype, device=self.flat.device)
        for name, region in self.layout.regions.items():
            self.views[name].copy_(region.rows(column))

    def take(self, old: LaneWeights[PackLayout], moves: Mapping[int, int]) -> None:
        """Copy lanes from another layout; `moves` maps their old positions to the new ones."""
        for name, region in self.layout.regions.items():
            if name not in old.layout.regions:
                continue
            first = old.layout.regions[name].first
            span = range(region.first, region.first + region.n_lanes)
            pairs = [(a - first, b - region.first) for a, b in moves.items() if b in span]
            if pairs:
                source, target = torch.tensor(pairs, device=self.flat.device).unbind(1)
                self.views[name].index_copy_(0, target, old.views[name].index_select(0, source))
