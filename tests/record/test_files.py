"""The names of a study's files stand in one module."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import automl
from automl.record import study_files
from automl.record.study_files import StudyFiles
from automl.trial import CheckpointKind

PACKAGE = Path(automl.__file__).parent
OWNER = Path(study_files.__file__)
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if path != OWNER)

NAMES = [
    value for name, value in vars(study_files).items() if name.isupper() and type(value) is str
]
DOTTED = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in NAMES if "." in name))
"""Matches a name with a dot in any text; a bare word (`logs`) counts only as a whole text."""


def spelled(source: str) -> Iterator[str]:
    """The texts of a module, docstrings apart, that hold a file's name."""
    for text in texts(ast.parse(source)):
        if text in NAMES or DOTTED.search(text):
            yield text


def texts(tree: ast.AST) -> Iterator[str]:
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    for node in constants:
        if isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def test_no_other_module_spells_the_name_of_a_file() -> None:
    found = {path: set(spelled(path.read_text("utf-8"))) for path in SOURCES}
    for path, names in found.items():
        if path.parent.name == "config":
            names -= {"plots"}  # a word of study.finish
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        'path = study / "status.json"',
        'path = folder / "logs" / name',
        'studies = folder.glob("*/config.yaml")',
        'say(f"{n} events of events.log are lost")',
    ],
)
def test_a_name_that_is_spelled_is_seen(source: str) -> None:
    assert len(list(spelled(source))) == 1


@pytest.mark.parametrize(
    "source", ['"""Reads `status.json`."""', 'say("see the logs")', 'name = "stored_config.yaml: "']
)
def test_what_spells_no_name(source: str) -> None:
    assert list(spelled(source)) == []


def test_where_each_file_of_a_study_stands() -> None:
    study = StudyFiles(Path("studies/a"))
    assert {path.relative_to("studies/a").as_posix() for path in every_path(study)} == {
        "config.yaml",
        "journal.log",
        "events.log",
        "place.json",
        "status.json",
        "events.delivered",
        "delivery.log",
        "sweep.log",
        "lock",
        "logs/trial-00007.log",
        "checkpoints/trial-00007/last.pt",
        "checkpoints/trial-00007/best.pt",
    }


def every_path(study: StudyFiles) -> Iterator[Path]:
    yield from (study.config, study.journal, study.events, study.place, study.status)
    yield from (study.delivered, study.delivery_log, study.sweep_log, study.lock)
    yield study.log(7)
    yield from (study.checkpoint(7, kind) for kind in CheckpointKind)
