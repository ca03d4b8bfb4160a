"""Runs a command as a whole process in a fresh folder, and takes its time.

What a user waits for is the time from pressing Enter to the prompt: start-up, imports, the making
of the MLflow store and the writing of the last record are in it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

HERE = Path(__file__).resolve().parent
CONF = HERE / "conf"
PEERS = HERE.parents[1] / ".venv-peers" / "bin" / "python"

# No contender may lose time to telemetry that finds no network, nor find a user's own MLflow.
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONPATH": str(HERE),  # where automl finds objectives such as nothing:train
}
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_LEFTOVERS_SECONDS = 30.0  # Ray's daemons take a few seconds to end
_REMOVED = ("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "RAY_ADDRESS")


@dataclass(frozen=True)
class Timing:
    """One whole process."""

    began_seconds: float
    """Unix time at which it was started."""
    wall_seconds: float
    cpu_seconds: float
    """CPU time of the process and all its descendants."""
    others_cores: float
    """Cores that all else kept busy meanwhile: near 0 on a quiet machine."""


class ProcessFailedError(Exception):
    """Raised when a process that was to be timed ends with an error."""


def script(python: str | Path, name: str, *arguments: object) -> tuple[str, ...]:
    """The command for a script of this folder, or of another that `name` leads to."""
    return (str(python), str(HERE / name), *map(str, arguments))


def ours(config_name: str, *overrides: str) -> tuple[str, ...]:
    """The command for a sweep of automl, from a file of `conf/`."""
    options = ("--config-dir", str(CONF), "--config-name", config_name)
    return (sys.executable, "-m", "automl", *options, *overrides)


def run(
    command: Sequence[str],
    folder: Path,
    timeout_seconds: float | None = None,
    variables: Mapping[str, str] | None = None,
) -> Timing:
    """Run to the end in `folder`; output goes to `output.txt` there. `variables` of the environment
    go before those that all contenders have.

    Raises ProcessFailedError, also where it took longer than `timeout_seconds` and was killed.
    """
    _adopt_orphans()
    environment = {name: value for name, value in os.environ.items() if name not in _REMOVED}
    output = folder / "output.txt"
    with output.open("ab") as stream:
        own, busy = _own_seconds(), _busy_seconds()
        began, start = time.time(), time.perf_counter()
        environment |= {**_ENVIRONMENT, **(variables or {})}
        code = _exit_code(command, folder, environment, stream, timeout_seconds)
        wall = time.perf_counter() - start
    _reap_orphans()
    if code is None:
        raise ProcessFailedError(f"killed after {wall:.0f} s")
    if code != 0:
        tail = output.read_text(errors="replace")[-2000:]
        raise ProcessFailedError(f"exit {code}: {' '.join(command)}\n{tail}")
    cpu, busy = _own_seconds() - own, _busy_seconds() - busy
    return Timing(began, wall, cpu, others_cores=max(0.0, busy - cpu) / wall)


def of_itself(
    command: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> tuple[float, float]:
    """CPU seconds of the process without its children, and seconds that it was there; output goes
    to `output.txt` in `folder`. Raises ProcessFailedError."""
    output, cpu, start = folder / "output.txt", 0.0, time.perf_counter()
    with output.open("wb") as stream:
        process = psutil.Popen(
            command, cwd=folder, stdout=stream, stderr=subprocess.STDOUT, env=dict(environment)
        )
        while process.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):  # it ends between two looks
                cpu = sum(process.cpu_times()[:2])
            time.sleep(0.02)
    if process.returncode != 0:
        raise ProcessFailedError(output.read_text(errors="replace")[-2000:])
    return cpu, time.perf_counter() - start


def _exit_code(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    stream: IO[bytes],
    timeout_seconds: float | None,
) -> int | None:
    """None: it was killed, because it took too long."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            timeout=timeout_seconds,
            check=False,
        ).returncode
    return None


def _adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends (a forkserver, Ray's daemons).

    Otherwise their CPU time is counted nowhere, and they could go on into the next one's time.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _reap_orphans() -> None:
    """Wait for them, and for those that they leave. Raises ProcessFailedError naming who stays."""
    while children := psutil.Process().children():
        _, alive = psutil.wait_procs(children, timeout=_LEFTOVERS_SECONDS)
        if alive:
            names = ", ".join(f"{process.pid} ({process.name()})" for process in alive)
            raise ProcessFailedError(f"these processes were left running: {names}")


def _own_seconds() -> float:
    """CPU seconds of this process's finished children, and theirs."""
    own = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime


def _busy_seconds() -> float:
    """CPU seconds that the machine did not idle, since its start (Linux)."""
    times = psutil.cpu_times()
    busy: float = times.user + times.nice + times.system + times.irq + times.softirq + times.steal
    return busy


@contextmanager
def fresh_folder(parent: Path | None) -> Iterator[Path]:
    """An empty folder, removed afterwards; `parent` chooses the disk (none: the system's)."""
    with tempfile.TemporaryDirectory(prefix="throughput-", dir=parent) as folder:
        yield Path(folder)


def parent_folder(text: str) -> Path:
    """For argparse: a folder that is there."""
    path = Path(text).resolve()
    if not path.is_dir():
        raise ValueError(f"{text}: there is no such folder.")
    return path


def write(text: str) -> None:
    """A line for the person who waits."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
