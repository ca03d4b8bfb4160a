"""No call begins once a library is shut down, and those under way are waited for."""

from __future__ import annotations

import threading

import pytest

from automl.execution.cluster.ray_resources import (
    LibraryCallCount,
    LibraryGivenBackError,
    RayAutoscaler,
    RayClaim,
)
from automl.trial import DeviceKind


def test_calls_under_way_are_waited_for_and_no_other_begins() -> None:
    in_use = LibraryCallCount()
    ending = threading.Thread(target=in_use.end, args=(60.0,))
    with in_use.call():
        ending.start()
        ending.join(0.2)
        assert ending.is_alive()
        with pytest.raises(LibraryGivenBackError, match="given back"), in_use.call():
            pass
    ending.join(60)
    assert not ending.is_alive()


def test_a_call_that_broke_is_over() -> None:
    in_use = LibraryCallCount()
    with pytest.raises(ValueError, match="broke"), in_use.call():
        raise ValueError("broke")
    in_use.end(60.0)


def test_a_call_that_hangs_is_left_alone_after_a_time() -> None:
    in_use = LibraryCallCount()
    with in_use.call():
        in_use.end(0.01)


def test_neither_a_claim_nor_an_autoscaler_is_asked_of_a_cluster_that_was_given_back() -> None:
    """Their threads are left alone where the head does not answer."""
    in_use = LibraryCallCount()
    in_use.end(60.0)
    with pytest.raises(LibraryGivenBackError):
        RayAutoscaler(None, in_use).totals()
    with pytest.raises(LibraryGivenBackError):
        RayClaim(None, in_use, DeviceKind.CPU, "", 1, lambda node: None)
