"""Folders with an MLflow store, and the program in them: as a process, or in this one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from automl.cli import main
from tests.end_to_end.program import Done, Program
from tests.fork_server import workers_start_soon
from tests.mlflow_store import folder, ignore_mlflows_warning, mlflow_environment
from tests.nvml_stub.fixtures import loaded_nvml_stub, nvml_library, nvml_stub

__all__ = [
    "folder",
    "loaded_nvml_stub",
    "mlflow_environment",
    "nvml_library",
    "nvml_stub",
    "workers_start_soon",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ignore_mlflows_warning(items, Path(__file__).parent)


@pytest.fixture
def program(folder: Path) -> Iterator[Program]:
    program = Program(folder)
    yield program
    program.end_all()


@pytest.fixture(scope="module")
def module_program(
    tmp_path_factory: pytest.TempPathFactory, empty_database: Path
) -> Iterator[Program]:
    """A program whose sweeps serve all tests of a module."""
    folder = tmp_path_factory.mktemp("module")
    shutil.copyfile(empty_database, folder / "mlflow.db")
    program = Program(folder)
    yield program
    program.end_all()


class Call(Protocol):
    """Runs a command line in this process, which has torch and MLflow loaded already."""

    def __call__(self, *words: str) -> Done: ...


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Call:
    def call(*words: str) -> Done:
        capfd.readouterr()
        code = main(words)
        return Done(code, *capfd.readouterr())

    return call


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below, by its path and content; empty folders count too."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
    }
