"""Folders with an MLflow store, and the program in them: as a process, or in this one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from automl.cli import main
from automl.tracking.environment import set_defaults
from tests.end_to_end.program import Done, Program
from tests.nvml_stub.fixtures import nvml_library, nvml_stub

__all__ = ["nvml_library", "nvml_stub"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """MLflow 3.17 uses an option that SQLAlchemy 2.1 warns of: theirs to mend."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy"))


@pytest.fixture(scope="module", autouse=True)
def mlflow_environment() -> Iterator[None]:
    """MLflow's variables, as every process of ours has them before it imports mlflow."""
    before = dict(os.environ)
    set_defaults(os.environ)
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's database as it is first made (2 s, so once for all tests)."""
    from automl.tracking.store import make_database

    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    make_database(path)
    return path


@pytest.fixture
def folder(tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory that has been used before: MLflow's database is there."""
    shutil.copyfile(empty_store, tmp_path / "mlflow.db")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def program(folder: Path) -> Iterator[Program]:
    program = Program(folder)
    yield program
    program.end_all()


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Iterator[Program]:
    """A program whose sweeps serve all tests of a module."""
    folder = tmp_path_factory.mktemp("story")
    shutil.copyfile(empty_store, folder / "mlflow.db")
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
