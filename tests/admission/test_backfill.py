"""Who may pass the head, by values alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from automl.admission.accounting.ledger import CudaContext, LedgerSnapshot, Reservation
from automl.admission.backfill import (
    PlacementSituation,
    StartPromise,
    find_overtaking,
    promise_start,
)
from automl.admission.limits import AdmissionLimits
from automl.devices.device_reading import DeviceProcess, DeviceReading, DeviceSnapshot, HostState
from automl.trial import LOCAL_NODE, DeviceId, ProcessId, RequestSource, ResourceRequest
from tests.places import device_id, placed, process_id

GB = 1000**3
A, B = device_id("GPU-a"), device_id("GPU-b")
SWEEP = ProcessId(LOCAL_NODE, 1)


def here(
    *running: tuple[str, int, float], n_most: int = 9, n_devices: int = 1
) -> PlacementSituation:
    """Trials that run on a device, hold so many GB of it as promised, and end then. Each has a
    process of its own."""
    holds: dict[tuple[DeviceId, ProcessId], int] = {
        (device_id(name), process_id(100 + key)): size * GB
        for key, (name, size, _) in enumerate(running)
    }
    devices = tuple(
        DeviceSnapshot(
            device,
            "x",
            24 * GB,
            24 * GB - sum(size for (where, _), size in holds.items() if where == device),
            processes=tuple(
                DeviceProcess(p.pid, size, size)
                for (where, p), size in holds.items()
                if where == device
            ),
        )
        for device in (A, B)[:n_devices]
    )
    reservations = tuple(
        Reservation(key, placed(name, size * GB), process_id(100 + key))
        for key, (name, size, _) in enumerate(running)
    )
    ends = {key: end for key, (_, _, end) in enumerate(running)}
    limits = AdmissionLimits(n_most, 0, stale_seconds=5.0)
    reading = DeviceReading(0.0, devices, holds, holds)
    up = {place: CudaContext(ready_seconds=-1.0, size_bytes=0) for place in holds}
    ledger = LedgerSnapshot.from_reservations(reservations, up)
    return PlacementSituation(reading, ledger, limits, 0.0, ends_seconds=ends)


def test_the_head_is_promised_the_first_moment_at_which_it_fits() -> None:
    now = here(("GPU-a", 8, 30.0), ("GPU-a", 8, 10.0), ("GPU-a", 4, 20.0))
    assert promise_start(ResourceRequest(11 * GB), now) == StartPromise(frozenset({A}), 10.0)
    assert promise_start(ResourceRequest(15 * GB), now) == StartPromise(frozenset({A}), 20.0)
    assert promise_start(ResourceRequest(None), now) == StartPromise(frozenset({A}), 30.0)


def test_the_device_that_is_free_first_is_promised() -> None:
    now = here(("GPU-a", 20, 30.0), ("GPU-b", 20, 10.0), n_devices=2)
    assert promise_start(ResourceRequest(9 * GB), now) == StartPromise(frozenset({B}), 10.0)


def test_a_head_that_wants_two_devices_is_promised_both() -> None:
    now = here(("GPU-a", 20, 30.0), ("GPU-b", 20, 10.0), n_devices=2)
    assert promise_start(ResourceRequest(9 * GB, n_devices=2), now) == StartPromise(
        frozenset({A, B}), 30.0
    )


def test_a_head_that_wants_a_device_to_itself_is_promised_the_first_that_is_empty() -> None:
    now = here(("GPU-a", 2, 10.0), ("GPU-a", 2, 30.0), ("GPU-b", 2, 20.0), n_devices=2)
    alone = ResourceRequest(None, RequestSource.RAN_OUT, alone=True)
    assert promise_start(alone, now) == StartPromise(frozenset({B}), 20.0)


def test_nothing_is_promised_where_no_end_is_known() -> None:
    assert promise_start(ResourceRequest(9 * GB), here(("GPU-a", 20, float("inf")))) is None


def test_what_should_have_ended_may_end_now() -> None:
    found = promise_start(ResourceRequest(9 * GB), here(("GPU-a", 20, -5.0)))
    assert found == StartPromise(frozenset({A}), 0.0)


@pytest.mark.parametrize(
    ("size", "seconds", "starts"), [(5, 20.0, True), (5, 28.0, False), (2, 99.0, True)]
)
def test_it_ends_in_time_or_fits_beside_the_head(size: int, seconds: float, starts: bool) -> None:
    """And so early that a reading shows it: 5 s before."""
    now = here(("GPU-a", 16, 30.0))
    head = ResourceRequest(20 * GB)
    promised = promise_start(head, now)
    assert promised is not None
    found = find_overtaking(ResourceRequest(size * GB), 7, seconds, head, promised, now)
    assert (found is not None) == starts


def test_it_is_sent_elsewhere_rather_than_into_the_heads_way() -> None:
    now = here(("GPU-a", 12, 30.0), ("GPU-b", 12, 60.0), ("GPU-b", 1, 60.0), n_devices=2)
    head = ResourceRequest(20 * GB)
    promised = promise_start(head, now)
    assert promised is not None
    found = find_overtaking(ResourceRequest(6 * GB), 7, 99.0, head, promised, now)
    assert found is not None
    assert found.devices == (B,)


def test_the_last_place_is_kept_for_the_head() -> None:
    """One ends then, and the head needs its place."""
    now = here(("GPU-a", 16, 30.0), ("GPU-a", 1, 90.0), n_most=3)
    head = ResourceRequest(18 * GB)
    promised = promise_start(head, now)
    assert promised is not None
    assert find_overtaking(ResourceRequest(GB), 7, 99.0, head, promised, now) is not None
    third = now.with_one_more(8, placed("GPU-a", GB), 90.0)
    assert find_overtaking(ResourceRequest(GB), 7, 99.0, head, promised, third) is None


def with_pending_contexts(now: PlacementSituation) -> PlacementSituation:
    """The same before any reading has shown what they take, of which 1 GiB each is thought."""
    pending = dict.fromkeys(now.ledger.contexts, CudaContext())
    return replace(now, ledger=LedgerSnapshot.from_reservations(now.ledger.reservations, pending))


@pytest.mark.parametrize(("size", "soonest"), [(9, 0.0), (10, None), (15, 20.0), (18, None)])
def test_it_is_known_when_contexts_that_take_less_would_let_the_head_in(
    size: int, soonest: float | None
) -> None:
    running = (("GPU-a", 6, 20.0), ("GPU-a", 7, 50.0), ("GPU-a", 0, 90.0))
    promised = promise_start(ResourceRequest(size * GB), with_pending_contexts(here(*running)))
    assert promised is not None
    assert promised.soonest_seconds == soonest


def test_nobody_is_beside_the_head_when_it_may_start_sooner_than_is_known() -> None:
    now = with_pending_contexts(here(("GPU-a", 8, 30.0), ("GPU-a", 5, 60.0)))
    head = ResourceRequest(int(17.5 * GB))
    promised = promise_start(head, now)
    assert promised == StartPromise(frozenset({A}), 60.0, soonest_seconds=30.0)
    assert find_overtaking(ResourceRequest(GB), 7, 20.0, head, promised, now) is not None
    assert find_overtaking(ResourceRequest(GB), 7, 30.0, head, promised, now) is None, (
        "over before the 60 s"
    )
    assert find_overtaking(ResourceRequest(GB), 7, 99.0, head, promised, now) is None, (
        "beside it at 60 s"
    )


def test_nobody_passes_when_the_time_has_come() -> None:
    now = here(("GPU-a", 16, 30.0))
    assert (
        find_overtaking(
            ResourceRequest(GB),
            7,
            0.0,
            ResourceRequest(20 * GB),
            StartPromise(frozenset({A}), 0.0),
            now,
        )
        is None
    )


def test_in_one_process_what_ends_gives_back_its_own_part() -> None:
    ours = {(A, SWEEP): 20 * GB}
    running = [Reservation(n, placed("GPU-a", 10 * GB), SWEEP) for n in (0, 1)]
    reading = DeviceReading(0.0, (DeviceSnapshot(A, "x", 24 * GB, 4 * GB),), ours, ours)
    now = PlacementSituation(
        reading,
        LedgerSnapshot.from_reservations(running),
        AdmissionLimits(9, 0, 5.0),
        0.0,
        SWEEP,
        {},
        {0: 9.0, 1: 50.0},
    )
    assert promise_start(ResourceRequest(12 * GB), now) == StartPromise(frozenset({A}), 9.0)
    assert promise_start(ResourceRequest(16 * GB), now) == StartPromise(frozenset({A}), 50.0)


def test_a_device_that_failed_is_not_promised() -> None:
    now = here(("GPU-a", 20, 10.0), ("GPU-b", 20, 30.0), n_devices=2)
    assert promise_start(ResourceRequest(12 * GB), now) == StartPromise(frozenset({A}), 10.0)
    failed = replace(now.reading.devices[0], fault="Timeout")
    drained = replace(now, reading=replace(now.reading, devices=(failed, now.reading.devices[1])))
    assert promise_start(ResourceRequest(12 * GB), drained) == StartPromise(frozenset({B}), 30.0)
    assert find_overtaking(
        ResourceRequest(GB),
        7,
        1.0,
        ResourceRequest(12 * GB),
        StartPromise(frozenset({B}), 30.0),
        drained,
    ) == placed("GPU-b", GB)


def test_what_other_sweeps_promise_is_no_room_for_the_head_either() -> None:
    now = here(("GPU-a", 20, 10.0), ("GPU-b", 20, 30.0), n_devices=2)
    taken = replace(now.reading, promised_elsewhere={(A, "x t1"): 14 * GB})
    assert promise_start(ResourceRequest(12 * GB), replace(now, reading=taken)) == StartPromise(
        frozenset({B}), 30.0
    )


def test_main_memory_is_kept_for_the_process_of_the_head() -> None:
    """One more process fits beside those that run, or two once one has ended, which is used again.
    Nobody takes the last for longer than the head can wait."""
    now = here(("GPU-a", 16, 30.0), ("GPU-b", 20, 90.0), n_devices=2)
    host = HostState(free_bytes=3 * 2**30, busy=0.1)
    now = replace(now, reading=replace(now.reading, hosts={LOCAL_NODE: host}))
    head = ResourceRequest(18 * GB)
    promised = promise_start(head, now)
    assert promised == StartPromise(frozenset({A}), 30.0)
    assert find_overtaking(ResourceRequest(GB), 7, 99.0, head, promised, now) is not None
    less = {LOCAL_NODE: replace(host, free_bytes=2 * 2**30)}
    full = replace(now, reading=replace(now.reading, hosts=less))
    assert find_overtaking(ResourceRequest(GB), 7, 99.0, head, promised, full) is None
