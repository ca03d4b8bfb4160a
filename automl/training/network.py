"""A network by its description, and one that is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from automl.data.bins import Edges
from automl.data.columns import Columns
from automl.data.dataset import Rows
from automl.data.facts import Size
from automl.data.one_hot import n_features, one_hot
from automl.errors import AutoMLError
from automl.training.model_file import check
from automl.training.outcome import is_out_of_memory
from automl.training.weights import dtype_of

_ROWS_AT_ONCE = 8192


class Network(Protocol):
    """A network by its description: what a trial's params and a data set make of it. Frozen."""

    @property
    def n_inputs(self) -> Size:
        """Columns of what it takes, or a row's shape."""

    @property
    def n_outputs(self) -> Size:
        """Columns of what it gives: classes, or 1; or a row's shape."""

    @property
    def n_members(self) -> int:
        """Above 1 its module gives, while it trains, what each of so many says (B, n_members, …),
        else their mean."""

    def build(self, dtype: torch.dtype, device: torch.device, seed: int) -> nn.Module:
        """The module with weights that follow from `seed`."""

    def seed_draws(self, module: nn.Module, seed: int) -> None:
        """Make what the module draws from now on follow from `seed`."""

    def plain(self) -> dict[str, Any]:
        """All that is needed to build it again, as plain values."""


class Networks(Protocol):
    """Makes the networks of a family."""

    def network(
        self,
        family: Any,
        params: Any,
        n_inputs: Size,
        n_outputs: Size,
        get_edges: Callable[[], Edges],
    ) -> Network:
        """The network that a trial's params ask for; `get_edges`: see `Problem`."""


class NetworkModel:
    """A trained network, on the CPU until it is moved; see `family.Model`."""

    def __init__(self, network: Network, weights: Mapping[str, torch.Tensor]) -> None:
        self._network, self.dtype = network, dtype_of(weights)
        """What it computes in."""
        self._device = torch.device("cpu")
        self._module = network.build(self.dtype, self._device, seed=0)
        self._module.load_state_dict(weights)
        self._module.eval()

    @property
    def n_outputs(self) -> int:
        found = self._network.n_outputs
        check(isinstance(found, int), "several dimensions of outputs", found)
        assert isinstance(found, int)
        return found

    @property
    def sizes(self) -> tuple[Size, Size]:
        """What it takes and what it gives, in a row."""
        return self._network.n_inputs, self._network.n_outputs

    @property
    def module(self) -> nn.Module:
        return self._module

    def to(self, device: str) -> None:
        """Raises AutoMLError where torch cannot compute there."""
        try:
            there = torch.device(device)
            self._module.to(there)
        except (AssertionError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise
            raise AutoMLError(
                f"to({device!r}): torch cannot compute there ({str(error).splitlines()[0]}): name "
                "a device that it sees, such as cpu."
            ) from error
        self._device = there

    def check_columns(self, columns: Columns) -> None:
        check(n_features(columns) == self._network.n_inputs, "not its columns", len(columns.all))

    def outputs(self, columns: Columns, rows: Rows) -> npt.NDArray[np.float64]:
        n_at_once = _ROWS_AT_ONCE // self._network.n_members
        begins = range(0, max(1, len(rows)), n_at_once)
        # Each part is encoded where the one before was: new memory for all costs five times more.
        return np.concatenate([self._encoded(columns, rows[b:][:n_at_once]) for b in begins])

    def _encoded(self, columns: Columns, rows: Rows) -> npt.NDArray[np.float64]:
        return self.outputs_of(torch.from_numpy(one_hot(columns, rows)), len(rows) or 1)

    @torch.no_grad()
    def outputs_of(self, x: torch.Tensor, n_at_once: int) -> npt.NDArray[np.float64]:
        """(N, …) of rows (N, …), so many at once; whole numbers are given as they are."""
        x = x.to(self.dtype) if x.is_floating_point() else x
        parts = (some.to(self._device) for some in torch.split(x, n_at_once))
        out = torch.cat([self._module(some).cpu() for some in parts])
        numbers: npt.NDArray[np.float64] = out.double().numpy()
        return numbers
