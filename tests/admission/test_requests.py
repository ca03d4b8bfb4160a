"""The one door of requests: made anew at each decision, with where they come from."""

from __future__ import annotations

import pytest

from automl.admission.requests import Measured, Requests, together
from automl.trial import UNKNOWN, DeviceKind, MemoryPeak, Params, Request, RequestSource

ON_GPU = frozenset({DeviceKind.GPU})
PARAMS: Params = {"width": 100}


def by_width(params: Params) -> Request:
    return Request(int(str(params["width"])), RequestSource.ESTIMATED, kinds=ON_GPU)


def test_what_the_user_declared_goes_before_the_estimate() -> None:
    assert Requests(by_width, None).of(PARAMS) == by_width(PARAMS)
    declared = Requests(by_width, 7).of(PARAMS)
    assert (declared.memory_bytes, declared.source) == (7, RequestSource.DECLARED)
    assert declared.kinds == ON_GPU, "where it can run is still the estimate's to say"


def test_nobody_knows() -> None:
    assert Requests(lambda params: UNKNOWN, None).of(PARAMS).source is RequestSource.UNKNOWN


@pytest.mark.parametrize(
    ("estimate", "n_ran_out", "memory_bytes", "alone"),
    [(by_width, 1, 150, False), (by_width, 2, None, True), (lambda params: UNKNOWN, 1, None, True)],
)
def test_what_ran_out_of_memory_asks_for_more_then_for_all(
    estimate: object, n_ran_out: int, memory_bytes: int | None, alone: bool
) -> None:
    request = Requests(estimate, None).of(PARAMS, n_ran_out)  # type: ignore[arg-type]
    assert (request.memory_bytes, request.alone) == (memory_bytes, alone)
    assert request.source is RequestSource.RAN_OUT


def test_a_request_is_made_anew_each_time() -> None:
    known = {"bytes": 5}
    requests = Requests(lambda params: Request(known["bytes"], RequestSource.ESTIMATED), None)
    assert requests.of(PARAMS).memory_bytes == 5
    known["bytes"] = 9
    assert requests.of(PARAMS).memory_bytes == 9


def test_a_pack_asks_for_its_lanes_times_its_largest_member() -> None:
    pack = together([Request(3), Request(5), Request(4)], DeviceKind.GPU)
    assert (pack.memory_bytes, pack.kinds) == (15, ON_GPU)


def test_a_pack_with_a_member_of_unknown_size_is_of_unknown_size_on_a_gpu() -> None:
    """On the host such a member counts by its core, and the others by their memory."""
    assert together([Request(3), UNKNOWN], DeviceKind.GPU).memory_bytes is None
    assert together([Request(3), UNKNOWN], DeviceKind.CPU).memory_bytes == 6
    assert together([UNKNOWN, UNKNOWN], DeviceKind.CPU).memory_bytes is None


def test_peaks_reach_it_those_of_packs_apart() -> None:
    requests = Requests(by_width, None)
    requests.learn(PARAMS, MemoryPeak(7, 1.0, 50))
    requests.learn(PARAMS, MemoryPeak(7, 2.0, 60))
    requests.learn(PARAMS, MemoryPeak(7, 3.0, 300, n_lanes=4))
    assert list(requests.measured.values()) == [Measured(PARAMS, 60), Measured(PARAMS, 300, 4)]
