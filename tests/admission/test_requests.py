"""The one door of requests: made anew at each decision, with where they come from."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automl.admission.footprint import MemoryStructure
from automl.admission.measured_memory import MeasuredTrial
from automl.admission.requests import SEEN_PEAK_MARGIN, SURVEY_BASE_BYTES, RequestMaker
from automl.trial import (
    UNKNOWN_REQUEST,
    DeviceKind,
    MemoryPeakMeasured,
    Params,
    RequestSource,
    ResourceRequest,
)

CPU, GPU = DeviceKind.CPU, DeviceKind.GPU
ON_GPU = frozenset({GPU})
PARAMS: Params = {"width": 100}
OTHERS: Params = {"width": 200}
GIB = 2**30


def by_width(params: Params) -> ResourceRequest:
    return ResourceRequest(int(str(params["width"])), RequestSource.ESTIMATED, kinds=ON_GPU)


def in_gib(params: Params) -> ResourceRequest:
    return ResourceRequest(GIB * int(str(params["width"])), RequestSource.ESTIMATED)


def unknown(params: Params) -> ResourceRequest:
    return UNKNOWN_REQUEST


def peak(trial: int, peak_bytes: int, n_lanes: int = 1) -> MemoryPeakMeasured:
    return MemoryPeakMeasured(trial, 1.0, peak_bytes, n_lanes)


def test_what_the_user_declared_goes_before_all_else() -> None:
    assert RequestMaker(by_width, None).request_for(PARAMS) == by_width(PARAMS)
    requests = RequestMaker(by_width, 7)
    requests.learn(PARAMS, peak(0, 99), GPU)
    declared = requests.request_for(PARAMS)
    assert (declared.memory_bytes, declared.source) == (7, RequestSource.DECLARED)
    assert declared.kinds == ON_GPU, "where it can run is still the estimate's to say"


def test_nobody_knows() -> None:
    assert RequestMaker(unknown, None).request_for(PARAMS) == UNKNOWN_REQUEST


def test_a_request_is_made_anew_each_time() -> None:
    known = {"bytes": 5}
    requests = RequestMaker(
        lambda params: ResourceRequest(known["bytes"], RequestSource.ESTIMATED), None
    )
    assert requests.request_for(PARAMS).memory_bytes == 5
    known["bytes"] = 9
    assert requests.request_for(PARAMS).memory_bytes == 9


# --- what was measured ---


def test_the_same_params_ask_for_a_little_more_than_the_most_they_held() -> None:
    """Even where nothing else is known of them."""
    requests = RequestMaker(unknown, None)
    for trial, peak_bytes in enumerate((600, 1000, 800)):
        requests.learn(PARAMS, peak(trial, peak_bytes), GPU)
    request = requests.request_for({"width": 100}, where={GPU})
    assert (request.memory_bytes, request.source) == (1050, RequestSource.SEEN)
    assert requests.request_for(OTHERS) == UNKNOWN_REQUEST


def test_other_params_ask_for_what_trials_like_them_hold() -> None:
    """The arithmetic says twice too much."""
    requests = RequestMaker(in_gib, None)
    for trial, width in enumerate((2, 4, 6)):
        requests.learn({"width": width}, peak(trial, width * GIB // 2), GPU)
    request = requests.request_for({"width": 8}, where={GPU})
    assert request.source is RequestSource.LEARNED
    assert request.memory_bytes is not None
    assert 4 * GIB < request.memory_bytes < 5.6 * GIB
    assert requests.request_for({"width": 8}, where={CPU}) == in_gib({"width": 8}), (
        "measured on GPUs only"
    )


def test_a_trial_that_may_run_on_both_asks_for_what_it_wants_where_it_wants_more() -> None:
    requests = RequestMaker(in_gib, None)
    requests.learn({"width": 4}, peak(0, 3 * GIB), GPU)
    assert requests.request_for({"width": 4}).memory_bytes == 4 * GIB
    requests.learn({"width": 4}, peak(0, 5 * GIB), CPU)
    assert requests.request_for({"width": 4}).memory_bytes == math.ceil(SEEN_PEAK_MARGIN * 5 * GIB)
    assert requests.request_for({"width": 4}, where={GPU}).memory_bytes == math.ceil(
        SEEN_PEAK_MARGIN * 3 * GIB
    )
    nothing_there = RequestMaker(by_width, None).request_for(PARAMS, where={CPU})
    assert nothing_there == by_width(PARAMS), "refused with its own words"


def test_of_a_trial_the_largest_peak_counts_and_that_once() -> None:
    often, once = RequestMaker(in_gib, None), RequestMaker(in_gib, None)
    for peak_bytes in (GIB, 3 * GIB, 2 * GIB):
        often.learn({"width": 4}, peak(0, peak_bytes), GPU)
    once.learn({"width": 4}, peak(0, 3 * GIB), GPU)
    assert often.measurements.all() == once.measurements.all()
    for width in (4, 9):
        assert often.request_for({"width": width}, where={GPU}).memory_bytes == pytest.approx(
            once.request_for({"width": width}, where={GPU}).memory_bytes, rel=1e-6
        )


def test_what_torch_did_not_count_was_not_measured() -> None:
    requests = RequestMaker(in_gib, None)
    requests.learn(PARAMS, peak(0, 0), GPU)
    assert requests.request_for(PARAMS) == in_gib(PARAMS)


def test_a_trial_that_failed_tells_nothing() -> None:
    """It may have ended before it held what it wants."""
    requests = RequestMaker(in_gib, None)
    requests.learn(PARAMS, peak(0, GIB // 100), GPU)
    requests.learn(PARAMS, peak(0, GIB, n_lanes=4), GPU)
    requests.forget(0)
    requests.forget(1)
    for params in (PARAMS, OTHERS):
        assert requests.request_for(params) == in_gib(params)
    assert requests.measurements.all() == []


trials = st.lists(st.tuples(st.integers(1, 8), st.integers(1, 64 * GIB)), min_size=1, max_size=12)


@given(trials=trials, known=st.booleans())
def test_no_request_is_below_what_the_same_params_held(
    trials: list[tuple[int, int]], known: bool
) -> None:
    requests = RequestMaker(in_gib if known else unknown, None)
    for number, (width, peak_bytes) in enumerate(trials):
        requests.learn({"width": width}, peak(number, peak_bytes), GPU)
    for width, peak_bytes in trials:
        assert (requests.request_for({"width": width}, where={GPU}).memory_bytes or 0) >= peak_bytes


@given(trials=trials, asked=st.integers(1, 64), random=st.randoms())
def test_a_sweep_that_goes_on_asks_as_the_one_before_did(
    trials: list[tuple[int, int]], asked: int, random: object
) -> None:
    """From what the record has: params, peaks, lanes and kinds of device, in any order."""
    before, after = RequestMaker(in_gib, None), RequestMaker(in_gib, None)
    numbered = list(enumerate(trials))
    for number, (width, peak_bytes) in numbered:
        before.learn({"width": width}, peak(number, peak_bytes // 2), GPU)
        before.learn({"width": width}, peak(number, peak_bytes), GPU)
    random.shuffle(numbered)  # type: ignore[attr-defined]
    for number, (width, peak_bytes) in numbered:
        after.learn({"width": width}, peak(number, peak_bytes), GPU)
    again = after.request_for({"width": asked}, where={GPU})
    first = before.request_for({"width": asked}, where={GPU})
    assert again.memory_bytes == pytest.approx(first.memory_bytes, rel=1e-3, abs=2**20)
    assert again.source is first.source


# --- what a survey saw ---


def test_a_survey_counts_with_a_margin_until_a_trial_was_measured() -> None:
    requests = RequestMaker(unknown, None)
    requests.survey(PARAMS, MemoryStructure((1 * GIB, 3 * GIB)))
    request = requests.request_for(PARAMS, where={GPU})
    assert request.source is RequestSource.SURVEYED
    assert request.memory_bytes == 6 * GIB + SURVEY_BASE_BYTES
    for trial in range(3):
        requests.survey({"width": trial}, MemoryStructure((GIB, trial * GIB)))
        requests.learn({"width": trial}, peak(trial, (1 + trial) * GIB), GPU)
    learned = requests.request_for(PARAMS, where={GPU})
    assert learned.source is RequestSource.LEARNED
    assert learned.memory_bytes is not None
    assert 4 * GIB < learned.memory_bytes < 5.6 * GIB


def test_a_survey_goes_before_arithmetic_and_tells_nothing_of_the_host() -> None:
    requests = RequestMaker(in_gib, None)
    requests.survey({"width": 8}, MemoryStructure((GIB, GIB)))
    surveyed = requests.request_for({"width": 8}, where={GPU})
    assert surveyed.memory_bytes == 3 * GIB + SURVEY_BASE_BYTES
    assert requests.request_for({"width": 8}, where={CPU}) == in_gib({"width": 8})


H200_PEAKS = ((27_262_976, 94_371_840), (67_108_864, 134_217_728), (134_217_728, 224_395_264),
              (155_189_248, 274_726_912), (316_669_952, 287_309_824), (635_437_056, 639_631_360),
              (870_318_080, 1_027_604_480))  # fmt: skip
"""Bytes surveyed and held of seven networks (experiments/006-packing/gpu_predicted.py)."""


@pytest.mark.parametrize(("surveyed_bytes", "held_bytes"), H200_PEAKS)
def test_a_surveyed_request_holds_what_networks_took_of_a_gpu(
    surveyed_bytes: int, held_bytes: int
) -> None:
    requests = RequestMaker(unknown, None)
    requests.survey(PARAMS, MemoryStructure((surveyed_bytes,)))
    asked_bytes = requests.request_for(PARAMS, where={GPU}).memory_bytes
    assert asked_bytes is not None
    assert asked_bytes >= held_bytes


# --- out of memory ---


@pytest.mark.parametrize(
    ("estimate", "n_ran_out", "memory_bytes", "alone"),
    [(by_width, 1, 150, False), (by_width, 2, None, True), (unknown, 1, None, True)],
)
def test_what_ran_out_of_memory_asks_for_more_then_for_all(
    estimate: object, n_ran_out: int, memory_bytes: int | None, alone: bool
) -> None:
    request = RequestMaker(estimate, None).request_for(PARAMS, n_ran_out)  # type: ignore[arg-type]
    assert (request.memory_bytes, request.alone) == (memory_bytes, alone)
    assert request.source is RequestSource.RAN_OUT


def test_what_was_too_little_is_never_asked_for_again_however_little_others_held() -> None:
    requests = RequestMaker(in_gib, None)
    requests.ran_out({"width": 8}, 8 * GIB, GPU)
    requests.ran_out({"width": 8}, 3 * GIB, GPU)
    for trial in range(1, 4):
        requests.learn({"width": trial}, peak(trial, trial * GIB // 4), GPU)
    assert requests.request_for({"width": 8}, 1, {GPU}).memory_bytes == 12 * GIB
    assert requests.request_for({"width": 8}, where={GPU}).memory_bytes == 8 * GIB, "another's turn"
    assert (requests.request_for({"width": 7}, where={GPU}).memory_bytes or 0) < 7 * GIB


# --- packs ---


def test_a_pack_asks_for_its_lanes_times_its_largest_member() -> None:
    pack = RequestMaker(by_width, None).request_for_pack(
        [{"width": 3}, {"width": 5}, {"width": 4}], GPU
    )
    assert (pack.memory_bytes, pack.kinds) == (15, ON_GPU)
    assert pack.source is RequestSource.ESTIMATED
    declared = RequestMaker(by_width, 7).request_for_pack([PARAMS, OTHERS], GPU)
    assert (declared.memory_bytes, declared.source) == (14, RequestSource.DECLARED)


def test_a_pack_with_a_member_of_unknown_size_is_of_unknown_size_on_a_gpu() -> None:
    """On the host such a member counts by its core, and the others by their memory."""

    def some(params: Params) -> ResourceRequest:
        return by_width(params) if "width" in params else UNKNOWN_REQUEST

    requests = RequestMaker(some, None)
    assert requests.request_for_pack([{"width": 3}, {}], GPU).memory_bytes is None
    assert requests.request_for_pack([{"width": 3}, {}], CPU).memory_bytes == 6
    assert requests.request_for_pack([{}, {}], CPU).memory_bytes is None


def test_packs_and_trials_alone_tell_nothing_of_each_other() -> None:
    requests = RequestMaker(in_gib, None)
    requests.learn({"width": 1}, peak(0, GIB // 2), GPU)
    assert requests.request_for_pack([{"width": 1}] * 4, GPU).memory_bytes == 4 * GIB
    requests.learn({"width": 2}, peak(1, 9 * GIB, n_lanes=4), GPU)
    assert requests.request_for({"width": 1}, where={GPU}).source is RequestSource.SEEN
    assert (requests.request_for({"width": 2}, where={GPU}).memory_bytes or 0) < 2 * GIB


def test_a_pack_asks_for_a_base_and_its_lanes_times_a_member_once_packs_were_measured() -> None:
    """Each lane holds a quarter of what arithmetic says, and the whole 2 GiB besides."""
    requests = RequestMaker(in_gib, None)
    for trial, (width, n_lanes) in enumerate([(1, 2), (2, 4), (1, 16), (4, 8), (2, 32), (1, 64)]):
        held = 2 * GIB + n_lanes * width * GIB // 4
        requests.learn({"width": width}, peak(trial, held, n_lanes), GPU)
    for width, n_lanes in [(1, 8), (3, 16), (4, 32)]:
        pack = requests.request_for_pack([{"width": width}, {"width": 1}] * (n_lanes // 2), GPU)
        held = 2 * GIB + n_lanes * width * GIB // 4
        assert pack.source is RequestSource.LEARNED
        assert pack.memory_bytes is not None
        assert 1 <= pack.memory_bytes / held < 1.6


def test_peaks_of_a_trial_in_a_pack_and_alone_stand_side_by_side() -> None:
    requests = RequestMaker(by_width, None)
    for measured in (peak(7, 50), peak(7, 60), peak(7, 300, n_lanes=4), peak(7, 400, n_lanes=4)):
        requests.learn(PARAMS, measured, GPU)
    structure = MemoryStructure((100,))
    assert requests.measurements.all() == [
        MeasuredTrial(PARAMS, GPU, 60, 1, structure),
        MeasuredTrial(PARAMS, GPU, 400, 4, structure),
    ]
    assert requests.request_for(PARAMS).memory_bytes == 63


# --- what most trials held ---


def test_of_whom_nothing_is_known_joins_others_by_what_most_held() -> None:
    """Five tell it, of whom the largest counts; of twenty the eighteenth."""
    requests = RequestMaker(unknown, None)
    for n in range(4):
        requests.learn({"width": n}, peak(n, 100 + n), GPU)
    assert requests.request_for(PARAMS) == UNKNOWN_REQUEST
    requests.learn({"width": 4}, peak(4, 500), GPU)
    asked = requests.request_for(PARAMS)
    assert (asked.memory_bytes, asked.source) == (None, RequestSource.PROBED)
    assert asked.joins_at_bytes == 600
    for n in range(5, 20):
        requests.learn({"width": n}, peak(n, 50), GPU)
    requests.learn({"width": 19}, peak(19, 700), GPU)
    assert requests.request_for(PARAMS).joins_at_bytes == math.ceil(1.2 * 103)
    assert requests.request_for({"width": 7}, where=ON_GPU).source is RequestSource.SEEN


def test_neither_packs_nor_the_host_tell_what_most_hold_of_a_gpu() -> None:
    requests = RequestMaker(unknown, None)
    for n in range(9):
        requests.learn({"width": n}, peak(n, 100, n_lanes=2), GPU)
        requests.learn({"width": n}, peak(n, 100), CPU)
    assert requests.request_for(PARAMS) == UNKNOWN_REQUEST


def test_what_is_forgotten_is_none_of_what_most_held() -> None:
    requests = RequestMaker(unknown, None)
    for n in range(6):
        requests.learn({"width": n}, peak(n, 100 if n else 900), GPU)
    requests.forget(0)
    assert requests.request_for(PARAMS).joins_at_bytes == 120


def test_who_ran_out_beside_others_gets_a_device_to_itself() -> None:
    requests = RequestMaker(unknown, None)
    for n in range(6):
        requests.learn({"width": n}, peak(n, 100), GPU)
    again = requests.request_for(PARAMS, n_ran_out=1)
    assert (again.alone, again.joins_at_bytes, again.source) == (True, None, RequestSource.RAN_OUT)


# --- several devices for each ---


def test_several_devices_are_asked_for_where_there_are_gpus_and_nowhere_else_then() -> None:
    """`admission.devices_per_trial=2`: the host is one, whatever it says."""
    requests = RequestMaker(in_gib, None, 2)
    for where in ({GPU}, {CPU, GPU}):
        request = requests.request_for(PARAMS, 0, where)
        assert (request.n_devices, request.kinds) == (2, ON_GPU)
        assert requests.least_request(where).n_devices == 2
    assert (
        requests.request_for(PARAMS, 0, {CPU}).n_devices
        == requests.least_request({CPU}).n_devices
        == 1
    )


def test_one_that_ran_out_asks_for_as_many_devices_again() -> None:
    requests = RequestMaker(in_gib, None, 2)
    assert [requests.request_for(PARAMS, n, {GPU}).n_devices for n in (1, 2)] == [2, 2]


def test_processes_that_a_trial_starts_count_in_main_memory_beside_what_it_held() -> None:
    alone, helped = (RequestMaker(unknown, None, helpers_bytes=size) for size in (0, 100))
    for requests in (alone, helped):
        requests.learn(PARAMS, peak(1, 1000), CPU)
        requests.learn(PARAMS, peak(2, 1000), GPU)
    held, asked = (r.request_for(PARAMS, where={CPU}).memory_bytes for r in (alone, helped))
    assert held is not None
    assert asked == held + 100
    assert helped.request_for(PARAMS, where={GPU}) == alone.request_for(PARAMS, where={GPU})
    assert (
        RequestMaker(unknown, 7, helpers_bytes=100).request_for(PARAMS, where={CPU}).memory_bytes
        == 7
    )
