"""The light side of what families share that scikit-learn fits to a table, on the CPU.

How wide the views are that trees take of a table (`tree_arrays.py`). No numpy.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from automl.config import ExportFormat, TrainingConfig
from automl.errors import AutoMLError, ConfigError
from automl.models.family import Family
from automl.models.networks.network_family import ParamRule, check_param_value
from automl.trial import DeviceKind, Params, ParamValue, RequestSource, ResourceRequest

if TYPE_CHECKING:
    from automl.data.columns import TableColumns
    from automl.data.dataset import Dataset

ON_CPU = frozenset({DeviceKind.CPU})
_BASE_BYTES = 64 * 2**20
"""What scikit-learn and its libraries take besides the data, and small change."""
_FOR_NETWORKS = (
    "precision",
    "schedule",
    "ema_decay",
    "accumulate_steps",
    "patience_steps",
    "loader_workers",
)


@dataclass
class TableFamily(Family):
    """It trains round by round, an epoch each, and reports after each."""

    library: ClassVar[str] = "sklearn"
    weighs_classes = True
    export_formats: ClassVar[tuple[ExportFormat, ...]] = (ExportFormat.onnx,)
    rules: ClassVar[Mapping[str, ParamRule]]
    """Of its params, which are these."""

    fits_with: ClassVar[str] = "sklearn.ensemble"
    """What a process that fits imports, and one that only predicts does not. Workers are forked
    from one that has it: else each would load it in its first trial."""

    @property
    def modules(self) -> Sequence[str]:
        return (self.heavy, self.fits_with)

    @property
    def users_target(self) -> None:
        return None

    @abstractmethod
    def params(self, given: Params) -> Any:
        """A trial's params, checked. Raises ValueError or TypeError."""

    @abstractmethod
    def size_bytes(self, params: Any, dataset: Dataset, training: TrainingConfig) -> int:
        """What a trial takes besides what any of them does."""

    def param_names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return tuple(self.rules), ()

    def check_value(self, name: str, value: ParamValue) -> None:
        check_param_value(name, value, self.rules)

    def check_space(self, names: tuple[str, ...]) -> None:
        return None

    def check_training(self, training: TrainingConfig) -> None:
        """Raises ConfigError for what is about gradients."""
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
        """Memory by arithmetic; scikit-learn trains on the CPU alone."""
        try:
            checked = self.params(params)
        except (TypeError, ValueError):  # no trial can have such: it will fail and say so
            return ResourceRequest(None, RequestSource.UNKNOWN, kinds=ON_CPU)
        size_bytes = _BASE_BYTES + self.size_bytes(checked, dataset, training)
        return ResourceRequest(size_bytes, RequestSource.ESTIMATED, kinds=ON_CPU)

    def pack_key(self, params: Params, training: TrainingConfig, *, on_host: bool) -> None:
        return None


MAX_COLUMNS = 2**15 - 1
"""Nodes name them by int16."""
FEW_KINDS = range(3, 65)
"""A category of so many kinds is spread: of two its code tells the same."""
MAX_SPREAD = 1024
"""Columns that all of them may become, else none is spread."""


def n_tree_columns(columns: TableColumns) -> int:
    """F, the width of what `tree_view` gives."""
    return len(columns.all)


def spread_categories(columns: TableColumns) -> list[int]:
    """Which of the categories `spread_view` spreads."""
    sizes = {i: column.n_codes for i, column in enumerate(columns.categories)}
    places = [i for i, size in sizes.items() if size in FEW_KINDS]
    return places if sum(sizes[i] for i in places) <= MAX_SPREAD else []


def n_spread_columns(columns: TableColumns) -> int:
    """F', the width of what `spread_view` gives."""
    return n_tree_columns(columns) + sum(
        columns.categories[i].n_codes - 1 for i in spread_categories(columns)
    )


def check_tree_width(width: int) -> None:
    """Raises AutoMLError for more columns than a node can name."""
    if width > MAX_COLUMNS:
        raise AutoMLError(
            f"{width:,} columns: trees take {MAX_COLUMNS:,} at most. Take fewer, or model=linear."
        )
