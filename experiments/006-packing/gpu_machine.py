"""The GPU that is measured, or what stands in for it, and what NVML shows of it meanwhile."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from automl.config import DevicesConfig
from automl.devices.device_reader import open_device_reader
from automl.devices.device_reading import DeviceReader, DeviceReadError, DeviceSnapshot
from automl.trial import DeviceShare, Placement
from tests.nvml_stub.stub import STATE_VARIABLE, NvmlStub, compile_stub
from tests.places import ON_HOST

GIB, MIB = 1024**3, 2**20
STUB_GPU = "GPU-cccc3333-0000-0000-0000-000000000003"
_KINDS = {"cuda": "auto", "cpu": "cpu", "stub": "nvml"}
_SAMPLE_SECONDS = 0.05


def parser(doc: str | None, *stand_ins: str) -> argparse.ArgumentParser:
    """With `--device` and `--budget-seconds`."""
    found = argparse.ArgumentParser(description=doc)
    found.add_argument(
        "--device",
        choices=["cuda", *stand_ins],
        default="cuda",
        help="all but cuda are dry runs, whose figures mean nothing",
    )
    found.add_argument(
        "--budget-seconds", type=float, default=480, help="after which nothing new is begun"
    )
    return found


@dataclass(frozen=True)
class Bench:
    """One device."""

    kind: str
    reader: DeviceReader
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """One thread reads at a time."""

    @property
    def words(self) -> tuple[str, ...]:
        """The setting that makes a sweep use it."""
        if self.kind == "cpu":
            return ("devices.only=cpu",)
        uuid = self.read().address.uuid
        return (f"devices.only=[{_KINDS[self.kind]},{uuid}]",)

    @property
    def placement(self) -> Placement:
        """A place there. Nothing is promised: no admission is asked."""
        if self.kind == "cpu":
            return ON_HOST
        device = self.read()
        return Placement((DeviceShare(device.address, device.name, reservation_bytes=0),))

    def read(self) -> DeviceSnapshot:
        with self._lock:
            return self.reader.read()[0]


@contextlib.contextmanager
def opened(kind: str) -> Iterator[Bench]:
    """The first GPU, or what stands in for it. Exits with a sentence where there is none."""
    if kind == "stub":
        _go_on_on_the_stub()
    try:
        with contextlib.closing(open_device_reader(DevicesConfig(_KINDS[kind]))) as reader:
            if kind == "cuda" and reader.addresses[0].on_host:
                sys.exit(
                    "There is no GPU that both NVML and torch can use: run this on a machine with "
                    "one, or see it run without by the other choices of --device."
                )
            write(f"On: {reader.read()[0].name}" + ("" if kind == "cuda" else ", as a dry run"))
            yield Bench(kind, reader)
    finally:
        if kind == "stub":
            shutil.rmtree(stub_folder())


def _go_on_on_the_stub() -> None:
    """This program anew, on the tests' stub of a driver with one GPU of 80 GiB."""
    if STATE_VARIABLE in os.environ:
        return
    folder = Path(tempfile.mkdtemp(prefix="nvml-stub-"))
    stub = NvmlStub(compile_stub(folder), folder / "state")
    stub.add_gpu(STUB_GPU, "Stub H100", total_bytes=80 * GIB)
    os.execve(sys.executable, sys.orig_argv, stub.environment())


def stub_folder() -> Path:
    """Where the stub lies on which this program runs."""
    return Path(os.environ[STATE_VARIABLE]).parent


@dataclass(frozen=True)
class Sample:
    """What NVML showed at one time."""

    time: float
    """Unix time."""
    free_bytes: int
    processes: Mapping[int, int | None]
    """Bytes by pid, where the driver shows them."""


@contextlib.contextmanager
def watched(bench: Bench) -> Iterator[list[Sample]]:
    """Samples, 20 per second, in a thread until the end."""
    samples: list[Sample] = []
    ended = threading.Event()

    def run_on() -> None:
        while not ended.wait(_SAMPLE_SECONDS):
            with contextlib.suppress(DeviceReadError):
                samples.append(sample(bench.read()))

    thread = threading.Thread(target=run_on, name="nvml-watch", daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


def sample(device: DeviceSnapshot) -> Sample:
    held = {p.pid: p.used_bytes for p in device.processes}
    return Sample(time.time(), device.free_bytes, held)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print one; None is a figure that there is not."""
    lines = [head, ["---"] * len(head), *rows]
    for line in lines:
        write(f"| {' | '.join('–' if cell is None else str(cell) for cell in line)} |")


def write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
