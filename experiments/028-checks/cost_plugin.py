"""A pytest plugin that writes down what each test and each shared fixture costs.

Each process of pytest-xdist, with all that it starts, is a control group of its own, whose CPU time
the kernel counts: fork servers and programs that outlive a test are in it, too. Needs root and
cgroup v1's `cpuacct` (`/sys/fs/cgroup/cpuacct`).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import pytest

FOLDER = "TEST_COSTS"
"""The variable that names the folder that gets one file of JSON lines per process."""
_ACCOUNTS = Path("/sys/fs/cgroup/cpuacct")


class CostLog:
    """Appends a line with wall and CPU seconds for each phase of a test and each shared fixture."""

    def __init__(self, group: Path, out: TextIO) -> None:
        self._usage = group / "cpuacct.usage"
        self._out = out

    @contextmanager
    def measured(self, name: str, kind: str) -> Iterator[None]:
        """Write what the block takes; the CPU time is that of the whole control group."""
        wall, cpu = time.monotonic(), self._cpu_seconds()
        yield
        line = {
            "name": name,
            "kind": kind,
            "wall": time.monotonic() - wall,
            "cpu": self._cpu_seconds() - cpu,
        }
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()

    def _cpu_seconds(self) -> float:
        return int(self._usage.read_text()) / 1e9

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Any:
        with self.measured(item.nodeid, "setup"):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Any:
        with self.measured(item.nodeid, "call"):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Any:
        with self.measured(item.nodeid, "teardown"):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Any:
        if fixturedef.scope == "function":
            return (yield)
        with self.measured(f"{fixturedef.baseid}::{fixturedef.argname}", "fixture"):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Any:
        with self.measured("collection", "collection"):
            return (yield)


def pytest_configure(config: pytest.Config) -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    group = _ACCOUNTS / f"tests-{os.environ[FOLDER].replace('/', '-')}-{worker}"
    group.mkdir(exist_ok=True)
    (group / "cgroup.procs").write_text(str(os.getpid()))
    out = (Path(os.environ[FOLDER]) / f"{worker}.jsonl").open("a")
    config.pluginmanager.register(CostLog(group, out))
