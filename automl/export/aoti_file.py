"""Writes `export.format=aoti`: C++ by torch's Inductor, compiled for the CPU of this machine.

It is a file of its own as one of the formats, which `formats.py` loads by name.
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


def check() -> None:
    """Raise ConfigError if there is no C++ compiler."""
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler as error:
        raise ConfigError(
            "export.format=aoti compiles C++, and there is no compiler: install one (Debian and "
            "Ubuntu: apt install g++; Fedora: dnf install gcc-c++; else name one by CXX=…), or "
            "take export.format=onnx, which needs none."
        ) from error


def write(
    program: torch.export.ExportedProgram, example: Mapping[str, npt.NDArray[Any]], file: Path
) -> None:
    try:
        with quiet_exporters():
            torch._inductor.aoti_compile_and_package(program, package_path=str(file))
    except Exception as error:  # Inductor and the compiler raise many kinds
        operator = missing_operator(error)
        raise ConfigError(
            f"export.format=aoti: the network cannot be compiled{f' ({operator})' * bool(operator)}"
            f": {short_error_text(error)}. What works instead: export.format=onnx, or "
            f"export.format=torch, "
            "which takes every network that could be traced, as this one could."
        ) from error
