"""A network by its description, and one that is trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from automl.data.columns import Columns
from automl.data.dataset import Rows
from automl.data.one_hot import n_features, one_hot
from automl.training.model_file import check, dtype_of

_ROWS_AT_ONCE = 8192


class Network(Protocol):
    """A network by its description: what a trial's params and a data set make of it. Frozen."""

    @property
    def n_inputs(self) -> int:
        """Columns of what it takes."""

    @property
    def n_outputs(self) -> int:
        """Columns of what it gives: classes, or 1."""

    def build(self, dtype: torch.dtype, device: torch.device, seed: int) -> nn.Module:
        """The module with weights that follow from `seed`."""

    def seed_draws(self, module: nn.Module, seed: int) -> None:
        """Make what the module draws from now on follow from `seed`."""

    def plain(self) -> dict[str, Any]:
        """All that is needed to build it again, as plain values."""


class Networks(Protocol):
    """Makes the networks of a family."""

    def network(self, family: Any, params: Any, n_inputs: int, n_outputs: int) -> Network:
        """The network that a trial's params ask for."""


class NetworkModel:
    """A trained network, on the CPU; see `family.Model`."""

    def __init__(self, network: Network, weights: Mapping[str, torch.Tensor]) -> None:
        self._network, self.dtype = network, dtype_of(weights)
        """What it computes in."""
        self.module = network.build(self.dtype, torch.device("cpu"), seed=0)
        self.module.load_state_dict(weights)
        self.module.eval()

    @property
    def n_outputs(self) -> int:
        return self._network.n_outputs

    def check_columns(self, columns: Columns) -> None:
        check(n_features(columns) == self._network.n_inputs, "not its columns", len(columns.all))

    @torch.no_grad()
    def outputs(self, columns: Columns, rows: Rows) -> npt.NDArray[np.float64]:
        begins = range(0, max(1, len(rows)), _ROWS_AT_ONCE)
        out = torch.cat([self._outputs(columns, rows[begin:][:_ROWS_AT_ONCE]) for begin in begins])
        numbers: npt.NDArray[np.float64] = out.double().numpy()
        return numbers

    def _outputs(self, columns: Columns, rows: Rows) -> torch.Tensor:
        out: torch.Tensor = self.module(torch.from_numpy(one_hot(columns, rows)).to(self.dtype))
        return out
