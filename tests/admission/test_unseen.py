"""What other sweeps are told of our promises."""

from __future__ import annotations

from dataclasses import replace

from automl.admission.accounting.account import CONTEXT_BOUND_BYTES, make_account
from automl.admission.accounting.ledger import DeviceLedgerPage, Ledger
from automl.admission.memory_caps import (
    LASTS_SECONDS,
    PromiseRetention,
    add_promises_elsewhere,
    coming_promises,
    unseen_promises,
)
from automl.admission.refusals import GIB
from automl.devices.device_reading import DeviceProcess, DeviceReading, DeviceSnapshot
from automl.devices.memory_promises import MemoryPromise, missed_promises
from automl.trial import HOST_UUID
from tests.places import device_id, placed, process_id

A = device_id("GPU-a")
ME = process_id(100)
NOW = DeviceReading(1000.0, (DeviceSnapshot(A, "sim", 24 * GIB, 24 * GIB),))


def shows(size: int, seconds: float = 1000.0) -> DeviceReading:
    """NVML's word on our process."""
    process = DeviceProcess(ME.pid, size, size)
    device = replace(NOW.devices[0], free_bytes=24 * GIB - size, processes=(process,))
    return DeviceReading(seconds, (device,))


def test_a_promise_and_its_context_until_they_are_seen() -> None:
    ledger = Ledger()
    ledger.reserve(3, placed("GPU-a", 5 * GIB))
    whole = MemoryPromise("GPU-a", "t3", 5 * GIB + CONTEXT_BOUND_BYTES)
    assert unseen_promises(NOW, ledger.snapshot()) == (whole,)
    ledger.assign(3, ME)
    assert unseen_promises(NOW, ledger.snapshot()) == (whole,), "under the same word"
    part = replace(whole, size_bytes=whole.size_bytes - 2 * GIB)
    assert unseen_promises(shows(2 * GIB), ledger.snapshot()) == (part,)
    ledger.context_up(3, 1000.0)
    assert unseen_promises(shows(5 * GIB, 1001.0), ledger.snapshot()) == ()


def test_what_shrinks_is_promised_again() -> None:
    """Its cache was emptied, and will grow anew."""
    ledger = Ledger()
    ledger.reserve(3, placed("GPU-a", 5 * GIB), ME)
    ledger.context_up(3, 0.0)
    assert unseen_promises(shows(GIB), ledger.snapshot()) == (
        MemoryPromise("GPU-a", "t3", 4 * GIB),
    )


def test_trials_of_one_process_are_one_promise() -> None:
    ledger = Ledger()
    for key in (3, 4):
        ledger.reserve(key, placed("GPU-a", 2 * GIB), ME)
        ledger.context_up(key, 0.0)
    held = {(A, ME): 3 * GIB}
    reading = replace(NOW, reserved_before=held, reserved_after={(A, ME): 2 * GIB})
    assert unseen_promises(reading, ledger.snapshot()) == (MemoryPromise("GPU-a", "t3", 2 * GIB),)


def test_what_is_about_to_be_reserved_is_shown_and_nothing_of_the_host() -> None:
    ledger = Ledger()
    ledger.reserve(1, placed(HOST_UUID, GIB))
    assert unseen_promises(NOW, ledger.snapshot()) == ()
    coming = coming_promises(placed("GPU-a", GIB), 7)
    assert coming == (MemoryPromise("GPU-a", "t7", GIB + CONTEXT_BOUND_BYTES),)
    assert coming_promises(placed(HOST_UUID, GIB), 7) == ()
    ledger.reserve(7, placed("GPU-a", GIB))
    assert unseen_promises(NOW, ledger.snapshot()) == coming, "under the same word"


def test_what_another_machine_has_promised_is_nobodys_here() -> None:
    ledger, elsewhere = Ledger(), placed("node-1/GPU-a", GIB)
    ledger.reserve(1, elsewhere)
    assert unseen_promises(NOW, ledger.snapshot()) == ()
    assert coming_promises(elsewhere, 7) == ()


def test_what_nvml_shows_now_is_still_shown_to_those_with_an_older_reading() -> None:
    lasting = PromiseRetention()
    five, two = MemoryPromise("GPU-a", "t1", 5), MemoryPromise("GPU-a", "t1", 2)
    assert lasting.promises_to_show([five], [], 1.0) == [five]
    assert lasting.promises_to_show([two], [], 2.0) == [two, replace(five, seen_seconds=2.0)]
    assert lasting.promises_to_show([two], [], 3.0) == [two, replace(five, seen_seconds=2.0)]
    assert lasting.promises_to_show([], [], 4.0) == [replace(five, seen_seconds=4.0)]
    shown = lasting.promises_to_show([], [], 5.0)
    where = (A, "x t1")
    assert missed_promises(shown, "x", 3.9) == {where: 5}
    assert missed_promises(shown, "x", 4.1) == {}
    assert lasting.promises_to_show([], [], 4.0 + LASTS_SECONDS) == []


def test_what_was_coming_lasts_once_it_was_taken() -> None:
    lasting, five = PromiseRetention(), MemoryPromise("GPU-a", "t1", 5)
    assert lasting.promises_to_show([], [five], 1.0) == [five]
    assert lasting.promises_to_show([], [], 2.0) == [replace(five, seen_seconds=2.0)]


def test_what_others_promise_is_foreign_memory() -> None:
    now = add_promises_elsewhere(NOW, {(A, "x t1"): 5 * GIB, (device_id("GPU-b"), "x t2"): GIB})
    here = make_account(now.devices[0], now, DeviceLedgerPage(), 0)
    assert (here.foreign_bytes, here.room_bytes) == (5 * GIB, 19 * GIB)


def test_a_promise_that_was_kept_since_the_reading_still_counts_beside_a_new_one() -> None:
    """The reading may have missed the memory that took its place."""
    before = replace(NOW, promised_elsewhere={(A, "x t1"): 5 * GIB})
    after = add_promises_elsewhere(before, {(A, "x t1"): GIB, (A, "x t2"): 3 * GIB})
    assert after.promised_elsewhere_on(A) == 8 * GIB
    assert add_promises_elsewhere(before, {(A, "x t1"): GIB}) is before
