"""A digest of code changes with the code, and not with its comments."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automl.objectives.code_digest import digest_of_file, digests_by_setting
from automl.objectives.program.program_flags import digest_of_program

SOURCE = '''
import math

def helper(x):
    """Say how far it is."""
    return abs(x - 3)

def train(x, steps=2):
    text = "# no comment"
    for step in range(steps):
        x = helper(x) + step
    return x + len(text)

class Network:
    def __call__(self, x):
        return helper(x)

decide = lambda x: x + 1
ready = Network()
'''
TARGET, FILE = "objective.target", "the file of objective.target"
BOTH = {TARGET, FILE}
LINES = SOURCE.splitlines()
COMMENTS = st.lists(
    st.tuples(
        st.integers(0, len(LINES) - 1), st.text(st.characters(exclude_categories=["C", "Z"]))
    ),
    min_size=1,
    max_size=5,
)


def commented(comments: list[tuple[int, str]]) -> str:
    """The source with a comment at the end of some lines, and one of its own below."""
    lines = list(LINES)
    for place, text in comments:
        lines[place] += f"  #{text}\n  # {text}\n"
    return "\n".join(lines) + "\n"


def loaded(file: Path, source: str) -> Any:
    file.write_text(source, "utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # where the source of a class is looked up
    spec.loader.exec_module(module)
    return module


def digests(folder: Path, source: str, name: str) -> Mapping[str, str]:
    # `inspect` keeps what it has read of a path.
    file = folder / f"code_of_a_test_{len(list(folder.iterdir()))}.py"
    try:
        return digests_by_setting(TARGET, getattr(loaded(file, source), name))
    finally:
        del sys.modules[file.stem]


@pytest.mark.parametrize("name", ["train", "Network", "decide", "ready"])
@given(comments=COMMENTS)
def test_comments_alone_are_no_change(
    tmp_path_factory: pytest.TempPathFactory, name: str, comments: list[tuple[int, str]]
) -> None:
    folder = tmp_path_factory.mktemp("code")
    assert digests(folder, commented(comments), name) == digests(folder, SOURCE, name)


@pytest.mark.parametrize(
    ("name", "before", "after", "changed"),
    [
        ("train", "+ step", "- step", BOTH),
        ("train", "steps=2", "steps=3", BOTH),
        ("train", "# no comment", "# other", BOTH),
        ("train", "x - 3", "x - 4", {FILE}),
        ("Network", "helper(x)\n\n", "-helper(x)\n\n", BOTH),
        ("ready", "helper(x)\n\n", "-helper(x)\n\n", BOTH),
        ("decide", "x + 1", "x + 2", {FILE}),
    ],
)
def test_an_edit_of_the_function_or_of_its_file_is_told(
    tmp_path: Path, name: str, before: str, after: str, changed: set[str]
) -> None:
    first = digests(tmp_path, SOURCE, name)
    second = digests(tmp_path, SOURCE.replace(before, after), name)
    assert {key for key in second if second[key] != first[key]} == changed


def test_a_builtin_has_no_source() -> None:
    assert digests_by_setting("objective.target", len) == {}


@pytest.mark.parametrize(
    "command",
    [
        "python train.py --epochs 5",
        "python -m train --epochs 5",
        "torchrun --nproc_per_node=2 train.py {params}",
        "bash -c 'python train.py | tee log'",
        "bash run.sh",
        "./run.sh --lr {lr}",
    ],
)
def test_the_file_of_a_program_is_found_in_its_command(tmp_path: Path, command: str) -> None:
    file = tmp_path / ("run.sh" if "run.sh" in command else "train.py")
    seen: list[dict[str, str]] = []
    for line in ("a = 1", "a = 1  # note" if file.suffix == ".py" else "a = 1", "a = 2"):
        file.write_text(f"#!/bin/sh\n# {len(seen)}\n\n{line}\n")
        seen.append(digest_of_program(command, tmp_path))
    assert seen[0] == seen[1] != seen[2]
    assert list(seen[0]) == ["the file of objective.command"]


def test_an_installed_program_has_no_file_of_the_project(tmp_path: Path) -> None:
    assert digest_of_program("python -c 'print(1)'", tmp_path) == {}


@pytest.mark.parametrize(
    "content", [b"", b"\0\1#", b"\xff\xfe# a", b"def x(:\n", b"#" * 11_000_000]
)
def test_any_file_has_a_digest(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "program"
    file.write_bytes(content)
    before = digest_of_file(file)
    file.write_bytes(content + b"1")

    assert digest_of_file(file) != before
