"""The formats of `export.format`: the module, the file and the needs of each.

The modules themselves are loaded only when a format is used, because of their imports.
"""

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
    """The interface of a format's module."""

    def check(self) -> None:
        """Raise ConfigError if this machine lacks something that the format needs."""

    def write(
        self,
        program: torch.export.ExportedProgram,
        example: Mapping[str, npt.NDArray[Any]],
        file: Path,
    ) -> None:
        """Write the program, traced with `example`. Raises ConfigError if that is impossible."""


@dataclass(frozen=True)
class ExportFormatSpec:
    """The description of an export format."""

    file: str
    """The name of the model's file in the export."""
    module: str
    """The name of the format's `FormatWriter`, a module that is loaded when it is used."""
    bound_to: tuple[str, ...] = ()
    """The keys of `reader.MACHINE` that must be the same on the machine that runs the export."""
    libraries: tuple[str, ...] = ("torch",)
    """The libraries whose versions are written down."""
    extra: str | None = None
    """The EXTRA of `pip install 'automl-sweep[EXTRA]'`, which installs the `imports`."""
    imports: tuple[str, ...] = ()
    """The packages that the module imports, besides torch."""

    def writer(self) -> FormatWriter:
        """Return the format's module, ready to write.

        Raises ConfigError with a remedy if something is missing.
        """
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
