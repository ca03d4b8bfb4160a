"""The formats of `export.format`: how each writes a traced program, and what it needs.

`onnx` is written by torch's dynamo exporter, for ONNX Runtime; models that are no networks are
written by `table_file.py`. `torch` is the traced program itself, for torch of this version or
newer. `aoti` is C++ by torch's Inductor, compiled for the CPU of this machine, and `tensorrt` has
engines for its GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import torch

from automl.config import ExportFormat
from automl.errors import ConfigError
from automl.export.tracing import missing_operator, quiet_exporters
from automl.models.model_file import short_error_text

if TYPE_CHECKING:
    import onnx

Example = Mapping[str, npt.NDArray[Any]]
"""Rows by the names of the program's inputs."""


def _check_nothing() -> None:
    """Do nothing, because every machine will do."""


@dataclass(frozen=True)
class ExportFormatSpec:
    """The description of an export format."""

    file: str
    """The name of the model's file in the export."""
    write: Callable[[torch.export.ExportedProgram, Example, Path], None]
    """Writes a program that was traced with an example. Raises ConfigError if it cannot be."""
    check_machine: Callable[[], None] = _check_nothing
    """Raises ConfigError if this machine lacks something that the format needs."""
    bound_to: tuple[str, ...] = ()
    """The keys of `reader.MACHINE` that must be the same on the machine that runs the export."""
    libraries: tuple[str, ...] = ("torch",)
    """The libraries whose versions are written down."""
    extra: str | None = None
    """The EXTRA of `pip install 'automl-sweep[EXTRA]'`, which installs the `imports`."""
    imports: tuple[str, ...] = ()
    """The packages that writing imports, besides torch."""

    def check(self) -> None:
        """Raise ConfigError with a remedy if something is missing."""
        absent = [name for name in self.imports if find_spec(name) is None]
        if absent:
            raise ConfigError(
                f"export.format: this one needs {' and '.join(absent)}, which is not installed: "
                f"pip install 'automl-sweep[{self.extra}]', or choose another export.format."
            )
        self.check_machine()


MAX_ONNX_BYTES = 2**31 - 2**20
"""The most bytes of weights: an ONNX file is a protobuf message, which ends at 2 GiB."""


def _write_onnx(program: torch.export.ExportedProgram, example: Example, file: Path) -> None:
    with _explained_onnx_errors():
        _translate(program).save(str(file), external_data=False)


def make_onnx_model(program: torch.export.ExportedProgram) -> onnx.ModelProto:
    """Return the model that stands for a program. Raises ConfigError."""
    with _explained_onnx_errors():
        return _translate(program).model_proto


def _translate(program: torch.export.ExportedProgram) -> torch.onnx.ONNXProgram:
    n_bytes = sum(w.numel() * w.element_size() for w in program.state_dict.values())
    if n_bytes > MAX_ONNX_BYTES:
        raise ConfigError(
            f"format=onnx: an ONNX file holds 2 GiB at most, and the weights take {n_bytes} "
            "bytes; format=torch takes them."
        )
    translated = torch.onnx.export(program, dynamo=True, verbose=False, optimize=True)
    assert translated is not None, "the dynamo exporter returns it"
    return translated


@contextmanager
def _explained_onnx_errors() -> Iterator[None]:
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
            f"format=onnx: the network cannot be written as ONNX: {what}. What works "
            "instead: format=torch, which takes every network that could be traced, as this "
            "one could."
        ) from error


def quantize_onnx(file: Path, to: Path) -> None:
    """Write a copy of an ONNX file with int8 weights, by ONNX Runtime's quantizer.

    Activations are rounded at run time.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with quiet_exporters():
        quantize_dynamic(str(file), str(to), weight_type=QuantType.QInt8)


def _write_torch(program: torch.export.ExportedProgram, example: Example, file: Path) -> None:
    torch.export.save(program, file)


def check_compiler() -> None:
    """Raise ConfigError if there is no C++ compiler."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler as error:
        raise ConfigError(
            "format=aoti compiles C++, and there is no compiler: install one (Debian and "
            "Ubuntu: apt install g++; Fedora: dnf install gcc-c++; else name one by CXX=…), or "
            "take format=onnx, which needs none."
        ) from error


def _write_aoti(program: torch.export.ExportedProgram, example: Example, file: Path) -> None:
    try:
        with quiet_exporters():
            torch._inductor.aoti_compile_and_package(program, package_path=str(file))
    except Exception as error:  # Inductor and the compiler raise many kinds
        operator = missing_operator(error)
        raise ConfigError(
            f"format=aoti: the network cannot be compiled{f' ({operator})' * bool(operator)}"
            f": {short_error_text(error)}. What works instead: format=onnx, or "
            f"format=torch, "
            "which takes every network that could be traced, as this one could."
        ) from error


_LEAST_ROWS, _MOST_ROWS = 1, 16_384
"""The range of batch sizes for which an engine is made."""


def _check_gpu() -> None:
    """Raise ConfigError if there is no NVIDIA GPU."""
    if not torch.cuda.is_available():
        raise ConfigError(
            "format=tensorrt builds for the GPU that is here, and there is none: run it on "
            "the machine that is to serve, or take format=onnx."
        )


def _write_tensorrt(program: torch.export.ExportedProgram, example: Example, file: Path) -> None:
    """Write engines for the GPU of this machine; this was never run on one.

    TensorRT knows no float64, so numbers are read in float32. Columns of large numbers with small
    differences (times) therefore fail the parity check.
    """
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
            f"format=tensorrt: the network cannot be compiled "
            f"({missing_operator(error) or ''}): "
            f"{short_error_text(error)}. What works instead: format=onnx or format=torch."
        ) from error


_ONNX = ("onnx", "onnxscript", "onnxruntime")
_CPU = ("system", "machine", "cpu_features", "torch")
EXPORT_FORMATS = {
    ExportFormat.onnx: ExportFormatSpec(
        "model.onnx",
        _write_onnx,
        libraries=("torch", *_ONNX),
        extra="export",
        imports=_ONNX,
    ),
    ExportFormat.torch: ExportFormatSpec("model.pt2", _write_torch),
    ExportFormat.aoti: ExportFormatSpec("model.pt2", _write_aoti, check_compiler, bound_to=_CPU),
    ExportFormat.tensorrt: ExportFormatSpec(
        "model.pt2",
        _write_tensorrt,
        _check_gpu,
        bound_to=("system", "machine", "torch", "gpu"),
        libraries=("torch", "torch-tensorrt"),
        extra="tensorrt",
        imports=("torch_tensorrt",),
    ),
}
