"""What tests of all parts use."""

from __future__ import annotations

import gc
import os
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from tests.lossy_disk import lossy_disk
from tests.mlflow_store import empty_database, programs_are_warm
from tests.network_guard import GUARD
from tests.network_guard.sitecustomize import LOG

__all__ = ["empty_database", "lossy_disk", "programs_are_warm"]

# `make check` says the same of the same tree each time; `make soak` looks further.
settings.register_profile("check", derandomize=True, deadline=None, max_examples=40)
settings.register_profile("soak", deadline=None, print_blob=True, max_examples=200)
settings.load_profile("check")

_FIRST = (
    "tests/end_to_end",
    "tests/api",
    "tests/execution",
    "tests/tracking",
    "tests/models",
    "tests/objectives",
    "tests/in_trial",
    "tests/running/trials/test_step_timing.py",
    "tests/running/trials/test_timed_ways.py",
    "tests/test_",
    "tests/cli",
    "tests/commands",
    "tests/experiments",
)
_TOGETHER = "tests/execution/isolation"
"""These share a fork server that no others can use: in one process it is started once."""

# One for all processes of a run; `tests/faults` reads it as it is imported.
os.environ.setdefault("FAULT_SEED", str(random.randrange(10_000)))

# What is imported to collect the tests (torch, MLflow, the tests) is never garbage: half a million
# objects, which are not to be looked through while they are made, nor in each full collection.
gc.disable()


def pytest_configure() -> None:
    """Let each process that the tests start connect to this machine alone."""
    if LOG not in os.environ:  # else this is one process of several
        os.environ[LOG] = tempfile.mkstemp(prefix="automl-tests-network-")[1]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if GUARD not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([GUARD, *filter(None, paths)])


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where something connected elsewhere, even if it took the refusal for an answer."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    log = Path(os.environ.pop(LOG))
    if refused := log.read_text():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        session.config.get_terminal_writer().write(f"\nconnected elsewhere:\n{refused}", red=True)
    log.unlink()


class ByFile(LoadFileScheduling):  # type: ignore[misc]  # xdist tells no types
    """The tests of a file run in one process; those that need a server of their own, too."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        return _TOGETHER if file.startswith(_TOGETHER) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts programs goes first: were it last, one process would run it while others idle."""
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    found = [n for n, begin in enumerate(_FIRST) if item.nodeid.startswith(begin)]
    return min(found, default=len(_FIRST))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
