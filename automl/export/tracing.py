"""The graph of a module by `torch.export`, and in plain words why there is none."""

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

_NOT_USERS = tuple(str(Path(str(package.__file__)).parent) for package in (torch, automl))


def trace_module(
    module: torch.nn.Module, example: Mapping[str, npt.NDArray[Any]]
) -> torch.export.ExportedProgram:
    """The graph for any number of rows; `example` are two or more. Raises ConfigError."""
    inputs = {name: torch.from_numpy(array) for name, array in example.items()}
    rows = {name: {0: torch.export.Dim.DYNAMIC} for name in inputs}
    try:
        with quiet_exporters(), torch.no_grad():
            return torch.export.export(module, (), inputs, dynamic_shapes=rows)
    except Exception as error:  # whatever torch, or the user's forward, raises
        raise ConfigError(
            f"model: its network cannot be traced by torch.export, which every format begins with: "
            f"{_where(error)}{_first_line(error)} What works instead: `predict` and automl.load "
            "run it as it is; a forward whose steps do not depend on the numbers in a row "
            "(torch.where in place of `if`, no numpy, any number of rows) can be exported."
        ) from error


@contextmanager
def quiet_exporters() -> Iterator[None]:
    """torch's exporters warn of their own deprecations, of absent torchvision, and print graphs
    of what they refuse: none of it is for who exports."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def missing_operator(error: BaseException) -> str | None:
    """The operator that an exporter had no translation for: `aten._linalg_svd`; None: none said."""
    link: BaseException | None = error
    named = None
    while link is not None:
        found = re.search(r"OpOverload\(op='([\w.:]+)'|target=torch\.ops\.([\w.]+)", str(link))
        named = (found[1] or found[2]) if found else named
        link = link.__cause__
    return named


def _where(error: BaseException) -> str:
    """The line of the user's that was running."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith(_NOT_USERS) and f.name == "forward"]
    return (
        f"{Path(own[-1].filename).name}, line {own[-1].lineno}, `{own[-1].line}`: " if own else ""
    )


def _first_line(error: BaseException) -> str:
    line = short_error_text(Exception(str(error).strip().partition("\n")[0]))
    return f"{type(error).__name__}: {line.rstrip('.')}."
