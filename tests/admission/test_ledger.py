"""Reservations come back exactly once."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest

from automl.admission.accounting.ledger import Ledger, LedgerSnapshot
from automl.admission.memory_caps import settled_bytes
from automl.devices.device_reading import DeviceReading
from automl.trial import HOST_UUID, LOCAL_HOST, DeviceShare, MemoryPeakMeasured, Placement
from tests.places import device_id, placed, process_id

PLACEMENT = placed(HOST_UUID, 5)
GPU = device_id("GPU-a")


def test_a_reservation_is_given_back_when_its_block_fails() -> None:
    ledger = Ledger()
    ledger.reserve(1, PLACEMENT)
    with pytest.raises(RuntimeError, match="trial broke"), ledger.releasing(1):
        raise RuntimeError("trial broke")
    assert ledger.snapshot().reservations == ()


def test_giving_back_twice_is_our_own_mistake() -> None:
    ledger = Ledger()
    ledger.reserve(1, PLACEMENT)
    ledger.release(1, 9.0)
    with pytest.raises(AssertionError, match="holds no reservation"):
        ledger.release(1, 9.0)


def test_promising_twice_is_our_own_mistake() -> None:
    ledger = Ledger()
    ledger.reserve(1, PLACEMENT)
    with pytest.raises(AssertionError, match="already holds"):
        ledger.reserve(1, PLACEMENT)


def test_a_snapshot_does_not_change_later() -> None:
    ledger = Ledger()
    ledger.reserve(1, PLACEMENT)
    then = ledger.snapshot()
    ledger.release(1, 9.0)
    assert [r.key for r in then.reservations] == [1]


def test_a_peak_only_grows() -> None:
    ledger = Ledger()
    ledger.reserve(1, PLACEMENT)
    ledger.observe_peak(1, 9)
    ledger.observe_peak(1, 7)
    assert ledger.snapshot().reservations[0].counted_bytes(LOCAL_HOST) == 9


def test_whether_a_context_came_that_nobody_told_of_the_next_reading_shows() -> None:
    ledger = Ledger()
    gpu = placed("GPU-a", 5)
    ledger.reserve(1, gpu, process_id(10))
    ledger.reserve(2, gpu, process_id(10))
    ledger.release(1, 9.0)
    assert ledger.snapshot().on(GPU).n_pending_contexts(9.1) == 1, "the other trial still brings it"
    ledger.release(2, 9.0)
    then = ledger.snapshot()
    assert then.on(GPU).n_pending_contexts(9.0) == 1, "it may have come just before"
    assert then.on(GPU).n_pending_contexts(9.1) == 0, "if it did, the driver shows it"
    assert not then.on(GPU).has_context(process_id(10)), "the next trial there asks for one"


def test_many_threads_leave_nothing_behind() -> None:
    ledger = Ledger()

    def work(first: int) -> None:
        for key in range(first, first + 200):
            ledger.reserve(key, PLACEMENT)
            with ledger.releasing(key):
                ledger.observe_peak(key, key)

    threads = [threading.Thread(target=work, args=(i * 1000,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.snapshot().reservations == ()


def test_each_process_that_is_not_known_yet_brings_a_context() -> None:
    ledger = Ledger()
    gpu = placed("GPU-a", 5)
    ledger.reserve(1, gpu)
    ledger.reserve(2, gpu)
    assert ledger.snapshot().on(GPU).n_pending_contexts(0.0) == 2
    ledger.assign(1, process_id(10))
    ledger.context_up(1, 5.0)
    ledger.assign(2, process_id(10))  # a warm worker: its context is up already
    assert ledger.snapshot().on(GPU).n_pending_contexts(6.0) == 0


def test_a_context_that_never_came_goes_with_its_reservation() -> None:
    ledger = Ledger()
    ledger.reserve(1, placed("GPU-a", 5))
    ledger.release(1, 9.0)
    assert ledger.snapshot().on(GPU).n_pending_contexts(0.0) == 0


def test_a_context_belongs_to_its_process_once_that_is_known() -> None:
    ledger = Ledger()
    ledger.reserve(1, placed("GPU-a", 5))
    ledger.assign(1, process_id(10))
    assert list(ledger.snapshot().on(GPU).contexts) == [process_id(10)]
    assert ledger.snapshot().on(GPU).n_pending_contexts(9.0) == 1, "not up yet"


def test_a_context_comes_up_once() -> None:
    """Each trial of a warm process says it again; the first time counts."""
    ledger = Ledger()
    ledger.reserve(1, placed("GPU-a", 5), process_id(10))
    ledger.context_up(1, 5.0)
    ledger.context_up(1, 9.0)
    assert ledger.snapshot().on(GPU).n_pending_contexts(7.0) == 0
    assert ledger.snapshot().on(GPU).n_pending_contexts(5.0) == 1, "a reading begun just then"


def test_a_warm_process_does_not_lose_its_context_with_its_trial() -> None:
    ledger = Ledger()
    ledger.reserve(1, placed("GPU-a", 5), process_id(10))
    ledger.context_up(1, 5.0)
    ledger.release(1, 9.0)
    assert ledger.snapshot().on(GPU).n_pending_contexts(5.0) == 1, "a reading may have missed it"


def test_on_the_host_there_are_no_contexts() -> None:
    ledger = Ledger()
    ledger.reserve(1, PLACEMENT, process_id(10))
    assert ledger.snapshot().on(LOCAL_HOST).contexts == {}


def test_a_promise_shrinks_once_to_what_was_seen_and_is_shared_from_then_on() -> None:
    ledger = Ledger()
    ledger.reserve(1, placed("GPU-a", 20, exclusive=True))
    ledger.observe_peak(1, 8)
    assert ledger.settle(1, 9)
    assert not ledger.settle(1, 3)
    (settled,) = ledger.snapshot().reservations
    assert (settled.counted_bytes(GPU), settled.placement.exclusive) == (9, False)
    ledger.release(1, 9.0)
    assert ledger.snapshot().reservations == ()


@pytest.mark.parametrize(("asked", "left"), [(30, 20), (3, 8)])
def test_a_promise_never_grows_nor_falls_below_what_was_seen(asked: int, left: int) -> None:
    ledger = Ledger()
    ledger.reserve(1, placed("GPU-a", 20))
    ledger.observe_peak(1, 8)
    ledger.settle(1, asked)
    (settled,) = ledger.snapshot().reservations
    assert settled.placement.shares[0].reservation_bytes == left


PAIR = Placement(
    (DeviceShare(GPU, "x", 20), DeviceShare(device_id("GPU-b"), "x", 20)), exclusive=True
)


def test_of_several_devices_each_has_its_own_peak_and_promise() -> None:
    ledger, other = Ledger(), device_id("GPU-b")
    ledger.reserve(1, PAIR)
    ledger.observe_peak(1, 25, 3)
    ledger.observe_peak(1, 4, 7)
    (held,) = ledger.snapshot().reservations
    assert (held.counted_bytes(GPU), held.counted_bytes(other)) == (25, 20)
    assert ledger.settle(1, 27, 8)
    (held,) = ledger.snapshot().reservations
    assert [share.reservation_bytes for share in held.placement.shares] == [20, 8]


def test_on_a_device_where_nothing_was_seen_the_promise_stays() -> None:
    """A rank in a process of its own trains there; of the other 10 were seen."""
    peak = MemoryPeakMeasured(1, 0.0, 10, on_each_bytes=(10, 0))
    assert settled_bytes(peak, PAIR) == [11, 20]
    assert settled_bytes(MemoryPeakMeasured(1, 0.0, 0, on_each_bytes=(0, 0)), PAIR) is None


def test_what_a_reading_tells_is_on_the_next_snapshot_and_what_it_repeats_changes_nothing() -> None:
    """A page that is another is added up anew."""
    ledger, ours = Ledger(), process_id(7)
    ledger.reserve(1, placed("GPU-a", 5), ours)
    ledger.context_up(1, 1.0)
    ledger.release(1, 1.0)
    first = ledger.snapshot().on(GPU)

    alive = DeviceReading(2.0, reserved_after={(GPU, ours): 0})
    ledger.note(alive, [(GPU, ours, 300)])
    ledger.note_foreign([(GPU, 90)])
    told = ledger.snapshot().on(GPU)
    assert told is not first
    assert (told.context_bytes(ours), told.least_foreign_bytes) == (300, 90)

    ledger.note(alive, [(GPU, ours, 400)])
    ledger.note_foreign([(GPU, 91)])
    assert ledger.snapshot().on(GPU) is told

    ledger.note_foreign([(GPU, 80)])
    assert ledger.snapshot().on(GPU).least_foreign_bytes == 80
    ledger.note(alive, [(GPU, ours, 200)])
    assert ledger.snapshot().on(GPU).context_bytes(ours) == 200
    ledger.note(DeviceReading(3.0), [])
    assert not ledger.snapshot().on(GPU).has_context(ours), "its process is gone"


def test_a_snapshot_tells_what_changed_since_another_of_the_same_ledger() -> None:
    ledger = Ledger()
    before = ledger.snapshot()
    ledger.reserve(0, placed("GPU-a", 5))
    ledger.reserve(1, placed(HOST_UUID, 5))
    then = ledger.snapshot()
    assert then.changes.since(before.changes) == {GPU, LOCAL_HOST}
    assert then.changes.since(then.changes) == set()
    assert before.changes.since(then.changes) is None, "it was taken before"
    assert Ledger().snapshot().changes.since(before.changes) is None, "another ledger's"
    assert ledger.snapshot() is then, "nothing has changed"
    ledger.release(1, 9.0)
    assert ledger.snapshot().changes.since(then.changes) == {LOCAL_HOST}


def test_a_journal_that_is_too_long_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("automl.admission.accounting.ledger._LONGEST_JOURNAL", 2)
    ledger = Ledger()
    changes = [ledger.snapshot().changes]
    for key in range(4):
        ledger.reserve(key, placed(f"GPU-{key}", 5))
        changes.append(ledger.snapshot().changes)
    told = [after.since(before) for before, after in pairwise(changes)]
    assert told == [{device_id("GPU-0")}, {device_id("GPU-1")}, None, {device_id("GPU-3")}]
    assert [changes[4].since(before) for before in changes[:3]] == [None] * 3


def test_a_snapshot_knows_the_devices_of_each_machine() -> None:
    ledger = Ledger()
    for key, name in enumerate(["GPU-a", "node-1/GPU-a"]):
        ledger.reserve(key, placed(name, 5))
    before = ledger.snapshot()
    assert before.by_node == {"local": {GPU}, "node-1": {device_id("node-1/GPU-a")}}
    ledger.reserve(2, placed("GPU-b", 5))
    after = ledger.snapshot()
    assert after.on_node("local") == {GPU, device_id("GPU-b")}
    assert before.on_node("local") == {GPU}
    assert after.on_node("node-2") == frozenset()
    ledger.release(2, 0.0)
    assert ledger.snapshot().by_node is after.by_node
    assert LedgerSnapshot.from_reservations(after.reservations).by_node == after.by_node
