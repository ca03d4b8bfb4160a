"""A trained model as files that other programs run."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from automl.config.checks import check
from automl.config.which_model import WhichModel


class ExportFormat(enum.Enum):
    onnx = "onnx"
    torch = "torch"
    aoti = "aoti"
    tensorrt = "tensorrt"


@dataclass
class ExportConfig:
    """What `export` writes, and where."""

    format: ExportFormat = ExportFormat.onnx
    """onnx: ONNX Runtime. torch: `torch.export`. aoti: compiled for this CPU. tensorrt: for this
    GPU."""
    trial: int | None = None
    """Of which trial; none: the best."""
    model: WhichModel = WhichModel.auto
    """Of which: auto is the refit where there is one and no trial is named, else the ensemble, else
    the best trial."""
    tune: bool = False
    """Measure each way of running the model here, and write the fastest that is a file: `format`
    says nothing then."""
    tolerance: float = 0.01
    """The share by which a way in int8 or bf16 may raise the model's loss on validation rows."""
    to: str | None = None
    """The folder; none: one in the study, `exports/trial-…-FORMAT` or `exports/refit-…`."""

    def __post_init__(self) -> None:
        check(self.trial is None or self.trial >= 0, "export.trial", self.trial, "must be ≥ 0.")
        check(
            0 <= self.tolerance < math.inf,
            "export.tolerance",
            self.tolerance,
            "must be ≥ 0, finite.",
        )
        check(self.to != "", "export.to", self.to, "must name a folder.")
