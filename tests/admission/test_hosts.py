"""Each node of a cluster has main memory and cores of its own for trials on its GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automl.admission.accounting.device_table import DeviceTable
from automl.admission.accounting.host_share import HostShare
from automl.admission.accounting.ledger import Ledger, LedgerSnapshot
from automl.admission.backfill import PlacementSituation
from automl.admission.limits import AdmissionLimits
from automl.admission.placement_policy import place_trial
from automl.admission.refusals import GIB, AdmissionRefusal
from automl.devices.device_reading import DeviceReading, DeviceSnapshot, HostState
from automl.trial import DeviceKind, Placement, ProcessId, ResourceRequest, host_device_of
from tests.places import device_id, placed, process_id

NODES = ("a", "b")
GPUS = tuple(
    DeviceSnapshot(device_id(f"{node}/GPU-{n}"), "sim", 80 * GIB, 80 * GIB)
    for node in NODES
    for n in range(2)
)
NOW = 1000.0
LIMITS = AdmissionLimits(None, 0, 5.0, max_on_host=1)


def worker(node: str, number: int = 0) -> ProcessId:
    return process_id(100 + number, node)


def reading(held: Mapping[ProcessId, int] | None = None, **hosts: HostState) -> DeviceReading:
    """`held`: main memory, in GiB."""
    sizes = {(host_device_of(p.node), p): size * GIB for p, size in (held or {}).items()}
    return DeviceReading(NOW, GPUS, reserved_before=sizes, reserved_after=sizes, hosts=hosts)


def state(free: float, busy: float | None = None, n_places: int | None = 8) -> HostState:
    return HostState(int(free * GIB), busy, n_places)


def ledger_with(*running: str, known: bool = True) -> Ledger:
    """A trial on each of these GPUs."""
    ledger = Ledger()
    for key, name in enumerate(running):
        node = name.partition("/")[0]
        ledger.reserve(key, placed(name, GIB), worker(node, key) if known else None)
        ledger.context_up(key, NOW - 9)
    return ledger


def decide(now: DeviceReading, ledger: Ledger, **more: object) -> Placement | AdmissionRefusal:
    """As those decide who look at all of them, and at a few."""
    how = {"limits": LIMITS, "request": ResourceRequest(GIB), "now_seconds": NOW, **more}
    both = [
        place_trial(reading=now, ledger=ledger.snapshot(), table=table, **how)  # type: ignore[arg-type]
        for table in (None, DeviceTable())
    ]
    assert both[0] == both[1]
    return both[0]


def node_of(found: Placement | AdmissionRefusal) -> str:
    assert isinstance(found, Placement), found
    return found.node


def reason(found: Placement | AdmissionRefusal) -> str:
    assert isinstance(found, AdmissionRefusal), found
    return found.reason


def test_a_node_without_main_memory_takes_no_process_and_another_does() -> None:
    ledger = ledger_with("a/GPU-0", "b/GPU-0", "b/GPU-1")
    held = {worker("a", 0): 1, worker("b", 1): 1, worker("b", 2): 1}
    assert node_of(decide(reading(held, a=state(9), b=state(9)), ledger)) == "a", "fewest trials"
    full_a = reading(held, a=state(0.5), b=state(9))
    assert node_of(decide(full_a, ledger)) == "b"
    assert reason(decide(reading(held, a=state(0.5), b=state(0.25)), ledger)) == (
        "waiting: 1.0 GiB of main memory asked for its process, 0.5 GiB left on the host of a "
        "beside 1 running"
    )
    pair = ResourceRequest(GIB, n_devices=2)
    assert node_of(decide(full_a, ledger, request=pair)) == "b", "both on one node"
    none = reading(held, a=state(0.5), b=state(0.5))
    assert "of main memory" in reason(decide(none, ledger, request=pair))


def test_the_first_always_may_on_each_node() -> None:
    none = reading(a=state(0), b=state(0))
    assert node_of(decide(none, Ledger())) == "a"
    assert node_of(decide(none, ledger_with("a/GPU-0"))) == "b"


def test_what_was_seen_of_processes_on_one_node_is_asked_for_on_all() -> None:
    ledger = ledger_with("a/GPU-0", "b/GPU-0")
    held = {worker("a", 0): 1, worker("b", 1): 6}
    now = reading(held, a=state(9), b=state(9))
    ledger.note(now, [])
    assert ledger.snapshot().host_peak_bytes == 6 * GIB
    assert "6.0 GiB of main memory asked for its process, 4.0 GiB left on the host of a" in reason(
        decide(reading(held, a=state(9), b=state(5)), ledger)
    )


def test_processes_that_a_node_does_not_show_yet_are_counted_there_alone() -> None:
    ledger = ledger_with("a/GPU-0", "b/GPU-0", known=False)
    assert node_of(decide(reading(a=state(1.9), b=state(2)), ledger)) == "b"
    assert node_of(decide(reading(a=state(2), b=state(1.9)), ledger)) == "a"
    shown = reading({worker("a", 0): 1}, a=state(1), b=state(1.9))
    assert "main memory" in reason(decide(shown, ledger)), "who is shown is not known to be its"
    ledger.assign(0, worker("a", 0))
    assert node_of(decide(shown, ledger)) == "a"


def test_a_node_s_own_cores_count_where_it_tells_of_them() -> None:
    """This machine, where the sweep runs, has one."""
    ledger = ledger_with("a/GPU-0", "a/GPU-1", "b/GPU-0", "b/GPU-1")
    held = {worker(node, n): 1 for n, node in enumerate("aabb")}
    busy, free = state(64, 0.97, 2), state(64, 0.97, 3)
    assert reason(decide(reading(held, a=busy, b=busy), ledger)) == (
        "waiting: all cores of the host of a are busy, with 2 running"
    )
    assert node_of(decide(reading(held, a=busy, b=free), ledger)) == "b"
    silent = state(64, 0.97, None)
    told = replace(LIMITS, on_hosts={host_device_of("b"): 3})
    assert node_of(decide(reading(held, a=silent, b=silent), ledger, limits=told)) == "b"
    one = ledger_with("a/GPU-0", "b/GPU-0")
    held = {worker("a", 0): 1, worker("b", 1): 1}
    none = state(64, 0.97, 0)
    assert "cores" in reason(decide(reading(held, a=none, b=none), one)), "at least one"


def test_what_has_just_started_keeps_cores_of_its_node_busy() -> None:
    found: list[str] = []
    ledger, now = Ledger(), reading(a=state(64, 0.1, 2), b=state(64, 0.1, 3))
    while isinstance(one := decide(now, ledger), Placement):
        ledger.reserve(len(found), one)
        found.append(one.node)
    assert sorted(found) == ["a", "a", "b", "b", "b"]


def test_idle_processes_are_ended_where_their_main_memory_is_lacking() -> None:
    """Of the nodes on which it would do the one that has some, and of no other."""
    ledger = ledger_with("a/GPU-0", "b/GPU-0", known=False)
    full = reading(a=state(0), b=state(0))
    idle = {(device_id("b/GPU-1"),): [worker("b", 9)]}
    refused = decide(full, ledger, idle=idle)
    assert "left on the host of b" in reason(refused)
    assert isinstance(refused, AdmissionRefusal)
    assert refused.in_the_way == {device_id("b/GPU-1")}
    assert refused.of_host
    idle[device_id("a/GPU-1"),] = [worker("a", 8)]
    refused = decide(full, ledger, idle=idle)
    assert isinstance(refused, AdmissionRefusal)
    assert refused.in_the_way == {device_id("a/GPU-1")}


def test_nodes_of_which_nothing_is_known_take_what_their_gpus_take() -> None:
    ledger = ledger_with("a/GPU-0", "b/GPU-0", "b/GPU-1")
    assert node_of(decide(reading(b=state(0)), ledger)) == "a"


def test_what_trials_take_of_a_node_is_added_up_anew_where_anything_changed() -> None:
    ledger, table = ledger_with("a/GPU-0", "a/GPU-1", "b/GPU-0"), DeviceTable()
    first, other = reading({worker("a", 0): 1}), reading({worker("a", 0): 3, worker("b", 2): 2})

    def look(now: DeviceReading, ledger: LedgerSnapshot) -> list[HostShare]:
        found = [table.host_share(node, now, ledger) for node in NODES]
        assert found == [DeviceTable().host_share(node, now, ledger) for node in NODES]
        return found

    seen = [look(now, ledger.snapshot()) for now in (first, other)]
    assert [share.n_coming for share in seen[0]] == [1, 1]
    assert [share.n_coming for share in seen[1]] == [1, 0]
    ledger.release(0, NOW)
    assert [share.n_running for share in look(other, ledger.snapshot())] == [1, 1]
    look(other, replace(ledger.snapshot(), host_peak_bytes=4 * GIB))
    look(other, LedgerSnapshot.from_reservations(ledger.snapshot().reservations[:1]))


@pytest.mark.parametrize(("closed", "n_on_host"), [(None, 2), ("not held", 3)])
def test_a_core_of_each_node_is_kept_for_each_of_its_gpus(
    closed: str | None, n_on_host: int
) -> None:
    """For those that are this sweep's."""
    hosts = [DeviceSnapshot(host_device_of(node), "cpu", 80 * GIB, 80 * GIB) for node in NODES]
    gpus = [
        replace(gpu, closed=closed, max_processes=None if closed is None else 0)
        if gpu.address == device_id("a/GPU-1")
        else gpu
        for gpu in GPUS
    ]
    now = replace(reading(a=state(64, n_places=4), b=state(64)), devices=(*hosts, *gpus))
    limits = replace(LIMITS, on_hosts={host_device_of("a"): 4, host_device_of("b"): 0})
    request = ResourceRequest(GIB, kinds=frozenset({DeviceKind.CPU}))
    ledger = ledger_with("a/GPU-0")
    found: list[Placement] = []
    while isinstance(one := decide(now, ledger, limits=limits, request=request), Placement):
        ledger.reserve(10 + len(found), one)
        found.append(one)
    assert [one.node for one in found] == ["a"] * n_on_host
    assert reason(one) == (
        f"waiting: all places are taken, as many on the CPU as the cores allow (4, of which "
        f"{4 - n_on_host} kept for GPUs)"
    )


def test_a_core_that_comes_free_on_one_node_is_none_on_another() -> None:
    ledger = ledger_with("a/GPU-0", "a/GPU-1", "b/GPU-0", "b/GPU-1")
    held = {worker(node, n): 1 for n, node in enumerate("aabb")}
    busy = state(64, 1.0, 2)
    now = reading(held, a=busy, b=busy)
    ends = {0: NOW + 10, 2: NOW + 20}
    here = PlacementSituation(now, ledger.snapshot(), LIMITS, NOW, ends_seconds=ends)
    everywhere = {gpu.address for gpu in GPUS}
    later = here.later(NOW + 15, everywhere)
    assert later.reading.hosts == {"a": replace(busy, busy=0.5), "b": busy}
    more = later.with_one_more(7, placed("a/GPU-0", GIB), NOW + 99)
    assert more.reading.hosts["a"].busy == 1.0, "in the process that is there"


sizes = st.lists(st.integers(0, 8), max_size=4)


@given(free=st.tuples(st.integers(0, 20), st.integers(0, 20)), held=st.tuples(sizes, sizes))
def test_main_memory_of_no_node_is_ever_over_committed(
    free: tuple[int, int], held: tuple[list[int], list[int]]
) -> None:
    """By one reading, however many start: what is free is enough for all that those that run may
    still take. (The first of a node always may.)"""
    peak = 8
    at_work = {
        worker(node, n): size
        for node, of_node in zip(NODES, held, strict=True)
        for n, size in enumerate(of_node)
    }
    ledger = Ledger()
    for key, process in enumerate(at_work):
        ledger.reserve(key, placed(f"{process.node}/GPU-0", GIB), process)
    hosts = {node: state(size, n_places=64) for node, size in zip(NODES, free, strict=True)}
    now = reading(at_work, **hosts)
    table, n_new = DeviceTable(), dict.fromkeys(NODES, 0)
    for key in range(100, 120):
        snapshot = replace(ledger.snapshot(), host_peak_bytes=peak * GIB)
        one = place_trial(ResourceRequest(GIB), now, snapshot, LIMITS, now_seconds=NOW, table=table)
        if isinstance(one, AdmissionRefusal):
            break
        ledger.reserve(key, one)
        n_new[one.node] += 1
        left = sum(peak - size for p, size in at_work.items() if p.node == one.node)
        is_first = n_new[one.node] == 1 and not held[NODES.index(one.node)]
        assert is_first or left + peak * n_new[one.node] <= free[NODES.index(one.node)]
    assert sum(n_new.values()) < 20
