"""What tests of all parts use."""

from __future__ import annotations

import gc

import pytest
from hypothesis import settings

from tests.lossy_disk import lossy_disk
from tests.mlflow_store import empty_database, programs_are_warm

__all__ = ["empty_database", "lossy_disk", "programs_are_warm"]

# `make check` says the same of the same tree each time; `make soak` looks further.
settings.register_profile("check", derandomize=True, deadline=None, max_examples=40)
settings.register_profile("soak", deadline=None, print_blob=True, max_examples=200)
settings.load_profile("check")

_START_PROGRAMS = ("tests/end_to_end", "tests/api", "tests/tracking", "tests/training")

# What is imported to collect the tests (torch, MLflow, the tests) is never garbage: half a million
# objects, which are not to be looked through while they are made, nor in each full collection.
gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts programs goes first: were it last, one process would run it while others idle."""
    items.sort(key=lambda item: not item.nodeid.startswith(_START_PROGRAMS))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
