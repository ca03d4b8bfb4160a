"""What counts as taken of a device: promises, what is seen, contexts, strangers."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from automl.admission.accounting.account import CONTEXT_BOUND_BYTES, DeviceAccount, make_account
from automl.admission.accounting.device_table import DeviceTable
from automl.admission.accounting.ledger import DeviceLedgerPage, Ledger
from automl.admission.refusals import GIB
from automl.devices.device_reading import DeviceProcess, DeviceReading
from automl.trial import (
    ProcessId,
    ResourceRequest,
)
from tests.admission.placing import (
    GPU,
    ME,
    NOW,
    OTHER_WORKER,
    STRANGER,
    decide,
    gpu,
    ledger_with,
    reading,
    refusal,
    reserved,
    uuid,
)
from tests.places import device_id, placed


def test_memory_promised_but_not_yet_visible_counts() -> None:
    """NVML still shows an empty device; the ledger knows better."""
    ledger = ledger_with(("GPU-a", 20, ME))
    assert refusal(decide(ResourceRequest(4 * GIB), reading(gpu(free=24)), ledger)) == (
        "waiting: 4.0 GiB asked, 3.0 GiB room on GPU-a… (NVIDIA Stub); "
        "20.0 GiB reserved by 1 running"
    )


def test_memory_promised_to_a_process_that_is_not_known_yet_counts() -> None:
    ledger = Ledger()
    ledger.reserve(0, placed("GPU-a", 12 * GIB))
    ledger.reserve(1, placed("GPU-a", 8 * GIB), OTHER_WORKER)
    a = make_account(gpu(), reading(gpu()), ledger.snapshot().on(GPU), 0)
    assert (a.hold_bytes, a.pending_bytes) == (20 * GIB, 2 * CONTEXT_BOUND_BYTES)


def test_memory_of_strangers_counts_and_they_are_named() -> None:
    """The ledger is empty; NVML knows better."""
    stranger = DeviceProcess(STRANGER, 20 * GIB, 20 * GIB, "python", "ann")
    device = gpu(free=4, processes=(stranger,))
    assert refusal(decide(ResourceRequest(4 * GIB), reading(device))) == (
        "waiting: 4.0 GiB asked, 3.0 GiB room on GPU-a… (NVIDIA Stub); "
        "20.0 GiB held by pid 4121 (python, user ann)"
    )


def test_a_promise_and_the_memory_taken_for_it_are_counted_once() -> None:
    ledger = ledger_with(("GPU-a", 10, ME))
    own = reserved("GPU-a", ME, 8)
    now = reading(gpu(free=16), reserved_before=own, reserved_after=own)
    assert (
        uuid(decide(ResourceRequest(12 * GIB), now, ledger)) == "GPU-a"
    )  # 24 - 1 - max(8, 10) = 13


def test_a_cache_that_never_shrinks_counts_after_its_trial_ended() -> None:
    own = reserved("GPU-a", ME, 18)
    now = reading(gpu(free=6), reserved_before=own, reserved_after=own)
    assert "5.0 GiB room" in refusal(decide(ResourceRequest(6 * GIB), now))
    in_cache = ledger_with(("GPU-a", 17, ME))
    assert (
        uuid(decide(ResourceRequest(5 * GIB), now, in_cache)) == "GPU-a"
    )  # the trial lives in the cache


def test_memory_that_changes_while_it_is_read_errs_on_the_safe_side() -> None:
    """hold takes the larger figure of our process, foreign is computed with the smaller."""
    now = reading(
        gpu(free=14),
        reserved_before=reserved("GPU-a", ME, 2),
        reserved_after=reserved("GPU-a", ME, 10),
    )
    a = make_account(now.devices[0], now, DeviceLedgerPage(), GIB)
    assert (a.foreign_bytes, a.hold_bytes) == (8 * GIB, 10 * GIB)


def test_a_worker_that_began_or_ended_during_the_reading_is_counted() -> None:
    begun = reading(gpu(free=14), reserved_after=reserved("GPU-a", ME, 10))
    assert make_account(begun.devices[0], begun, DeviceLedgerPage(), 0).room_bytes == 4 * GIB
    ended = reading(gpu(free=14), reserved_before=reserved("GPU-a", ME, 10))
    assert make_account(ended.devices[0], ended, DeviceLedgerPage(), 0).room_bytes == 4 * GIB


def test_a_foreign_tenant_that_grows_takes_room() -> None:
    assert uuid(decide(ResourceRequest(8 * GIB), reading(gpu(free=12)))) == "GPU-a"
    assert "6.0 GiB room" in refusal(decide(ResourceRequest(8 * GIB), reading(gpu(free=7))))


def test_an_observed_peak_above_the_promise_counts() -> None:
    ledger = ledger_with(("GPU-a", 2, ME))
    ledger.observe_peak(0, 15 * GIB)
    assert "8.0 GiB room" in refusal(decide(ResourceRequest(9 * GIB), reading(gpu()), ledger))


def test_a_context_not_yet_visible_is_kept_free() -> None:
    ledger = ledger_with(("GPU-a", 2, ME), context_ready=False)
    a = make_account(gpu(), reading(gpu()), ledger.snapshot().on(GPU), 0)
    assert a.pending_bytes == CONTEXT_BOUND_BYTES
    ledger.context_up(0, NOW)
    same = make_account(gpu(), reading(gpu()), ledger.snapshot().on(GPU), 0)
    assert same.pending_bytes == CONTEXT_BOUND_BYTES, "the reading began before it was ready"
    later = replace(reading(gpu()), begun_seconds=NOW + 1)
    assert make_account(gpu(), later, ledger.snapshot().on(GPU), 0).pending_bytes == 0


def test_a_process_that_cannot_report_counts_by_the_drivers_word() -> None:
    ledger = ledger_with(("GPU-a", 2, OTHER_WORKER))
    device = gpu(free=12, processes=(DeviceProcess(OTHER_WORKER.pid, 12 * GIB, 12 * GIB),))
    a = make_account(device, reading(device), ledger.snapshot().on(GPU), 0)
    assert (a.hold_bytes, a.foreign_bytes) == (12 * GIB, 0)


sizes = st.integers(0, 30)


@given(
    asked=sizes,
    total=st.integers(1, 24),
    free=sizes,
    promises=st.lists(st.tuples(sizes, st.sampled_from([ME, OTHER_WORKER])), max_size=4),
    held=st.dictionaries(st.sampled_from([ME, OTHER_WORKER]), st.tuples(sizes, sizes)),
    ready=st.booleans(),
)
def test_whatever_is_read_the_invariant_holds_at_admission(
    asked: int,
    total: int,
    free: int,
    promises: list[tuple[int, ProcessId]],
    held: dict[ProcessId, tuple[int, int]],
    ready: bool,
) -> None:
    device = gpu(total=total, free=min(free, total))
    now = reading(
        device,
        reserved_before={
            (device_id("GPU-a"), who): before * GIB for who, (before, _) in held.items()
        },
        reserved_after={(device_id("GPU-a"), who): after * GIB for who, (_, after) in held.items()},
    )
    ledger = ledger_with(*[("GPU-a", size, who) for size, who in promises], context_ready=ready)
    decide(ResourceRequest(asked * GIB), now, ledger)  # checks the invariant when it admits


def test_accounts_are_kept_until_the_reading_or_the_promises_change() -> None:
    ledger, accounts = Ledger(), DeviceTable()

    def look(now: DeviceReading) -> DeviceAccount:
        (found,) = accounts.update(now, ledger.snapshot(), 0).values()
        return found

    now = reading(gpu(free=20))
    assert look(now) is look(now)
    assert look(reading(gpu(free=8))).foreign_bytes == 16 * GIB
    before = look(now)
    ledger.reserve(1, placed("GPU-a", 5 * GIB))
    assert before.room_bytes - look(now).room_bytes == 5 * GIB + CONTEXT_BOUND_BYTES


def test_what_a_trial_s_own_processes_hold_is_held_by_nobody_else() -> None:
    """Ranks of a trial: without them it would look as if strangers had come."""
    ledger = ledger_with(("GPU-a", 10, OTHER_WORKER))
    pid = OTHER_WORKER.pid
    ranks = (
        DeviceProcess(pid, GIB, GIB),
        DeviceProcess(4000, 6 * GIB, 6 * GIB, started_by=pid),
        DeviceProcess(4001, 5 * GIB, 5 * GIB, started_by=pid),
    )
    a = make_account(
        gpu(free=12, processes=ranks), reading(gpu()), ledger.snapshot().on(GPU), headroom_bytes=0
    )
    assert (a.foreign_bytes, a.hold_bytes) == (0, 12 * GIB)
