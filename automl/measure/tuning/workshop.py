"""A way of running a model, and the artifacts from which ways are made.

The artifacts are one traced graph, and files that are written once. The list of ways is in
`ways.py`.
"""

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
    """Raised when a way cannot be measured here; its text is the reason, for people."""


@dataclass(frozen=True)
class CallableWay:
    """A way of running a model that is ready to be called."""

    scores: ScoreFunction
    file: Path | None = None
    """The file that the way runs, if it can be an export."""
    format: ExportFormat | None = None


@dataclass(frozen=True)
class InferenceWay:
    """A way of running a model, before it is made ready."""

    name: str
    make: Callable[[WayArtifacts], CallableWay]
    """Makes the way ready to be called. Raises WayUnavailableError."""
    threads: int | None = None
    rounds: bool = False
    """Whether the way computes in fewer bits than the training."""
    why_not: str = ""
    """The reason why the way cannot be measured here, if that is known beforehand."""
    any_model: bool = False
    """Whether the way also runs models that are no networks."""
    making_seconds: float = 2.0
    """About the time to make the way ready, on two cores; compiled ways take longer."""


class WayArtifacts:
    """The graph of a model and its files in all formats, from which ways are made."""

    def __init__(self, predictor: Predictor, arrays: InputArrays, folder: Path) -> None:
        """Take example rows as inputs of the graph, and the folder of the files.

        Raises AutoMLError for a model that cannot be exported.
        """
        self._predictor = predictor
        self.example: dict[str, npt.NDArray[Any]] = first_rows(arrays, 2)
        self._folder, self._files = folder, dict[ExportFormat, Path]()

    @cached_property
    def graph(self) -> ScoringModule:
        """The graph of a network, or of the mean of several networks."""
        return make_scoring_module(self._predictor)

    @cached_property
    def program(self) -> torch.export.ExportedProgram:
        """The traced graph. Raises ConfigError for a network that cannot be traced."""
        return trace_module(self.graph, self.example)

    @cached_property
    def onnx_int8(self) -> Path:
        """The ONNX file with int8 weights; activations are quantized at run time."""
        file = self._folder / "int8.onnx"
        onnx_file.quantize_onnx(self.file_of(ExportFormat.onnx), file)
        return file

    def file_of(self, kind: ExportFormat) -> Path:
        """Return the file of a format, which is written once. Raises WayUnavailableError."""
        if kind not in self._files:
            self._files[kind] = self._write(kind)
        return self._files[kind]

    def bfloat16_graph(self) -> ScoringModule:
        """Return the graph with its networks in bfloat16; the columns keep their precision."""
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
                from automl.export import table_file  # imports onnx, which may be missing

                table_file.write(self._predictor, self.example, file)
        except ConfigError as error:
            raise WayUnavailableError(
                str(error).removeprefix(f"export.format={kind.value}: ")
            ) from error
        return file
