"""Attributes by identity, descriptors by what they lead to."""

from __future__ import annotations

import builtins
import functools
import os
import subprocess
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from automl.execution.isolation.trial_isolation import (
    NAMESPACES,
    changed_attributes,
    closed_descriptors,
    module_names,
    open_descriptors,
)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (torch, "relu"),
        (torch.nn, "Linear"),
        (torch.nn.functional, "relu"),
        (torch.optim, "Adam"),
        (builtins, "open"),
        (builtins, "__import__"),
        (np.random, "rand"),
    ],
)
def test_an_attribute_that_is_replaced_differs(
    module: types.ModuleType, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert module.__name__ in NAMESPACES
    before = module_names()
    was = getattr(module, name)

    @functools.wraps(was)
    def other(*args: object, **kwargs: object) -> object:
        return was(*args, **kwargs)

    monkeypatch.setattr(module, name, other)
    assert changed_attributes(before) == [f"{module.__name__}.{name}"]
    monkeypatch.setattr(module, name, was)
    assert changed_attributes(before) == []


def test_an_equal_object_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "inf", float("inf"))
    before = module_names()
    monkeypatch.setattr(torch, "inf", float("-inf") * -1)
    assert changed_attributes(before) == ["torch.inf"]


def test_what_is_added_or_removed_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    before = module_names()
    monkeypatch.setattr(builtins, "helper", len, raising=False)
    monkeypatch.delattr(torch.nn.functional, "gelu")
    assert changed_attributes(before) == ["torch.nn.functional.gelu", "builtins.helper"]


def test_what_python_adds_by_itself_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules that are imported, and the notes of warnings."""
    monkeypatch.delattr(torch, "__warningregistry__", raising=False)
    before = module_names()
    monkeypatch.setattr(torch, "imported_late", types.ModuleType("late"), raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec("import warnings; warnings.warn('old')", vars(torch))
    monkeypatch.delattr(torch, "warnings", raising=False) if "warnings" not in before[
        "torch"
    ] else None
    assert changed_attributes(before) == []


@pytest.mark.slow
def test_what_training_makes_torch_import_does_not_differ() -> None:
    """Its first optimizer, compiler and vmap; in a process that has none of them yet."""
    code = """
import sys
import torch
from automl.execution.isolation.trial_isolation import changed_attributes, module_names
before = module_names()
assert "torch._dynamo" not in sys.modules
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.Adam(model.parameters())
model(torch.ones(1, 2)).sum().backward()
optimizer.step()
torch.compile(model, backend="eager")(torch.ones(1, 2))
torch.func.vmap(model)(torch.ones(3, 1, 2))
with torch.autocast("cpu"):
    model(torch.ones(1, 2))
assert "torch._dynamo" in sys.modules
assert torch.manual_seed is not before["torch"]["manual_seed"]
print(changed_attributes(before))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_module_that_is_not_imported_is_not_compared() -> None:
    code = """
from automl.execution.isolation.trial_isolation import module_names
print(*module_names())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "builtins\n"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="descriptors are not listed")
@pytest.mark.parametrize("replace", [os.close, lambda fd: os.dup2(0, fd)], ids=["closed", "other"])
def test_a_descriptor_that_leads_there_no_more(
    tmp_path: Path, replace: Callable[[int], object]
) -> None:
    path = tmp_path / "data.bin"
    path.touch()
    fd = os.open(path, os.O_RDONLY)
    before = open_descriptors()
    assert closed_descriptors(before) == []
    replace(fd)
    assert closed_descriptors(before) == [str(path)]
    if replace is not os.close:
        os.close(fd)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="descriptors are not listed")
def test_what_has_a_number_only_is_named_by_its_kind_and_standard_streams_are_not_looked_at() -> (
    None
):
    read, write = os.pipe()
    before = open_descriptors()
    assert min(before) > 2
    os.close(read)
    os.close(write)
    assert closed_descriptors(before) == ["a pipe", "a pipe"]
