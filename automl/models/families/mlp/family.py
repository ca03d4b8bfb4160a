"""Defines the light side of the built-in network: params, memory, work, and what trains together.

`LayersFamily` is shared with `model=tabm`.
"""

from __future__ import annotations

import enum
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from automl.config import LOSSES, Precision, TrainingConfig
from automl.errors import ConfigError
from automl.models.networks.network_family import (
    BELOW_1,
    CLASS_WEIGHT_PARAM,
    CLASS_WEIGHT_RULE,
    TRAINING_NAMES,
    TRAINING_RULES,
    NetworkFamily,
    NetworkKey,
    TrainingParams,
    check_param_value,
    one_of,
    whole_number,
)
from automl.trial import (
    UNKNOWN_REQUEST,
    Params,
    ParamValue,
    RequestSource,
    ResourceRequest,
    TrainingWork,
)

if TYPE_CHECKING:
    from automl.data.dataset import Dataset

_EVALUATION_ROWS = 8192  # as in trainer.py, which imports torch
_BASE_BYTES = 32 * 2**20  # libraries' workspaces: cuBLAS keeps 8 to 32 MiB
_OPTIMIZER_FLOPS = 10  # for each weight and step, with Adam; SGD has fewer
_LEAST_WIDTH = 16  # narrower layers gain nothing: a vector register of a CPU holds 16 numbers

# Lanes by padded width. Measured on one CPU core (experiments/002-packs): against training alone, 9
# times as fast up to 32 units, 4 up to 64, 1.6 up to 128; 64 lanes add nothing to 32.
_LANES_ON_HOST = {16: 32, 32: 32, 64: 16, 128: 8}
# Measured on an H200 (experiments/002-packs): 128 lanes are 80 to 150 times as fast as training
# alone up to 256 units; at 512 units 32 lanes are 29 times as fast and take a gibibyte, 128 lanes
# 35 times for four.
_LANES_ON_GPU = {16: 128, 32: 128, 64: 128, 128: 128, 256: 128, 512: 32}

PLAIN_ENCODING, PIECEWISE_LINEAR_ENCODING = ENCODINGS = ("plain", "piecewise_linear")
MLP_RULES = {
    **TRAINING_RULES,
    "depth": whole_number(0),
    "width": whole_number(1),
    "dropout": BELOW_1,
    "encoding": one_of(ENCODINGS),
    CLASS_WEIGHT_PARAM: CLASS_WEIGHT_RULE,
}


class Growth(enum.Enum):
    """How the width of an MLP changes from layer to layer."""

    constant = "constant"
    doubling = "doubling"


@dataclass(frozen=True)
class MLPParams(TrainingParams):
    """The params of one trial; a param that the space lacks has its default."""

    depth: int = 2
    """Hidden layers; 0 is a linear model."""
    width: int = 64
    """Units per hidden layer (growth constant)."""
    dropout: float = 0.0
    """Share of each hidden layer's units that a training step leaves out."""
    encoding: str = PLAIN_ENCODING
    """plain: a number is standardised; piecewise_linear: a number becomes how far it fills each of
    its bins, whose edges are quantiles of the training rows (Gorishniy et al., 2022)."""
    class_weight: str = "none"
    """balanced: rows of rare classes count more in the training loss, so that all classes count the
    same; none: all rows count the same."""

    def __post_init__(self) -> None:
        for name in MLP_RULES:
            check_param_value(name, getattr(self, name), MLP_RULES)

    @property
    def weighs_classes(self) -> bool:
        return self.class_weight == "balanced"

    def hidden_widths(self, growth: Growth) -> tuple[int, ...]:
        """Return the number of units of each hidden layer, from the input on."""
        if growth is Growth.doubling:
            return tuple(2**layer for layer in range(1, self.depth + 1))
        return (self.width,) * self.depth


@dataclass(frozen=True)
class MLPKey(NetworkKey):
    """Key of trials that can train together.

    The padded width is part of it: a lane's arithmetic depends only on its own params.
    """

    width: int = 0
    """Units that every hidden layer is padded to; 0 if layers grow and nothing is padded."""
    depth: int | None = None
    """Depth of all lanes if layers grow; None: depths may differ."""
    weighs_classes: bool = False
    """Whether the training loss weighs classes; a pack has only one loss."""
    encoding: str = PLAIN_ENCODING

    @property
    def n_lanes(self) -> int:
        widest = self.width if self.depth is None else padded_width(2**self.depth)
        return (_LANES_ON_HOST if self.on_host else _LANES_ON_GPU).get(widest, 1)

    def of_one_trial(self) -> MLPKey:
        """Return a key without padding for wide networks, which no pack of several trials has."""
        return self if self.n_lanes > 1 else replace(self, width=0)


@dataclass
class LayersFamily(NetworkFamily):
    """Networks of linear layers with ReLU between them, with one member or several."""

    weighs_classes = True
    losses = LOSSES

    @property
    def n_members(self) -> int:
        """Number of members that share weights."""
        return 1

    @abstractmethod
    def hidden_widths(self, params: MLPParams) -> tuple[int, ...]:
        """Return the number of units of each hidden layer, from the input on."""

    def n_weights(self, widths: Sequence[int]) -> int:
        """Return the number of weights of layers of these widths, inputs and outputs included."""
        return sum((a + 1) * b for a, b in pairwise(widths))

    def param_names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        own = ("depth", "width", *TRAINING_NAMES, "dropout", "encoding", CLASS_WEIGHT_PARAM)
        return own, ()

    def check_value(self, name: str, value: ParamValue) -> None:
        check_param_value(name, value, MLP_RULES)

    def request(
        self, params: Params, dataset: Dataset, training: TrainingConfig
    ) -> ResourceRequest:
        """Return the memory of the data, of weights with gradient and optimizer state, of a batch's
        activations and their gradients, and of an evaluation of the validation part."""
        mlp = self.checked_params(params, training)
        if mlp is None:
            return UNKNOWN_REQUEST
        item_bytes = 8 if mlp.precision == Precision.float64.value else 4
        n_train, n_validation = len(dataset.train), len(dataset.validation)
        widths = self._widths(mlp, dataset)
        n_inputs, n_weights = widths[0], self.n_weights(widths)
        n_copies = 3 if mlp.optimizer == "sgd" else 4  # weights, gradient, one or two moments
        n_copies += 2 if mlp.ema_decay > 0 else 0  # the average, and the weights while it is judged
        # Per layer: input, linear output, ReLU, mask, product, and gradients of two of them.
        n_activations = min(mlp.batch_size, n_train) * sum(widths) * 7 * self.n_members
        n_evaluation = min(_EVALUATION_ROWS, n_validation) * max(widths) * 3
        n_data = (n_train + n_validation) * (n_inputs + 2)
        n_items = n_data + n_weights * n_copies + n_activations + n_evaluation
        return ResourceRequest(_BASE_BYTES + n_items * item_bytes, RequestSource.ESTIMATED)

    def work(
        self, params: Params, dataset: Dataset, training: TrainingConfig
    ) -> TrainingWork | None:
        """Return the number of steps, and the operations of each.

        A weight costs two operations per row forwards, and four backwards. The evaluation of the
        validation part is spread over the steps of an epoch.
        """
        mlp = self.checked_params(params, training)
        if mlp is None:
            return None
        n_weights, n_train = self.n_weights(self._widths(mlp, dataset)), len(dataset.train)
        batch = min(mlp.batch_size * mlp.accumulate_steps, n_train)
        n_steps = math.ceil(n_train / batch)
        n_evaluated = len(dataset.validation) / n_steps
        flops = n_weights * (self.n_members * (6 * batch + 2 * n_evaluated) + _OPTIMIZER_FLOPS)
        return TrainingWork(training.n_epochs * n_steps, flops)

    def _widths(self, mlp: MLPParams, dataset: Dataset) -> tuple[int, ...]:
        """Return the units of each layer, inputs and outputs included; with bins, the most."""
        from automl.data.features import N_COLUMN_BINS, n_features

        n_inputs = n_features(dataset.columns)
        if mlp.encoding == PIECEWISE_LINEAR_ENCODING:
            n_inputs += (N_COLUMN_BINS - 1) * len(dataset.columns.numbers)
        return (n_inputs, *self.hidden_widths(mlp), dataset.n_outputs)

    def checked_params(self, given: Params, training: TrainingConfig) -> MLPParams | None:
        mlp = super().checked_params(given, training)
        assert mlp is None or isinstance(mlp, MLPParams)
        return mlp

    def params(self, given: Params) -> MLPParams:
        return MLPParams(**given)  # type: ignore[arg-type]  # __post_init__ checks each


@dataclass
class MLPFamily(LayersFamily):
    """The built-in network, a multilayer perceptron."""

    heavy = "automl.models.families.mlp.heavy"

    growth: Growth = Growth.constant
    """constant: every hidden layer has `width` units; doubling: 2, 4, 8, 16, … (no `width`)."""

    def hidden_widths(self, params: MLPParams) -> tuple[int, ...]:
        return params.hidden_widths(self.growth)

    def param_names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the params; with growth doubling there is no width to choose."""
        names, required = super().param_names()
        if self.growth is Growth.doubling:
            names = tuple(name for name in names if name != "width")
        return names, required

    def check_space(self, names: tuple[str, ...]) -> None:
        if self.growth is Growth.doubling and "width" in names:
            raise ConfigError(
                "space.width: with model.growth=doubling layers are 2, 4, 8, … wide and there is "
                "no width to search. Use space=doubling, or take it out with ~space.width."
            )

    def pack_key(self, params: Params, training: TrainingConfig, *, on_host: bool) -> MLPKey | None:
        """Return the key of a trial; None: it trains alone.

        A linear model (depth 0) trains alone. Trials that accumulate gradients do, because they
        have batches too large for the memory, and no small networks. Trials with a loss of the
        user, or of rates, do, because a pack's passes are written by hand, the gradient of the loss
        included.
        """
        mlp = self.checked_params(params, training)
        if mlp is None or mlp.depth == 0 or mlp.accumulate_steps > 1:
            return None
        if training.loss_target or training.loss == "poisson":
            return None
        doubles = self.growth is Growth.doubling
        return MLPKey(
            on_host,
            mlp.optimizer,
            mlp.batch_size,
            Precision(mlp.precision),
            mlp.schedule,
            mlp.ema_decay > 0,
            width=0 if doubles else padded_width(mlp.width),
            depth=mlp.depth if doubles else None,
            weighs_classes=mlp.weighs_classes,
            encoding=mlp.encoding,
        )

    def identity(self) -> Mapping[str, Any]:
        return {"growth": self.growth.name}


def padded_width(width: int) -> int:
    """Return the least of 16, 32, 64, … that holds `width` units."""
    return max(_LEAST_WIDTH, 1 << (width - 1).bit_length())
