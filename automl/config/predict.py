"""A table scored by a trained model."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from automl.config.checks import check
from automl.config.which_model import WhichModel


@dataclass
class PredictConfig:
    """What `predict` reads and writes."""

    input: str | None = None
    """The table: CSV or Parquet of any size, with the columns that the model learned from."""
    output: str | None = None
    """The scores: CSV, or Parquet where the name ends in .parquet; a row for each of the table."""
    trial: int | None = None
    """By which trial; none: the best."""
    model: WhichModel = WhichModel.auto
    """By which: auto is the refit where there is one and no trial is named, else the ensemble, else
    the best trial."""
    members: int | None = None
    """By so many members of an ensemble, the heaviest, which is faster; none: by all."""
    device: str = "auto"
    """Where a network computes: cpu, cuda, cuda:1, or auto: on a GPU where that is faster."""
    keep: list[str] = field(default_factory=list)
    """Columns of the table that are copied beside the scores, such as an id."""

    def __post_init__(self) -> None:
        check(
            re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", self.device) is not None,
            "predict.device",
            self.device,
            "must be auto, cpu, cuda or cuda:NUMBER.",
        )
        check(self.trial is None or self.trial >= 0, "predict.trial", self.trial, "must be ≥ 0.")
        check(
            self.members is None or self.members >= 1,
            "predict.members",
            self.members,
            "must be at least 1.",
        )
