"""Fixtures that run the real py3nvml on a stub of the driver. A conftest imports those it wants:

    from tests.nvml_stub.fixtures import nvml_library, nvml_stub, loaded_nvml_stub

For a whole program in a subprocess:

    def test_waits_for_room(nvml_stub: NvmlStub) -> None:
        nvml_stub.gpu(SMALL).fill()
        nvml_stub.gpu(LARGE).fill()
        sweep = subprocess.Popen([...], env=nvml_stub.environment())
        ...                                            # it waits, and says why
        nvml_stub.gpu(LARGE).empty()                   # its next reading shows room

Use `devices.only=nvml` there: under `auto` torch is asked too, and it cannot use the stub's GPUs.
Without a C compiler these tests are skipped, and say so.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import pytest
from py3nvml import py3nvml

from automl.devices.memory_promises import FOLDER_VARIABLE
from tests.nvml_stub.stub import GIB, STATE_VARIABLE, NvmlStub, compile_stub

SMALL = "GPU-bbbb2222-0000-0000-0000-000000000002"
LARGE = "GPU-aaaa1111-0000-0000-0000-000000000001"
CUDA_ORDER = (LARGE, SMALL)
"""CUDA counts the fastest GPU first; the stub lists them the other way round."""


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stub's shared library, compiled once."""
    return compile_or_skip(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def nvml_stub(nvml_library: Path, tmp_path: Path) -> NvmlStub:
    """Two idle GPUs: SMALL (8 GiB), then LARGE (24 GiB). Nothing runs on the stub yet."""
    stub = NvmlStub(nvml_library, tmp_path / "nvml.state")
    stub.add_gpu(SMALL, "Stub T4", total_bytes=8 * GIB)
    stub.add_gpu(LARGE, "Stub A10", total_bytes=24 * GIB)
    return stub


@pytest.fixture
def loaded_nvml_stub(nvml_stub: NvmlStub, monkeypatch: pytest.MonkeyPatch) -> Iterator[NvmlStub]:
    """`nvml_stub`, on which py3nvml runs in this process while the test lasts."""
    monkeypatch.setenv(STATE_VARIABLE, str(nvml_stub.path))
    monkeypatch.setenv(FOLDER_VARIABLE, str(nvml_stub.promises))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    load(nvml_stub.library, monkeypatch)
    yield nvml_stub
    nvml_stub.heal()
    _shut_down()


def load(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this the library that py3nvml has loaded, until the test ends."""
    monkeypatch.setattr(py3nvml, "nvmlLib", ctypes.CDLL(str(library)))
    monkeypatch.setattr(py3nvml, "_nvmlGetFunctionPointer_cache", {})


def compile_or_skip(folder: Path, *without: str) -> Path:
    """The library, lacking the functions named; without a compiler the test is skipped."""
    try:
        return compile_stub(folder, without)
    except FileNotFoundError as error:
        pytest.skip(f"the stub of NVML cannot be compiled: {error}; install gcc")


def _shut_down() -> None:
    """As often as the test left it open, so that the next test maps its own state."""
    while True:
        try:
            py3nvml.nvmlShutdown()
        except py3nvml.NVMLError:
            return
