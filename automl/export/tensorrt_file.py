"""Writes `export.format=tensorrt`: engines for the GPU of this machine. It was never run on one.

TensorRT knows no float64, so numbers are read in float32. Columns of large numbers with small
differences (times) therefore fail the parity check, and nothing is written. It is a file of its own
as one of the formats, which `formats.py` loads by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch

from automl.errors import ConfigError
from automl.export.tracing import missing_operator, quiet_exporters
from automl.models.model_file import short_error_text

_LEAST_ROWS, _MOST_ROWS = 1, 16_384
"""The range of batch sizes for which an engine is made."""


def check() -> None:
    """Raise ConfigError if there is no NVIDIA GPU."""
    if not torch.cuda.is_available():
        raise ConfigError(
            "export.format=tensorrt builds for the GPU that is here, and there is none: run it on "
            "the machine that is to serve, or take export.format=onnx."
        )


def write(
    program: torch.export.ExportedProgram, example: Mapping[str, npt.NDArray[Any]], file: Path
) -> None:
    import torch_tensorrt

    inputs = {
        name: torch_tensorrt.Input(
            min_shape=(_LEAST_ROWS, array.shape[1]),
            opt_shape=(_LEAST_ROWS, array.shape[1]),
            max_shape=(_MOST_ROWS, array.shape[1]),
            dtype=torch.from_numpy(array).dtype,
        )
        for name, array in example.items()
    }
    try:
        with quiet_exporters():
            compiled = torch_tensorrt.dynamo.compile(
                program, kwarg_inputs=inputs, truncate_double=True
            )
            on_gpu = {name: torch.from_numpy(array).cuda() for name, array in example.items()}
            torch_tensorrt.save(compiled, str(file), kwarg_inputs=on_gpu, arg_inputs=[])
    except Exception as error:  # TensorRT raises many kinds
        raise ConfigError(
            f"export.format=tensorrt: the network cannot be compiled "
            f"({missing_operator(error) or ''}): "
            f"{short_error_text(error)}. What works instead: export.format=onnx or "
            f"export.format=torch."
        ) from error
