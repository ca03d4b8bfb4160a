"""What tests of all parts use."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

from tests.lossy_disk import lossy_disk
from tests.mlflow_store import empty_database, programs_are_warm

__all__ = ["empty_database", "lossy_disk", "programs_are_warm"]

# `make check` says the same of the same tree each time; `make soak` looks further.
settings.register_profile("check", derandomize=True, deadline=None, max_examples=40)
settings.register_profile("soak", deadline=None, print_blob=True, max_examples=200)
settings.load_profile("check")

_FIRST = (
    *(
        "tests/end_to_end",
        "tests/api",
        "tests/execution",
        "tests/tracking",
        "tests/models",
        "tests/objectives",
    ),
    *("tests/running/gain", "tests/test_", "tests/cli", "tests/commands", "tests/experiments"),
)
_TOGETHER = "tests/execution/isolation"
"""These share a fork server that no others can use: in one process it is started once."""

# What is imported to collect the tests (torch, MLflow, the tests) is never garbage: half a million
# objects, which are not to be looked through while they are made, nor in each full collection.
gc.disable()


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
