"""What ways of running a model are made of: one traced graph, and files that are written once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch

from automl.config import ExportFormat
from automl.errors import ConfigError
from automl.export import onnx_file
from automl.export.formats import EXPORT_FORMATS
from automl.export.network_graph import ScoringModule, is_network_predictor, make_scoring_module
from automl.export.tracing import trace_module
from automl.measure.tuning.choice import InputArrays, ScoreFunction, first_rows
from automl.models.predictor import Predictor


class WayUnavailableError(Exception):
    """Raised where a way cannot be measured; its text is why, for people."""


@dataclass(frozen=True)
class CallableWay:
    """A way, ready to be called."""

    scores: ScoreFunction
    file: Path | None = None
    """What it runs, if an export can be that."""
    format: ExportFormat | None = None


@dataclass(frozen=True)
class InferenceWay:
    """One of them."""

    name: str
    make: Callable[[WayArtifacts], CallableWay]
    """Raises NotHereError."""
    threads: int | None = None
    rounds: bool = False
    """It computes in fewer bits than the model was trained in."""
    why_not: str = ""
    """It cannot be measured here, which is known beforehand."""
    any_model: bool = False
    """It runs models that are no networks, too."""
    making_seconds: float = 2.0
    """About, on two cores; what is compiled takes longer."""


class WayArtifacts:
    """What ways are made of: each file is written once."""

    def __init__(self, predictor: Predictor, arrays: InputArrays, folder: Path) -> None:
        """`arrays` are some rows as the graph takes them; files are made in `folder`. Raises
        AutoMLError for a model that is not exported."""
        self._predictor = predictor
        self.example: dict[str, npt.NDArray[Any]] = first_rows(arrays, 2)
        self._folder, self._files = folder, dict[ExportFormat, Path]()

    @cached_property
    def graph(self) -> ScoringModule:
        """Of a network, or the mean of several."""
        return make_scoring_module(self._predictor)

    @cached_property
    def program(self) -> torch.export.ExportedProgram:
        """Raises ConfigError for a network that cannot be traced."""
        return trace_module(self.graph, self.example)

    @cached_property
    def onnx_int8(self) -> Path:
        """Weights as int8 by ONNX Runtime's quantizer, activations as they come."""
        file = self._folder / "int8.onnx"
        onnx_file.quantize_onnx(self.written(ExportFormat.onnx), file)
        return file

    def written(self, kind: ExportFormat) -> Path:
        """The file of a format. Raises NotHereError."""
        if kind not in self._files:
            self._files[kind] = self._write(kind)
        return self._files[kind]

    def rounded(self) -> ScoringModule:
        """The graph with its networks in bfloat16, the table's columns as before."""
        graph = copy.deepcopy(self.graph)
        graph.networks.to(torch.bfloat16)
        graph.dtypes = [torch.bfloat16] * len(graph.dtypes)
        return graph

    def _write(self, kind: ExportFormat) -> Path:
        try:
            form = EXPORT_FORMATS[kind]
            writer = form.writer()
            file = self._folder / f"{kind.value}-{form.file}"
            if is_network_predictor(self._predictor):
                writer.write(self.program, self.example, file)
            else:
                from automl.export import table_file  # it needs onnx

                table_file.write(self._predictor, self.example, file)
        except ConfigError as error:
            raise WayUnavailableError(
                str(error).removeprefix(f"export.format={kind.value}: ")
            ) from error
        return file
