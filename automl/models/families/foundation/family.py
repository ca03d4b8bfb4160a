"""Defines the light side of foundation models: params, weights, memory and time.

A foundation model was trained on many tables before. It learns nothing here: it reads the training
rows with each prediction. Its weights come from a file that the user names; nothing is downloaded.
"""

from __future__ import annotations

import functools
import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from automl.config import ExportFormat, TrainingConfig
from automl.errors import ConfigError
from automl.models.families.table_family import TableFamily, TableParams
from automl.models.family import family_name
from automl.models.networks.network_family import POSITIVE, ParamRule, whole_number
from automl.trial import Params, ParamValue, ResourceRequest

if TYPE_CHECKING:
    from automl.data.dataset import Dataset

_BASE_BYTES = 256 * 2**20
"""Memory of torch and the library, besides weights and rows."""
_CELL_BYTES_FACTOR, _CELL_SECONDS = 24, 4e-4
"""Number of float32 arrays of a cell's width at one time, and seconds of one core for a cell and a
view (experiments/013-tables/boosters.md)."""


@dataclass(frozen=True)
class FoundationParams(TableParams):
    """The params of one trial; nothing is trained."""

    rules: ClassVar[Mapping[str, ParamRule]] = {
        "n_estimators": whole_number(1, 64),
        "softmax_temperature": POSITIVE,
    }

    n_estimators: int = 8
    """Number of views of the table, columns in other orders, whose predictions are averaged."""
    softmax_temperature: float = 0.9
    """Divisor of the scores of classes; below 1, predictions are more certain."""


@dataclass
class FoundationFamily(TableFamily):
    """A model that predicts from the training rows and weights that other tables made."""

    heavy = "automl.models.families.foundation.heavy"
    trial_params = FoundationParams
    library = "torch"
    weighs_classes = False
    export_formats: ClassVar[tuple[ExportFormat, ...]] = ()
    no_export_reason = (
        "a foundation model reads its training rows with each prediction, by its own library"
    )
    cell_width: ClassVar[int]
    """Numbers that the model keeps for a cell of the table."""

    weights: str | None = None
    """Path of the file of weights, which is never downloaded; those for classes or those for
    numbers, as the target is."""

    @property
    @abstractmethod
    def weights_source(self) -> str:
        """Where people get weights, for messages."""

    def check_ready(self) -> None:
        """Raise ConfigError unless the library and the weights are here."""
        super().check_ready()
        name = family_name(self)
        if self.weights is None or not Path(self.weights).is_file():
            where = "is not set" if self.weights is None else f"{self.weights}: there is no file"
            raise ConfigError(
                f"model.weights {where}: model={name} loads weights from a file and downloads "
                f"none. Get them ({self.weights_source}), then model.weights=FILE, or with "
                f"model=auto model.weights.{name}=FILE."
            )

    def identity(self) -> Mapping[str, Any]:
        """Return the digest of the weights; their file may move."""
        known = self.weights is not None and Path(self.weights).is_file()
        digest = digest_of(Path(str(self.weights))) if known else None
        return {"family": family_name(self), "weights_sha256": digest}

    def n_reports(self, training: TrainingConfig) -> int:
        """Return 1, whatever `training.epochs` says."""
        return 1

    def size_bytes(
        self, params: FoundationParams, dataset: Dataset, training: TrainingConfig
    ) -> int:
        """Return the memory of the weights, twice while they are read, and of all cells of the
        training rows and of the rows that are predicted together, view by view."""
        weights = Path(str(self.weights))
        n_weights = weights.stat().st_size if weights.is_file() else 0
        n_rows = len(dataset.train) + min(len(dataset.validation), ROWS_AT_ONCE)
        n_cells = n_rows * (len(dataset.columns.all) + _EXTRA_COLUMNS)
        return _BASE_BYTES + 2 * n_weights + n_cells * self.cell_width * 4 * _CELL_BYTES_FACTOR

    def request(
        self, params: Params, dataset: Dataset, training: TrainingConfig
    ) -> ResourceRequest:
        """Return the memory by arithmetic, on a CPU or a GPU."""
        request = super().request(params, dataset, training)
        return ResourceRequest(request.memory_bytes, request.source)

    def trial_seconds(
        self, dataset: Dataset, training: TrainingConfig, ends: Mapping[str, Iterable[ParamValue]]
    ) -> float:
        """Return the time of one core to predict the validation rows from the training rows."""
        data = dataset.first_fold
        n_cells = (len(data.train) + len(data.validation)) * len(data.columns.all)
        return dataset.n_models * FoundationParams().n_estimators * n_cells * _CELL_SECONDS


ROWS_AT_ONCE = 4096
"""Number of rows that are predicted together."""
_EXTRA_COLUMNS = 4
"""Number of columns that a model adds to those of a table."""


@dataclass
class TabICLFamily(FoundationFamily):
    """TabICL (Qu et al., 2025, https://arxiv.org/abs/2502.05564)."""

    option = extra = fitting_module = "tabicl"
    cell_width = 128
    weights_source = "https://huggingface.co/jingang/TabICL"


@dataclass
class TabPFNFamily(FoundationFamily):
    """TabPFN (Hollmann et al., 2025, https://doi.org/10.1038/s41586-024-08328-6)."""

    option = extra = fitting_module = "tabpfn"
    cell_width = 192
    weights_source = "https://huggingface.co/Prior-Labs; their licence is their own"


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex, computed again only where the file changed."""
    status = path.stat()
    return _digest(str(path.resolve()), status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=16)
def _digest(path: str, size: int, changed: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
