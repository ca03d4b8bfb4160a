"""`export.format=onnx`: by torch's dynamo exporter, for ONNX Runtime."""

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
"""Of the weights: an ONNX file is a protobuf message, which ends at 2 GiB."""


def check() -> None:
    """What it imports is all that it needs."""


def write(
    program: torch.export.ExportedProgram, example: Mapping[str, npt.NDArray[Any]], file: Path
) -> None:
    with _told():
        _translated(program).save(str(file), external_data=False)


def make_onnx_model(program: torch.export.ExportedProgram) -> onnx.ModelProto:
    """What `write` writes. Raises ConfigError."""
    with _told():
        return _translated(program).model_proto


def _translated(program: torch.export.ExportedProgram) -> torch.onnx.ONNXProgram:
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
def _told() -> Iterator[None]:
    """In silence; raises ConfigError where it cannot be done."""
    try:
        with quiet_exporters():
            yield
    except (ConfigError, OSError):  # a full disk is not the network's fault
        raise
    except Exception as error:  # whatever torch, onnxscript and onnx raise
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
    """Its weights as int8, what goes through them rounded as it comes: by ONNX Runtime."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with quiet_exporters():
        quantize_dynamic(str(file), str(to), weight_type=QuantType.QInt8)
