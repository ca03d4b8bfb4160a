"""Holds what the light sides of scikit-learn's families share: checks, settings, and memory.

It also tells how many columns trees see of a table; `tree_arrays.py` makes these views. No numpy.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from automl.config import ExportFormat, TrainingConfig
from automl.errors import AutoMLError, ConfigError
from automl.models.family import Family
from automl.models.networks.network_family import (
    CLASS_WEIGHT_PARAM,
    CLASS_WEIGHT_RULE,
    ParamRule,
    check_param_value,
)
from automl.trial import DeviceKind, Params, ParamValue, RequestSource, ResourceRequest

if TYPE_CHECKING:
    from automl.data.columns import TableColumns
    from automl.data.dataset import Dataset

ON_CPU = frozenset({DeviceKind.CPU})
_BASE_BYTES = 64 * 2**20
"""Memory of scikit-learn and its libraries, besides the data."""
_FOR_NETWORKS = (
    "precision",
    "schedule",
    "ema_decay",
    "accumulate_steps",
    "patience_steps",
    "loader_workers",
)


CLASS_WEIGHT_RULES: Mapping[str, ParamRule] = {CLASS_WEIGHT_PARAM: CLASS_WEIGHT_RULE}


@dataclass(frozen=True)
class TableParams:
    """The params of one trial. Raises ValueError naming the param, its value and the rule."""

    rules: ClassVar[Mapping[str, ParamRule]]
    """The rule of each param, by name."""
    class_weight: str = "none"
    """balanced: rows of rare classes count more, so that all classes count the same; none: all rows
    count the same."""

    def __post_init__(self) -> None:
        for name in self.rules:
            check_param_value(name, getattr(self, name), self.rules)


@dataclass
class TableFamily(Family):
    """A family that scikit-learn fits on the CPU, with a report after each round (epoch)."""

    library: ClassVar[str] = "sklearn"
    weighs_classes = True
    export_formats: ClassVar[tuple[ExportFormat, ...]] = (ExportFormat.onnx,)
    trial_params: ClassVar[type[TableParams]]
    """The class of a trial's params; the family has no others."""

    fitting_module: ClassVar[str] = "sklearn.ensemble"
    """Name of the module that fits; a process that only predicts does not import it. Workers are
    forked from a process that has it: else each would load it in its first trial."""

    @property
    def modules(self) -> Sequence[str]:
        return (self.heavy, self.fitting_module)

    def params(self, given: Params) -> TableParams:
        """Return a trial's params, checked. Raises ValueError or TypeError."""
        return self.trial_params(**given)  # type: ignore[arg-type]  # __post_init__ checks each

    @abstractmethod
    def size_bytes(self, params: Any, dataset: Dataset, training: TrainingConfig) -> int:
        """Return the memory of a trial, without what every trial needs."""

    def param_names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return tuple(self.trial_params.rules), ()

    def check_value(self, name: str, value: ParamValue) -> None:
        check_param_value(name, value, self.trial_params.rules)

    def check_training(self, training: TrainingConfig) -> None:
        """Raise ConfigError for settings that only training by gradients uses."""
        default = TrainingConfig()
        changed = [n for n in _FOR_NETWORKS if getattr(training, n) != getattr(default, n)]
        changed += ["loss"] if training.loss_target is not None else []
        if changed:
            value = getattr(training, changed[0])
            raise ConfigError(
                f"training.{changed[0]}={getattr(value, 'value', value)}: it is about how networks "
                "are trained, and this model is none. Leave it out, or take model=mlp."
            )
        self.check_loss(training)

    def request(
        self, params: Params, dataset: Dataset, training: TrainingConfig
    ) -> ResourceRequest:
        """Return the memory by arithmetic, and the CPU: scikit-learn trains nowhere else."""
        try:
            checked = self.params(params)
        except (TypeError, ValueError):  # a trial with these params will fail with a message
            return ResourceRequest(None, RequestSource.UNKNOWN, kinds=ON_CPU)
        size_bytes = _BASE_BYTES + self.size_bytes(checked, dataset, training)
        return ResourceRequest(size_bytes, RequestSource.ESTIMATED, kinds=ON_CPU)


MAX_COLUMNS = 2**15 - 1
"""Largest number of columns: a node stores its column as int16."""
FEW_KINDS = range(3, 65)
"""Numbers of kinds of a category that is spread. With two kinds, its code tells the same."""
MAX_SPREAD = 1024
"""Largest number of columns of all spread categories together; with more, none is spread."""


def n_tree_columns(columns: TableColumns) -> int:
    """Return the width F of the array that `tree_view` makes."""
    return len(columns.all)


def spread_categories(columns: TableColumns) -> list[int]:
    """Return the positions of the categories that `spread_view` spreads."""
    sizes = {i: column.n_codes for i, column in enumerate(columns.categories)}
    positions = [i for i, size in sizes.items() if size in FEW_KINDS]
    return positions if sum(sizes[i] for i in positions) <= MAX_SPREAD else []


def n_spread_columns(columns: TableColumns) -> int:
    """Return the width F' of the array that `spread_view` makes."""
    return n_tree_columns(columns) + sum(
        columns.categories[i].n_codes - 1 for i in spread_categories(columns)
    )


def check_tree_width(width: int) -> None:
    """Raise AutoMLError for more columns than a node can name."""
    if width > MAX_COLUMNS:
        raise AutoMLError(
            f"{width:,} columns: trees take {MAX_COLUMNS:,} at most. Take fewer, or model=linear."
        )
