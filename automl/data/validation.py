"""The rows that chose among trials, as a model reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from automl.config import DataConfig, DataKind
from automl.data.dataset import Label, Part, Rows
from automl.data.generated import CLASSES, Purpose, disc
from automl.data.source import digits_source, table_source
from automl.data.split import split_rows


def validation_part(
    config: DataConfig, read: Callable[[Any], Rows]
) -> tuple[Part, tuple[Label, ...]]:
    """The validation rows (with folds all that train and judge) as a model reads them
    (`Predictor.read`), and the classes that the targets number.

    Raises ConfigError for a table that cannot be read, or lacks columns.
    """
    if config.kind is DataKind.disc:
        return disc(config.n_validation, config.split_seed, Purpose.validation), CLASSES
    config = replace(config, split_to=None)
    source = digits_source() if config.kind is DataKind.digits else table_source(config)
    split = split_rows(source.y, config, source.related)
    rows = split.train if split.folds else split.validation
    return Part(read(source.frame.iloc[rows]), source.y[rows]), source.target.classes
