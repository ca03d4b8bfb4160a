"""The whole way of a row through networks as one torch module: cells in, an answer out.

The arithmetic is that of `data.features`, in the same precision: float64 until the features. The
graph takes `numbers` (B, number columns) float64, where NaN is missing, and `codes` (B, category
columns) int64, where -1 is unknown; a table without columns of a kind has no such input. Models
that are no networks are in `table_graph.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from automl.config import Task
from automl.data.columns import CategoryColumn, NumberColumn, TableColumns
from automl.data.dataset import TableRows
from automl.data.features import STANDARDISED_LIMIT
from automl.data.target_encoding import TargetEncoding
from automl.models.family import TrainedModel
from automl.models.mean_model import MeanModel
from automl.models.networks.network import NetworkModel
from automl.models.predictor import EncodedModel, Predictor

LARGEST = float(np.finfo(np.float32).max)
"""The largest number; one beyond it counts as missing, as in `data.cells`."""


class NumberFeatures(nn.Module):
    """Fills missing numbers, scales all and marks the missing: (B, n) → (B, n + indicators)."""

    column_fill: torch.Tensor
    column_mean: torch.Tensor
    column_scale: torch.Tensor
    marked_columns: torch.Tensor

    def __init__(self, columns: Sequence[NumberColumn]) -> None:
        super().__init__()
        for name in ("fill", "mean", "scale"):
            values = [getattr(column, name) for column in columns]
            self.register_buffer(f"column_{name}", torch.tensor(values, dtype=torch.float64))
        marked = [i for i, column in enumerate(columns) if column.has_indicator]
        self.register_buffer("marked_columns", torch.tensor(marked, dtype=torch.int64))
        self._marks = bool(marked)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        present = numbers.abs() <= LARGEST  # false for NaN
        filled = torch.where(present, numbers, self.column_fill)
        scaled = ((filled - self.column_mean) / self.column_scale).clamp(
            -STANDARDISED_LIMIT, STANDARDISED_LIMIT
        )
        if not self._marks:
            return scaled.to(torch.float32)
        missing = torch.logical_not(present).index_select(1, self.marked_columns)
        return torch.cat([scaled.to(torch.float32), missing.to(torch.float32)], 1)


class CategoryFeatures(nn.Module):
    """Encodes categories one-hot: (B, categories) → (B, all their codes), 1 for the row's code."""

    known_codes: torch.Tensor
    place_of_feature: torch.Tensor
    code_of_feature: torch.Tensor

    def __init__(self, columns: Sequence[CategoryColumn]) -> None:
        super().__init__()
        n_known = [len(column.categories) for column in columns]
        place = [i for i, column in enumerate(columns) for _ in range(column.n_codes)]
        wanted = [code for column in columns for code in range(column.n_codes)]
        self.register_buffer("known_codes", torch.tensor(n_known, dtype=torch.int64))
        self.register_buffer("place_of_feature", torch.tensor(place, dtype=torch.int64))
        self.register_buffer("code_of_feature", torch.tensor(wanted, dtype=torch.int64))

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        known = (codes >= 0) & (codes < self.known_codes)
        # Unknown categories share the code after the last known one.
        full = torch.where(known, codes, self.known_codes)
        matches = full.index_select(1, self.place_of_feature) == self.code_of_feature
        return matches.to(torch.float32)


class EncodedNumbers(nn.Module):
    """Puts a model's means in place of levels in target-encoded columns: (B, n) → (B, n)."""

    means: torch.Tensor
    begins: torch.Tensor
    level_places: torch.Tensor
    order: torch.Tensor

    def __init__(self, columns: TableColumns, encoding: TargetEncoding) -> None:
        super().__init__()
        sizes = [len(table) for table in encoding.tables]
        places = [place for place, _ in columns.encoded]
        order = [*range(len(columns.numbers))]
        for number, place in enumerate(places):
            order[place] = len(order) + number
        self.register_buffer("means", torch.tensor(sum(encoding.tables, ()), dtype=torch.float64))
        self.register_buffer("begins", torch.tensor([0, *accumulate(sizes[:-1])]))
        self.register_buffer("level_places", torch.tensor(places))
        self.register_buffer("order", torch.tensor(order))

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        levels = numbers.index_select(1, self.level_places).to(torch.int64)
        means = self.means[levels + self.begins]
        return torch.cat([numbers, means], 1).index_select(1, self.order)


class ScoringModule(nn.Module):
    """Computes the answers of a network, or the weighted mean of several networks' answers.

    Answers are probabilities (B, classes) or values (B,) in the target's unit, float64.
    """

    def __init__(
        self,
        columns: TableColumns,
        members: Sequence[WeightedModel],
        *,
        task: Task,
        unit: tuple[float, float],
    ) -> None:
        """Take networks with the weight of each in the mean.

        `unit` is the mean and the scale of the target.
        """
        super().__init__()
        self.numbers = NumberFeatures(columns.numbers) if columns.numbers else None
        self.categories = CategoryFeatures(columns.categories) if columns.categories else None
        networks = [model for model, *_ in members if isinstance(model, NetworkModel)]
        self.networks = nn.ModuleList([network.module for network in networks])
        self.dtypes = [network.dtype for network in networks]
        """The type of the features that each network takes."""
        self.encoders = nn.ModuleList(
            nn.Identity() if m.encoding is None else EncodedNumbers(columns, m.encoding)
            for m in members
        )
        self._weights = [member.weight for member in members]
        self._task = task
        self._mean, self._scale = unit
        self.sharpness = 1.0
        """Factor of the mean's class scores."""

    def forward(
        self, numbers: torch.Tensor | None = None, codes: torch.Tensor | None = None
    ) -> torch.Tensor:
        plain, answers = self._features(numbers, codes), []
        members = zip(self.networks, self.encoders, self.dtypes, self._weights, strict=True)
        for network, encoder, dtype, weight in members:
            is_encoded = isinstance(encoder, EncodedNumbers)
            features = self._features(encoder(numbers), codes) if is_encoded else plain
            answers.append(self._answer(network(features.to(dtype))) * weight)
        answer = torch.stack(answers).sum(0) if len(answers) > 1 else answers[0]
        if self.sharpness == 1.0:
            return answer
        return torch.softmax(self.sharpness * answer.log(), 1)

    def _features(self, numbers: torch.Tensor | None, codes: torch.Tensor | None) -> torch.Tensor:
        parts = []
        if self.numbers is not None and numbers is not None:
            parts.append(self.numbers(numbers))
        if self.categories is not None and codes is not None:
            parts.append(self.categories(codes))
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def _answer(self, out: torch.Tensor) -> torch.Tensor:
        out = out.double()
        if self._task is Task.classification:
            return torch.softmax(out, 1)
        return out[:, 0] * self._scale + self._mean


class WeightedModel(NamedTuple):
    """A member of a mean, or a single model."""

    model: TrainedModel
    """The model, which takes rows with the means of `encoding`."""
    weight: float
    """The weight in the mean; 1 for a single model."""
    encoding: TargetEncoding | None
    """The model's target encoding; None: its columns have none."""


def weighted_models(predictor: Predictor) -> Sequence[WeightedModel]:
    """Return the models of a mean, or the single model."""
    model = predictor.trained_model
    members: Sequence[TrainedModel] = [model]
    weights: Sequence[float] = [1.0]
    if isinstance(model, MeanModel):
        members, weights = model.members, model.weights
    return [
        WeightedModel(member.model, weight, member.encoding)
        if isinstance(member, EncodedModel)
        else WeightedModel(member, weight, None)
        for member, weight in zip(members, weights, strict=True)
    ]


def sharpness_of(predictor: Predictor) -> float:
    """Return the factor of the class scores of a mean; 1 for a single model."""
    model = predictor.trained_model
    return model.sharpness if isinstance(model, MeanModel) else 1.0


def is_network_predictor(predictor: Predictor) -> bool:
    """Return whether the model is a network or the mean of several, so that torch runs it."""
    return all(isinstance(model, NetworkModel) for model, *_ in weighted_models(predictor))


def make_scoring_module(predictor: Predictor) -> ScoringModule:
    """Return the graph of a loaded model, which must be a network or the mean of several."""
    assert is_network_predictor(predictor), "callers check it first"
    module = ScoringModule(
        predictor.columns,
        weighted_models(predictor),
        task=predictor.task,
        unit=predictor.unit,
    )
    module.sharpness = sharpness_of(predictor)
    return module.eval()


def graph_inputs(columns: TableColumns, rows: TableRows) -> dict[str, npt.NDArray[Any]]:
    """Return the inputs of the graph by name, for rows in the form of `Predictor.read`."""
    inputs: dict[str, npt.NDArray[Any]] = {}
    if columns.numbers:
        inputs["numbers"] = rows.numbers
    if columns.categories:
        n_known = [len(column.categories) for column in columns.categories]
        inputs["codes"] = np.where(rows.codes < n_known, rows.codes, -1).astype(np.int64)
    return inputs
