"""What a function is made of: the same in any process and layout, another where it differs."""

from __future__ import annotations

import functools
import subprocess
import sys
import sysconfig
import textwrap
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from automl.api.pickled_function import (
    calls_suggest,
    function_file,
    function_name,
    function_parts,
)

BASE = """
import functools
import math
import numpy as np
scale = 2.0
table = np.arange(4.0)
def helper(x):
    return x * scale
class Net:
    size = 3
    def forward(self, x): return x
    @property
    def twice(self): return 2 * self.size
@functools.cache
def cached(x): return x + 1
def train(lr, width=8, *, deep=False):
    # a comment
    return helper(lr) + table.sum() + Net().forward(lr) + cached(lr) + math.pi
"""


def made(folder: Path, source: str, name: str = "mine") -> dict[str, Any]:
    """The names of a module that stands in a file."""
    path = folder / f"{name}{len(list(folder.iterdir()))}.py"
    path.write_text(source)
    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    exec(compile(source, str(path), "exec"), names)
    return names


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("# a comment", "# another", []),
        ("return helper(lr) + table", "return helper(lr)+table", []),
        ("scale = 2.0\n", "scale = 2.0\n\nunused = 3\n", []),
        ("+ math.pi", "- math.pi", ["source"]),
        ("width=8", "width=9", ["default width", "source"]),
        ("scale = 2.0", "scale = 2", ["global helper"]),
        ("return x * scale", "return x + scale", ["global helper"]),
        ("size = 3", "size = 4", ["global Net"]),
        ("2 * self.size", "3 * self.size", ["global Net"]),
        ("def forward(self, x): return x", "def forward(self, x): return 2 * x", ["global Net"]),
        ("x + 1", "x + 2", ["global cached"]),
        ("np.arange(4.0)", "np.arange(4)", ["global table"]),
        ("np.arange(4.0)", "np.arange(4.0) + 1", ["global table"]),
    ],
)
def test_a_change_is_told_by_its_part(
    tmp_path: Path, old: str, new: str, changed: list[str]
) -> None:
    assert old in BASE
    before = function_parts(made(tmp_path, BASE)["train"])
    after = function_parts(made(tmp_path, BASE.replace(old, new))["train"])
    assert sorted(n for n in before | after if before.get(n) != after.get(n)) == changed
    assert set(before) == {
        *("source", "default width", "default deep", "global Net", "global cached"),
        *("global helper", "global math", "global table"),
    }


def test_another_process_comes_to_the_same(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        BASE + "inner = {3: {'b', 'a', 'c'}, 'x': (1, [None, True])}\n"
        "keep = lambda lr: (lr, inner, {'p', 'q', 'r'})\n"
        "from automl.api.pickled_function import function_parts\n"
        "print([function_parts(train), function_parts(keep), function_parts(Net().forward)])\n"
    )
    command = [sys.executable, str(tmp_path / "script.py")]
    first, second = (
        subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)
    )
    assert first == second != ""


def closure(held: object) -> Callable[..., object]:
    return lambda lr: (lr, held)


SHARED = (1, 2)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (0.1, 0.1, True),
        (1, 1.0, False),
        (1, True, False),
        ([(1, 2), (1, 2)], [SHARED, SHARED], True),
        ({"a": 1}, {"a": 2}, False),
        ({"a", "b"}, {"b", "a"}, True),
        (np.zeros(3), np.zeros(3), True),
        (np.zeros(3), np.zeros((3, 1)), False),
        (np.array(["a"], object), np.array(["b"], object), False),
        (torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True), True),
        (torch.ones(2), torch.zeros(2), False),
        (torch.nn.Linear(1, 1, bias=False), torch.nn.Linear(1, 2, bias=False), False),
        (len, max, False),
        (open, open, True),
    ],
)
def test_what_a_closure_holds_is_told_by_its_value(one: Any, other: Any, same: bool) -> None:
    before, after = function_parts(closure(one)), function_parts(closure(other))
    assert before["source"] == after["source"]
    assert (before["closure held"] == after["closure held"]) is same


def test_an_open_file_is_told_by_its_kind_and_stays_open() -> None:
    with open(__file__, "rb") as file:
        assert function_parts(closure(file))["closure held"].startswith("BufferedReader, ")
        assert file.readline()


def test_what_holds_itself_has_a_digest() -> None:
    loop: list[object] = [1]
    loop.append(loop)
    assert function_parts(closure(loop))["closure held"].startswith("list, ")


class Trainer:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def train(self, lr: float) -> float:
        return lr * self.scale

    def __call__(self, lr: float) -> float:
        return lr


@pytest.mark.parametrize(
    ("function", "name", "parts"),
    [
        (Trainer(2.0).train, "Trainer.train", {"source", "self.scale"}),
        (Trainer(2.0), "Trainer", {"source", "self.scale"}),
        (
            functools.partial(Trainer(2.0).train, lr=1),
            "Trainer.train",
            {"source", "self.scale", "argument lr"},
        ),
        (lambda lr: lr, "lambda", {"source"}),
        (len, "len", {"source"}),
    ],
)
def test_any_callable_has_a_name_and_parts(
    function: Callable[..., Any], name: str, parts: set[str]
) -> None:
    assert function_name(function) == name
    assert set(function_parts(function)) == parts
    assert function_file(function).endswith(__file__ if name != "len" else "")


def test_a_lambda_is_known_by_itself_and_not_by_its_line() -> None:
    def line(call: str) -> Any:
        names: dict[str, Any] = {}
        exec(textwrap.dedent(f"def given(f, n): return f\nkept = given({call})"), names)
        return function_parts(names["kept"])

    assert line("lambda lr: lr, n=1") == line("lambda lr: lr, n=2")
    assert line("lambda lr: lr, n=1") != line("lambda lr: 2 * lr, n=1")


@pytest.mark.parametrize(
    ("folder", "counts"),
    [
        (f"{sys.base_prefix}/src/lab", True),
        (sysconfig.get_path("stdlib"), False),
        (sysconfig.get_path("purelib"), False),
        ("/usr/lib/python3/dist-packages", False),
    ],
)
def test_whose_file_it_is_tells_what_a_change_in_it_is(
    folder: str, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library counts by its name; a user's own code below Python's prefix is no library."""
    module = types.ModuleType("lab_of_ann")
    module.__file__ = f"{folder}/lab_of_ann.py"
    monkeypatch.setitem(sys.modules, "lab_of_ann", module)

    def part(scale: int) -> str:
        exec(f"def helper(x): return {scale} * x", vars(module))
        names = {"helper": vars(module)["helper"]}
        exec("def train(lr): return helper(lr)", names)
        return function_parts(names["train"])["global helper"]

    assert (part(2) != part(3)) is counts


@pytest.mark.parametrize(
    ("source", "asks"),
    [
        ("train = lambda trial: trial.suggest_float('x', 0, 1)", True),
        ("def train(trial): return [trial.suggest_int('n', 1, 2) for _ in 'a'][0]", True),
        ("def inner(t): return t.suggest_uniform('x', 0, 1)\ndef train(t): return inner(t)", True),
        (
            "import functools\ndef f(t, k): t.suggest_int('n', 1, k)\n"
            "train = functools.partial(f, k=3)",
            True,
        ),
        (
            "class A:\n def __call__(self, t): return t.suggest_int('n', 1, 2)\ntrain = A()",
            True,
        ),
        ("def train(lr): return lr", False),
        ("def suggest_float(x): return x\ndef train(lr): return suggest_float(lr)", False),
        ("import optuna\ndef train(lr): return optuna, train", False),
        ("train = len", False),
    ],
)
def test_an_objective_for_optuna_is_known_by_what_it_calls(
    tmp_path: Path, source: str, asks: bool
) -> None:
    assert calls_suggest(made(tmp_path, source)["train"]) == asks
