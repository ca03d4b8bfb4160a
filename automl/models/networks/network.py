"""The description of a network, and the trained network that predicts.

The weights of a `best.pt` are checked here before a network is built from them. Training is in
`trainer.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from automl.data.columns import TableColumns
from automl.data.dataset import Size, TableRows
from automl.data.features import n_features, one_hot_features
from automl.errors import AutoMLError
from automl.in_trial.reports.outcomes import is_out_of_memory
from automl.models.model_file import check_content

_DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def parse_weights(state: Mapping[str, Any], file_bytes: int) -> dict[str, torch.Tensor]:
    """Return the weights by name, dense and no larger than the file. Raises ValueError."""
    weights = state["weights"]
    check_content(isinstance(weights, Mapping), "no weights", weights)
    for name, weight in weights.items():
        check_content(isinstance(name, str), "a weight without a name", name)
        dense = isinstance(weight, torch.Tensor) and weight.layout is torch.strided
        check_content(dense and weight.is_cpu, f"the weight {name[:50]!r}", type(weight))
    size_bytes = sum(weight.numel() * weight.element_size() for weight in weights.values())
    check_content(
        size_bytes <= file_bytes, f"weights larger than the file ({file_bytes} bytes)", size_bytes
    )
    return dict(weights)


def weights_dtype(weights: Mapping[str, torch.Tensor]) -> torch.dtype:
    """Return the type of the first floating-point weight, in which the network computes."""
    dtype = next((w.dtype for w in weights.values() if w.is_floating_point()), None)
    check_content(dtype in _DTYPES, "weights of type", dtype)
    assert dtype is not None
    return dtype


_ROWS_AT_ONCE = 8192
"""The rows in a pass through the network, divided by the number of its members."""


class NetworkDescription(Protocol):
    """A network as it follows from a trial's params and a data set, without weights. Frozen."""

    @property
    def n_inputs(self) -> Size:
        """The number of input columns, or the shape of an input row."""

    @property
    def n_outputs(self) -> Size:
        """The number of output columns (classes, or 1), or the shape of an output row."""

    @property
    def n_members(self) -> int:
        """The number of members that the module trains together.

        Above 1 the module returns the output of each member (B, n_members, …) while it trains, and
        their mean otherwise.
        """

    def build(self, dtype: torch.dtype, device: torch.device, seed: int) -> nn.Module:
        """Return the module with weights that follow from `seed`."""

    def seed_draws(self, module: nn.Module, seed: int) -> None:
        """Make all later random draws of the module follow from `seed`."""

    def plain(self) -> dict[str, Any]:
        """Return plain values that suffice to build the network again."""


class NetworkModel:
    """A trained network that predicts, a `family.TrainedModel`; on the CPU until it is moved."""

    def __init__(self, network: NetworkDescription, weights: Mapping[str, torch.Tensor]) -> None:
        self._network, self.dtype = network, weights_dtype(weights)
        self._device = torch.device("cpu")
        self._module = network.build(self.dtype, self._device, seed=0)
        self._module.load_state_dict(weights)
        self._module.eval()

    @property
    def n_outputs(self) -> int:
        n_outputs = self._network.n_outputs
        check_content(isinstance(n_outputs, int), "several dimensions of outputs", n_outputs)
        assert isinstance(n_outputs, int)
        return n_outputs

    @property
    def sizes(self) -> tuple[Size, Size]:
        """The sizes of an input row and of an output row."""
        return self._network.n_inputs, self._network.n_outputs

    @property
    def module(self) -> nn.Module:
        return self._module

    def to(self, device: str) -> None:
        """Move the network to a device. Raises AutoMLError if torch cannot compute there."""
        try:
            new_device = torch.device(device)
            self._module.to(new_device)
        except (AssertionError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise
            raise AutoMLError(
                f"to({device!r}): torch cannot compute there ({str(error).splitlines()[0]}): name "
                "a device that it sees, such as cpu."
            ) from error
        self._device = new_device

    def check_columns(self, columns: TableColumns) -> None:
        check_content(
            n_features(columns) == self._network.n_inputs, "not its columns", len(columns.all)
        )

    def outputs(self, columns: TableColumns, rows: TableRows) -> npt.NDArray[np.float64]:
        n_at_once = _ROWS_AT_ONCE // self._network.n_members
        begins = range(0, max(1, len(rows)), n_at_once)
        # Each part reuses the memory of the part before: new memory for all costs five times more.
        runs = (torch.from_numpy(one_hot_features(columns, rows[b:][:n_at_once])) for b in begins)
        return np.concatenate([self.outputs_of(run, n_at_once) for run in runs])

    @torch.no_grad()
    def outputs_of(self, x: torch.Tensor, n_at_once: int) -> npt.NDArray[np.float64]:
        """Return the outputs (N, …) of rows (N, …), computed `n_at_once` rows at a time."""
        x = x.to(self.dtype) if x.is_floating_point() else x
        batches = (batch.to(self._device) for batch in torch.split(x, n_at_once))
        out = torch.cat([self._module(batch).cpu() for batch in batches])
        numbers: npt.NDArray[np.float64] = out.double().numpy()
        return numbers
