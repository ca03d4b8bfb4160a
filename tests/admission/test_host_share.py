"""Trials on GPUs hold a share of the machine besides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from automl.admission.accounting.device_table import DeviceTable
from automl.admission.accounting.host_share import PROCESS_BOUND_BYTES, HostShare
from automl.admission.accounting.ledger import Ledger
from automl.admission.limits import AdmissionLimits
from automl.admission.placement_policy import place_trial
from automl.admission.refusals import GIB, AdmissionRefusal
from automl.devices.device_reading import DeviceReading, DeviceSnapshot, HostState
from automl.trial import LOCAL_HOST, LOCAL_NODE, Placement, ProcessId, ResourceRequest
from tests.places import device_id, placed, process_id

A, B = device_id("GPU-a"), device_id("GPU-b")
NOW = 1000.0
GPUS = tuple(DeviceSnapshot(device, "sim", 80 * GIB, 80 * GIB) for device in (A, B))
LIMITS = AdmissionLimits(None, 0, 5.0, max_on_host=2)


def worker(number: int) -> ProcessId:
    return process_id(100 + number)


def reading(free: int, busy: float | None = None, **held: int) -> DeviceReading:
    sizes = {(LOCAL_HOST, worker(int(n.removeprefix("w")))): size * GIB for n, size in held.items()}
    host = HostState(free * GIB, busy)
    return DeviceReading(
        NOW, GPUS, reserved_before=sizes, reserved_after=sizes, hosts={LOCAL_NODE: host}
    )


def ledger_with(n_running: int) -> Ledger:
    ledger = Ledger()
    for key in range(n_running):
        ledger.reserve(key, placed("GPU-a", GIB), worker(key))
        ledger.context_up(key, NOW - 9)
    return ledger


def decide(
    now: DeviceReading, ledger: Ledger, limits: AdmissionLimits = LIMITS, **more: Any
) -> Placement | AdmissionRefusal:
    return place_trial(
        ResourceRequest(GIB), now, ledger.snapshot(), limits, now_seconds=NOW, **more
    )


def refused(found: Placement | AdmissionRefusal) -> AdmissionRefusal:
    assert isinstance(found, AdmissionRefusal), found
    return found


def test_main_memory_counts_with_the_most_that_a_process_was_seen_to_take() -> None:
    ledger, now = ledger_with(2), reading(6, w0=4, w1=1)
    ledger.note(now, [])
    assert refused(decide(now, ledger)).reason == (
        "waiting: 4.0 GiB of main memory asked for its process, 3.0 GiB left on the host beside "
        "2 running"
    )
    assert isinstance(decide(reading(7, w0=4, w1=1), ledger), Placement)


def test_before_any_was_seen_a_bound_is_kept_free_for_each() -> None:
    ledger = Ledger()
    ledger.reserve(0, placed("GPU-a", GIB))
    assert PROCESS_BOUND_BYTES == GIB
    ledger.note(reading(1), [])
    assert "1.0 GiB of main memory" in refused(decide(reading(1), ledger)).reason
    assert isinstance(decide(reading(2), ledger), Placement)


def test_the_first_always_may_and_the_host_itself_asks_by_its_own_account() -> None:
    assert isinstance(decide(reading(0), Ledger()), Placement)
    host = DeviceSnapshot(LOCAL_HOST, "cpu", 80 * GIB, 80 * GIB)
    beside = replace(reading(0), devices=(*GPUS, host))
    found = decide(beside, ledger_with(1), limits=replace(LIMITS, max_on_host=3))
    assert isinstance(found, Placement)
    assert found.on_host


def test_idle_processes_that_hold_main_memory_are_in_the_way() -> None:
    found = decide(reading(0), ledger_with(1), idle={(B,): [worker(7)]})
    assert refused(found).in_the_way == {B}


def test_in_threads_of_this_process_nothing_is_asked_for_another() -> None:
    assert isinstance(decide(reading(0), ledger_with(1), process=worker(0)), Placement)


def test_cores_count_where_more_run_than_they_allow_and_all_are_busy() -> None:
    """Those that the reading did not know keep a core busy each."""
    known = {"w0": 1, "w1": 1}
    assert refused(decide(reading(64, 0.97, **known), ledger_with(2))).reason == (
        "waiting: all cores of the host are busy, with 2 running"
    )
    assert isinstance(decide(reading(64, 0.5, **known), ledger_with(2)), Placement)
    assert "cores" in refused(decide(reading(64, 0.5, w0=1), ledger_with(2))).reason
    assert isinstance(decide(reading(64, 0.97), ledger_with(1)), Placement)
    assert isinstance(decide(reading(64, None), ledger_with(2)), Placement)


def test_one_reading_does_not_start_more_than_the_cores_can_take() -> None:
    ledger, now, n_started = Ledger(), reading(64, 0.1), 0
    while isinstance(found := decide(now, ledger), Placement):
        ledger.reserve(n_started, found)
        n_started += 1
    assert n_started == 2
    assert "cores" in refused(found).reason


def test_cores_count_in_threads_of_this_process_too() -> None:
    ledger = ledger_with(2)
    busy = reading(0, 0.97, w0=1, w1=1)
    assert "cores" in refused(decide(busy, ledger, process=worker(0))).reason


def test_an_idle_process_that_is_used_again_takes_no_more_main_memory() -> None:
    """Where it would be ended and another begun, a host that is full would never keep one warm."""
    ledger, now = ledger_with(1), reading(0, w0=3, w7=3)
    ledger.note(now, [])
    assert isinstance(decide(now, ledger, idle={(B,): [worker(7)]}), Placement)
    small = reading(1, w0=3, w7=1)
    assert "3.0 GiB of main" in refused(decide(small, ledger, idle={(B,): [worker(7)]})).reason
    assert isinstance(decide(reading(2, w0=3, w7=1), ledger, idle={(B,): [worker(7)]}), Placement)


def test_what_is_kept_of_the_host_is_added_up_anew_where_anything_changed() -> None:
    ledger, accounts = ledger_with(2), DeviceTable()
    first, other = reading(9, w0=1, w1=1), reading(9, w0=4, w1=1)
    for now, peak in ((first, 4), (other, 4), (first, 4), (first, 8)):
        snapshot = replace(ledger.snapshot(), host_peak_bytes=peak * GIB)
        fresh = DeviceTable().host_share(LOCAL_NODE, now, snapshot)
        assert accounts.host_share(LOCAL_NODE, now, snapshot) == fresh
    assert fresh == HostShare(2, coming_bytes=14 * GIB)
    ledger.note(reading(9, w0=8), [])
    ledger.release(0, NOW)
    kept = accounts.host_share(LOCAL_NODE, first, ledger.snapshot())
    assert (
        kept
        == DeviceTable().host_share(LOCAL_NODE, first, ledger.snapshot())
        == HostShare(1, coming_bytes=7 * GIB)
    )


@given(
    free=st.integers(0, 40),
    peak=st.integers(1, 8),
    held=st.lists(st.integers(0, 8), min_size=1, max_size=6),
)
def test_main_memory_is_never_over_committed(free: int, peak: int, held: list[int]) -> None:
    """What is free is enough for all that those that run may still take, and the new one."""
    sizes = {f"w{n}": min(size, peak) for n, size in enumerate(held)}
    sizes["w0"] = peak
    ledger, now = ledger_with(len(held)), reading(free, **sizes)
    ledger.note(now, [])
    if isinstance(decide(now, ledger), Placement):
        assert sum(peak - size for size in sizes.values()) + peak <= free


def test_processes_that_a_trial_starts_count_with_its_own() -> None:
    ledger, limits = Ledger(), replace(LIMITS, helpers_bytes=GIB // 2)
    ledger.reserve(0, placed("GPU-a", GIB))
    ledger.note(reading(2), [])
    assert isinstance(decide(reading(2), ledger), Placement)
    assert "1.5 GiB of main memory" in refused(decide(reading(2), ledger, limits)).reason
