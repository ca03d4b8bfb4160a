"""Writes `export.format=onnx` by torch's dynamo exporter, for ONNX Runtime.

Models that are no networks are written by `table_file.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import torch

from automl.errors import ConfigError
from automl.export.tracing import missing_operator, quiet_exporters
from automl.models.model_file import short_error_text

if TYPE_CHECKING:
    import onnx

MAX_ONNX_BYTES = 2**31 - 2**20
"""The most bytes of weights: an ONNX file is a protobuf message, which ends at 2 GiB."""


def check() -> None:
    """Check nothing: the imports of the format suffice."""


def write(
    program: torch.export.ExportedProgram, example: Mapping[str, npt.NDArray[Any]], file: Path
) -> None:
    with _explained_errors():
        _translate(program).save(str(file), external_data=False)


def make_onnx_model(program: torch.export.ExportedProgram) -> onnx.ModelProto:
    """Return the model that `write` would write. Raises ConfigError."""
    with _explained_errors():
        return _translate(program).model_proto


def _translate(program: torch.export.ExportedProgram) -> torch.onnx.ONNXProgram:
    n_bytes = sum(w.numel() * w.element_size() for w in program.state_dict.values())
    if n_bytes > MAX_ONNX_BYTES:
        raise ConfigError(
            f"export.format=onnx: an ONNX file holds 2 GiB at most, and the weights take {n_bytes} "
            "bytes; export.format=torch takes them."
        )
    translated = torch.onnx.export(program, dynamo=True, verbose=False, optimize=True)
    assert translated is not None, "the dynamo exporter returns it"
    return translated


@contextmanager
def _explained_errors() -> Iterator[None]:
    """Silence the exporters, and raise their errors as ConfigError with a remedy."""
    try:
        with quiet_exporters():
            yield
    except (ConfigError, OSError):  # a full disk is not the network's fault
        raise
    except Exception as error:  # torch, onnxscript and onnx raise many kinds
        operator = missing_operator(error)
        what = (
            f"the operator {operator} has no translation" if operator else short_error_text(error)
        )
        raise ConfigError(
            f"export.format=onnx: the network cannot be written as ONNX: {what}. What works "
            "instead: export.format=torch, which takes every network that could be traced, as this "
            "one could."
        ) from error


def quantize_onnx(file: Path, to: Path) -> None:
    """Write a copy of an ONNX file with int8 weights, by ONNX Runtime's quantizer.

    Activations are rounded at run time.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with quiet_exporters():
        quantize_dynamic(str(file), str(to), weight_type=QuantType.QInt8)
