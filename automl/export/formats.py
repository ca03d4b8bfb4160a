"""What each `export.format` needs, writes and is bound to."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, cast

import numpy.typing as npt
import torch

from automl.config import ExportFormat
from automl.errors import ConfigError


class FormatWriter(Protocol):
    """The module of a format."""

    def check(self) -> None:
        """Raise ConfigError where what it needs is not here."""

    def write(
        self,
        program: torch.export.ExportedProgram,
        example: Mapping[str, npt.NDArray[Any]],
        file: Path,
    ) -> None:
        """Write the program, traced with `example`. Raises ConfigError where it cannot be."""


@dataclass(frozen=True)
class ExportFormatSpec:
    """One of them."""

    file: str
    """The file's name in the export."""
    module: str
    """Its `FormatWriter`; loaded where it is asked for, because of what it imports."""
    bound_to: tuple[str, ...] = ()
    """What of `reader.MACHINE` must be the same where it runs."""
    libraries: tuple[str, ...] = ("torch",)
    """Whose versions are written down."""
    extra: str | None = None
    """Of `pip install 'automl-sweep[EXTRA]'`, which brings what it imports:"""
    imports: tuple[str, ...] = ()

    def writer(self) -> FormatWriter:
        """Raises ConfigError where something is missing, and says how to get it."""
        absent = [name for name in self.imports if find_spec(name) is None]
        if absent:
            raise ConfigError(
                f"export.format: this one needs {' and '.join(absent)}, which is not installed: "
                f"pip install 'automl-sweep[{self.extra}]', or choose another export.format."
            )
        writer = cast(FormatWriter, importlib.import_module(self.module))
        writer.check()
        return writer


_ONNX = ("onnx", "onnxscript", "onnxruntime")
_CPU = ("system", "machine", "cpu_features", "torch")
EXPORT_FORMATS = {
    ExportFormat.onnx: ExportFormatSpec(
        "model.onnx",
        "automl.export.onnx_file",
        libraries=("torch", *_ONNX),
        extra="export",
        imports=_ONNX,
    ),
    ExportFormat.torch: ExportFormatSpec("model.pt2", "automl.export.torch_file"),
    ExportFormat.aoti: ExportFormatSpec("model.pt2", "automl.export.aoti_file", bound_to=_CPU),
    ExportFormat.tensorrt: ExportFormatSpec(
        "model.pt2",
        "automl.export.tensorrt_file",
        bound_to=("system", "machine", "torch", "gpu"),
        libraries=("torch", "torch-tensorrt"),
        extra="tensorrt",
        imports=("torch_tensorrt",),
    ),
}
