"""`export.format=tensorrt`: engines for the GPU that is here. Tried on none so far.

TensorRT knows no float64: numbers are read in float32, so that columns of large numbers with small
differences (times) fail the parity, and nothing is written.
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
"""Engines are made for a range of batches."""


def check() -> None:
    """Raises ConfigError without an NVIDIA GPU."""
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
            given = {name: torch.from_numpy(array).cuda() for name, array in example.items()}
            torch_tensorrt.save(compiled, str(file), kwarg_inputs=given, arg_inputs=[])
    except Exception as error:  # whatever TensorRT raises
        raise ConfigError(
            f"export.format=tensorrt: the network cannot be compiled "
            f"({missing_operator(error) or ''}): "
            f"{short_error_text(error)}. What works instead: export.format=onnx or "
            f"export.format=torch."
        ) from error
