"""Traces a module by `torch.export`, and explains in plain words why one cannot be traced.

The formats write the traced program; this module writes no file.
"""

from __future__ import annotations

import logging
import re
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch

import automl
from automl.errors import ConfigError
from automl.models.model_file import short_error_text

_LIBRARY_FOLDERS = tuple(str(Path(str(package.__file__)).parent) for package in (torch, automl))


def trace_module(
    module: torch.nn.Module, example: Mapping[str, npt.NDArray[Any]]
) -> torch.export.ExportedProgram:
    """Return the graph of a module for any number of rows. Raises ConfigError.

    `example` has two or more rows.
    """
    inputs = {name: torch.from_numpy(array) for name, array in example.items()}
    rows = {name: {0: torch.export.Dim.DYNAMIC} for name in inputs}
    try:
        with quiet_exporters(), torch.no_grad():
            return torch.export.export(module, (), inputs, dynamic_shapes=rows)
    except Exception as error:  # torch and the user's forward raise any kind
        raise ConfigError(
            f"model: its network cannot be traced by torch.export, which every format begins with: "
            f"{_where(error)}{_first_line(error)} What works instead: `predict` and automl.load "
            "run it as it is; a forward whose steps do not depend on the numbers in a row "
            "(torch.where in place of `if`, no numpy, any number of rows) can be exported."
        ) from error


@contextmanager
def quiet_exporters() -> Iterator[None]:
    """Silence torch's exporters within the `with`.

    They warn of their own deprecations and of absent torchvision, and print graphs that they
    refuse. None of this helps a user who exports.
    """
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def missing_operator(error: BaseException) -> str | None:
    """Return the operator that an exporter could not translate, such as `aten._linalg_svd`.

    None means that the error names no operator.
    """
    link: BaseException | None = error
    named = None
    while link is not None:
        found = re.search(r"OpOverload\(op='([\w.:]+)'|target=torch\.ops\.([\w.]+)", str(link))
        named = (found[1] or found[2]) if found else named
        link = link.__cause__
    return named


def _where(error: BaseException) -> str:
    """Return the line of the user's code that was running, as the beginning of a sentence."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith(_LIBRARY_FOLDERS) and f.name == "forward"]
    return (
        f"{Path(own[-1].filename).name}, line {own[-1].lineno}, `{own[-1].line}`: " if own else ""
    )


def _first_line(error: BaseException) -> str:
    line = short_error_text(Exception(str(error).strip().partition("\n")[0]))
    return f"{type(error).__name__}: {line.rstrip('.')}."
