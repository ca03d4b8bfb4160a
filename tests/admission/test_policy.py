"""Placing, with plain values: who is let in, where, and what a refusal says."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automl.admission.account import CONTEXT_BOUND_BYTES, DeviceAccount, account
from automl.admission.accounts import Accounts
from automl.admission.governor import Sharing
from automl.admission.ledger import Ledger, LedgerSnapshot, Page
from automl.admission.limits import Limits
from automl.admission.policy import Idle, place
from automl.admission.reasons import GIB, Refusal, RefusalKind
from automl.devices.device import DeviceProcess, DeviceSnapshot, Reading
from automl.trial import (
    HOST,
    HOST_UUID,
    DeviceId,
    Placement,
    ProcessId,
    Request,
    RequestSource,
    Share,
)
from tests.places import device_id, placed, process_id

ME, OTHER_WORKER = process_id(100), process_id(101)
STRANGER = 4121
GPU = device_id("GPU-a")
LIMITS = Limits(max_concurrent_trials=64, headroom_bytes=GIB, stale_seconds=5.0)
NOW = 1000.0


def gpu(letter: str = "a", total: int = 24, free: int = 24, **more: object) -> DeviceSnapshot:
    """A GPU with sizes in GiB."""
    address = device_id(f"GPU-{letter}")
    snapshot = DeviceSnapshot(address, "NVIDIA Stub", total * GIB, free * GIB)
    return replace(snapshot, **more)  # type: ignore[arg-type]


def host(total: int = 16, free: int = 16) -> DeviceSnapshot:
    return DeviceSnapshot(HOST, "cpu", total * GIB, free * GIB)


def reading(*devices: DeviceSnapshot, **more: object) -> Reading:
    return replace(Reading(NOW, tuple(devices)), **more)  # type: ignore[arg-type]


def reserved(uuid: str, process: ProcessId, size: int) -> dict[tuple[DeviceId, ProcessId], int]:
    return {(device_id(uuid), process): size * GIB}


def ledger_with(*promises: tuple[str, int, ProcessId], context_ready: bool = True) -> Ledger:
    """Promises: (device uuid, GiB, process)."""
    ledger = Ledger()
    for key, (uuid, size, process) in enumerate(promises):
        ledger.reserve(key, placed(uuid, size * GIB), process)
        if context_ready:
            ledger.context_up(key, NOW - 1)
    return ledger


def decide(
    request: Request, reading: Reading | None, ledger: Ledger | None = None, **more: object
) -> Placement | Refusal:
    promised = LedgerSnapshot() if ledger is None else ledger.snapshot()
    limits = replace(LIMITS, **more)  # type: ignore[arg-type]
    decision = place(request, reading, promised, limits, now_seconds=NOW, process=ME)
    if isinstance(decision, Placement):
        assert reading is not None
        check_invariant(decision, reading, promised, limits)
    return decision


def check_invariant(
    p: Placement, reading: Reading, promised: LedgerSnapshot, limits: Limits
) -> None:
    """On each device admitted to: Σ hold + foreign + pending contexts + headroom ≤ total."""
    for share in p.shares:
        device = next(d for d in reading.devices if d.address == share.device)
        a = account(device, reading, promised.on(device.address), limits.headroom_bytes)
        assert _taken(a) + share.reservation_bytes <= device.total_bytes
        assert a.n_trials + 1 <= limits.on(share.device)


def _taken(a: DeviceAccount) -> int:
    return a.hold_bytes + a.foreign_bytes + a.pending_bytes + a.headroom_bytes


def refusal(decision: Placement | Refusal) -> str:
    assert isinstance(decision, Refusal), decision
    return decision.reason


def uuid(decision: Placement | Refusal) -> str:
    assert isinstance(decision, Placement), decision
    (device,) = decision.devices
    return device.uuid


def test_a_request_that_fits_is_placed_with_its_bytes_reserved() -> None:
    decision = decide(Request(3 * GIB), reading(gpu()))
    assert decision == placed("GPU-a", 3 * GIB, name="NVIDIA Stub")


def test_memory_promised_but_not_yet_visible_counts() -> None:
    """NVML still shows an empty device; the ledger knows better."""
    ledger = ledger_with(("GPU-a", 20, ME))
    assert refusal(decide(Request(4 * GIB), reading(gpu(free=24)), ledger)) == (
        "waiting: 4.0 GiB asked, 3.0 GiB room on GPU-a… (NVIDIA Stub); "
        "20.0 GiB reserved by 1 running"
    )


def test_memory_promised_to_a_process_that_is_not_known_yet_counts() -> None:
    ledger = Ledger()
    ledger.reserve(0, placed("GPU-a", 12 * GIB))
    ledger.reserve(1, placed("GPU-a", 8 * GIB), OTHER_WORKER)
    a = account(gpu(), reading(gpu()), ledger.snapshot().on(GPU), 0)
    assert (a.hold_bytes, a.pending_bytes) == (20 * GIB, 2 * CONTEXT_BOUND_BYTES)


def test_memory_of_strangers_counts_and_they_are_named() -> None:
    """The ledger is empty; NVML knows better."""
    stranger = DeviceProcess(STRANGER, 20 * GIB, 20 * GIB, "python", "ann")
    device = gpu(free=4, processes=(stranger,))
    assert refusal(decide(Request(4 * GIB), reading(device))) == (
        "waiting: 4.0 GiB asked, 3.0 GiB room on GPU-a… (NVIDIA Stub); "
        "20.0 GiB held by pid 4121 (python, user ann)"
    )


def test_a_promise_and_the_memory_taken_for_it_are_counted_once() -> None:
    ledger = ledger_with(("GPU-a", 10, ME))
    own = reserved("GPU-a", ME, 8)
    now = reading(gpu(free=16), reserved_before=own, reserved_after=own)
    assert uuid(decide(Request(12 * GIB), now, ledger)) == "GPU-a"  # 24 - 1 - max(8, 10) = 13


def test_a_cache_that_never_shrinks_counts_after_its_trial_ended() -> None:
    own = reserved("GPU-a", ME, 18)
    now = reading(gpu(free=6), reserved_before=own, reserved_after=own)
    assert "5.0 GiB room" in refusal(decide(Request(6 * GIB), now))
    in_cache = ledger_with(("GPU-a", 17, ME))
    assert uuid(decide(Request(5 * GIB), now, in_cache)) == "GPU-a"  # the trial lives in the cache


def test_memory_that_changes_while_it_is_read_errs_on_the_safe_side() -> None:
    """hold takes the larger figure of our process, foreign is computed with the smaller."""
    now = reading(
        gpu(free=14),
        reserved_before=reserved("GPU-a", ME, 2),
        reserved_after=reserved("GPU-a", ME, 10),
    )
    a = account(now.devices[0], now, Page(), GIB)
    assert (a.foreign_bytes, a.hold_bytes) == (8 * GIB, 10 * GIB)


def test_a_worker_that_began_or_ended_during_the_reading_is_counted() -> None:
    begun = reading(gpu(free=14), reserved_after=reserved("GPU-a", ME, 10))
    assert account(begun.devices[0], begun, Page(), 0).room_bytes == 4 * GIB
    ended = reading(gpu(free=14), reserved_before=reserved("GPU-a", ME, 10))
    assert account(ended.devices[0], ended, Page(), 0).room_bytes == 4 * GIB


def test_a_foreign_tenant_that_grows_takes_room() -> None:
    assert uuid(decide(Request(8 * GIB), reading(gpu(free=12)))) == "GPU-a"
    assert "6.0 GiB room" in refusal(decide(Request(8 * GIB), reading(gpu(free=7))))


def test_a_new_process_asks_for_its_context_too() -> None:
    """17 GiB free for trials: with a context of its own 17 GiB do not fit, in ours they do."""
    now, ready = reading(gpu(free=18)), ledger_with(("GPU-a", 0, ME))
    ours = place(Request(17 * GIB), now, ready.snapshot(), LIMITS, now_seconds=NOW, process=ME)
    assert uuid(ours) == "GPU-a"
    new = place(Request(17 * GIB), now, ready.snapshot(), LIMITS, now_seconds=NOW)
    assert "17.0 GiB asked, 17.0 GiB room" in refusal(new)
    assert uuid(decide(Request(15 * GIB), reading(host()))) == HOST_UUID, "none on the host"


def test_an_observed_peak_above_the_promise_counts() -> None:
    ledger = ledger_with(("GPU-a", 2, ME))
    ledger.observe_peak(0, 15 * GIB)
    assert "8.0 GiB room" in refusal(decide(Request(9 * GIB), reading(gpu()), ledger))


def test_a_context_not_yet_visible_is_kept_free() -> None:
    ledger = ledger_with(("GPU-a", 2, ME), context_ready=False)
    a = account(gpu(), reading(gpu()), ledger.snapshot().on(GPU), 0)
    assert a.pending_bytes == CONTEXT_BOUND_BYTES
    ledger.context_up(0, NOW)
    same = account(gpu(), reading(gpu()), ledger.snapshot().on(GPU), 0)
    assert same.pending_bytes == CONTEXT_BOUND_BYTES, "the reading began before it was ready"
    later = replace(reading(gpu()), begun_seconds=NOW + 1)
    assert account(gpu(), later, ledger.snapshot().on(GPU), 0).pending_bytes == 0


def test_a_process_that_cannot_report_counts_by_the_drivers_word() -> None:
    ledger = ledger_with(("GPU-a", 2, OTHER_WORKER))
    device = gpu(free=12, processes=(DeviceProcess(OTHER_WORKER.pid, 12 * GIB, 12 * GIB),))
    a = account(device, reading(device), ledger.snapshot().on(GPU), 0)
    assert (a.hold_bytes, a.foreign_bytes) == (12 * GIB, 0)


def test_of_unknown_size_it_gets_a_gpu_to_itself() -> None:
    decision = decide(Request(None), reading(gpu()))
    assert isinstance(decision, Placement)
    assert decision.exclusive
    ledger = ledger_with(("GPU-a", 1, ME))
    assert "a device to itself asked" in refusal(decide(Request(None), reading(gpu()), ledger))


def test_nobody_joins_a_trial_of_unknown_size() -> None:
    ledger = Ledger()
    ledger.reserve(7, placed("GPU-a", 2 * GIB, exclusive=True), ME)
    assert "has GPU-a… (NVIDIA Stub) to itself" in refusal(
        decide(Request(GIB), reading(gpu()), ledger)
    )


def test_of_unknown_size_on_the_host_it_counts_by_cores() -> None:
    decision = decide(Request(None), reading(host()), ledger_with((HOST_UUID, 0, ME)))
    assert decision == placed(HOST_UUID, 0, name="cpu")


def test_the_last_attempt_gets_the_largest_device_to_itself() -> None:
    small, large = gpu("a", 8, 8), gpu("b", 24, 24)
    decision = decide(Request(None, alone=True), reading(small, large))
    assert isinstance(decision, Placement)
    assert (uuid(decision), decision.exclusive) == ("GPU-b", True)


def test_larger_than_any_device_is_refused_for_good_with_the_largest_that_would_fit() -> None:
    decision = decide(Request(40 * GIB), reading(gpu("a", 8, 8), gpu("b", 24, 1)))
    assert isinstance(decision, Refusal)
    assert decision.kind is RefusalKind.NEVER
    assert decision.reason == (
        "40.0 GiB asked, but at most 22.0 GiB fit on the largest device (GPU-b… (NVIDIA Stub))"
    )


def test_trials_spread_over_devices_then_take_the_tightest() -> None:
    ledger = ledger_with(("GPU-a", 1, ME))
    assert uuid(decide(Request(GIB), reading(gpu("a"), gpu("b")), ledger)) == "GPU-b"
    assert uuid(decide(Request(GIB), reading(gpu("a"), gpu("b", free=9)))) == "GPU-b"
    busy = gpu("b", free=9, utilisation=0.9)
    assert uuid(decide(Request(GIB), reading(gpu("a", utilisation=0.0), busy))) == "GPU-a"


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (None, "waiting: for the first reading of the devices"),
        (
            replace(reading(), error="driver gone"),
            "waiting: the devices cannot be read: driver gone",
        ),
        (
            replace(reading(gpu()), begun_seconds=NOW - 7),
            "waiting: the last reading of the devices is 7.0 s old, admission.stale_seconds=5",
        ),
    ],
)
def test_without_a_fresh_reading_nothing_is_admitted(now: Reading | None, reason: str) -> None:
    assert refusal(decide(Request(0), now)) == reason


def test_the_limit_of_trials_at_once() -> None:
    ledger = ledger_with(("GPU-a", 0, ME), ("GPU-a", 0, ME))
    assert refusal(decide(Request(0), reading(gpu()), ledger, max_concurrent_trials=2)) == (
        "waiting: all places are taken, admission.max_concurrent_trials=2"
    )


def test_a_device_that_has_failed_takes_nobody_and_refuses_nobody_for_good() -> None:
    silent = gpu("a", fault="Timeout")
    assert uuid(decide(Request(GIB), reading(silent, gpu("b")))) == "GPU-b"
    assert refusal(decide(Request(20 * GIB), reading(silent, gpu("b", 8, 8)))).startswith("waiting")
    assert refusal(decide(Request(GIB), reading(silent))) == (
        "waiting: GPU-a… (NVIDIA Stub) takes no new trial: Timeout"
    )


def test_what_fits_on_a_lost_device_alone_is_told_so() -> None:
    now = reading(gpu("a", fault="GPU is lost", lost=True), gpu("b", 8, 8))
    refused = decide(Request(20 * GIB), now)
    assert isinstance(refused, Refusal)
    assert refused.kind is RefusalKind.LOST
    assert refused.reason == (
        "waiting: 20.0 GiB asked, for which no device is left (GPU-a… (NVIDIA Stub): GPU is lost)"
    )
    alone = decide(Request(None, alone=True), now)
    assert uuid(alone) == "GPU-b", "the largest of those that are left"
    assert uuid(decide(Request(2 * GIB), now)) == "GPU-b"


def test_where_one_process_may_be_a_strangers_is_named_and_one_that_draws_is_not_one() -> None:
    stranger = DeviceProcess(STRANGER, GIB, GIB, "python", "ann")
    taken = gpu(max_processes=1, processes=(stranger,))
    assert refusal(decide(Request(GIB), reading(taken))) == (
        "waiting: GPU-a… (NVIDIA Stub) takes one process (its compute mode is EXCLUSIVE_PROCESS), "
        "and has pid 4121 (python, user ann)"
    )
    draws = replace(stranger, computes=False)
    assert uuid(decide(Request(GIB), reading(replace(taken, processes=(draws,))))) == "GPU-a"


def test_where_one_process_may_be_a_trial_whose_process_is_not_known_yet_is_one() -> None:
    ledger = Ledger()
    ledger.reserve(0, placed("GPU-a", GIB))
    assert "and has one of this sweep" in refusal(
        decide(Request(GIB), reading(gpu(max_processes=1)), ledger)
    )
    in_ours = ledger_with(("GPU-a", 1, ME))
    assert uuid(decide(Request(GIB), reading(gpu(max_processes=1)), in_ours)) == "GPU-a"


def test_a_device_takes_so_many_trials_and_the_next_goes_elsewhere() -> None:
    ledger = ledger_with(("GPU-a", 0, ME), ("GPU-a", 0, ME), ("GPU-b", 0, ME))
    two = {"max_per_gpu": 2, "max_concurrent_trials": None}
    full, roomy = gpu("a"), gpu("b", utilisation=1.0)
    assert uuid(decide(Request(0), reading(full, roomy), ledger, **two)) == "GPU-b"
    ledger.reserve(3, placed("GPU-b", 0), ME)
    refused = decide(Request(0), reading(full, roomy), ledger, **two)
    assert refused == Refusal(
        "waiting: all places are taken, admission.max_trials_per_device=2", RefusalKind.FULL
    )
    assert uuid(decide(Request(0), reading(full, host()), ledger, **two)) == HOST_UUID


def test_no_more_share_a_device_than_are_faster_together() -> None:
    ledger = ledger_with(("GPU-a", 0, ME), ("GPU-a", 0, ME), ("GPU-b", 0, ME))
    found = {"sharing": {GPU: Sharing(2, "a third made them 4 % slower together")}}
    assert uuid(decide(Request(0), reading(gpu("a"), gpu("b", free=9)), ledger, **found)) == "GPU-b"
    assert decide(Request(0), reading(gpu("a")), ledger, **found) == Refusal(
        "waiting: 2 trials share GPU-a… (NVIDIA Stub): a third made them 4 % slower together",
        RefusalKind.FULL,
    )
    one = {"sharing": {device_id("GPU-b"): Sharing(1, "a second made them 9 % slower together")}}
    assert refusal(decide(Request(0), reading(gpu("b")), ledger, **one)) == (
        "waiting: 1 trial is on GPU-b… (NVIDIA Stub): a second made them 9 % slower together"
    )
    assert "max_trials_per_device=2" in refusal(
        decide(Request(0), reading(gpu("a")), ledger, max_per_gpu=2)
    )


# --- of unknown size, beside others ---

JOINS = Request(None, RequestSource.PROBED, joins_at_bytes=5 * GIB)


def join(
    ledger: Ledger, *devices: DeviceSnapshot, process: ProcessId | None = None
) -> Placement | Refusal:
    """In a worker, unless the process is named."""
    promised = ledger.snapshot()
    return place(JOINS, reading(*devices), promised, LIMITS, now_seconds=NOW, process=process)


def beside(size: int, *, probing: bool = False) -> Ledger:
    """A trial that holds so many GiB of GPU-a."""
    ledger = Ledger()
    ledger.reserve(0, replace(placed("GPU-a", size * GIB), probing=probing), OTHER_WORKER)
    ledger.context_up(0, NOW - 1)
    return ledger


def test_of_unknown_size_it_joins_others_where_most_would_have_room() -> None:
    """Of 24 GiB: 17 are promised, and 1 is kept free, 1 for its context."""
    joined = join(beside(17), gpu())
    assert joined == replace(placed("GPU-a", 5 * GIB, name="NVIDIA Stub"), probing=True)
    assert refusal(join(beside(18), gpu())).startswith(
        "waiting: a device to itself asked, or 5.0 GiB beside others, as most trials held, 5.0 GiB "
        "room on GPU-a… (NVIDIA Stub)"
    )


def test_only_one_at_a_time_joins_until_it_has_settled() -> None:
    ledger = beside(5, probing=True)
    assert refusal(join(ledger, gpu())) == (
        "waiting: a device to itself asked, or 5.0 GiB beside others, as most trials held; another "
        "trial of unknown size has joined others on GPU-a… (NVIDIA Stub) and has not reported yet"
    )
    ledger.settle(0, 3 * GIB)
    assert uuid(join(ledger, gpu())) == "GPU-a"


def test_it_joins_nobody_in_whose_process_it_would_be() -> None:
    ledger = beside(5)
    assert isinstance(join(ledger, gpu(), process=OTHER_WORKER), Refusal)
    assert uuid(join(ledger, gpu("a"), gpu("b"), process=OTHER_WORKER)) == "GPU-b"


def test_an_empty_device_it_has_to_itself_and_of_others_the_roomiest() -> None:
    alone = join(beside(5), gpu("a"), gpu("b"))
    assert isinstance(alone, Placement)
    assert (uuid(alone), alone.exclusive, alone.probing) == ("GPU-b", True, False)
    ledger = beside(5)
    ledger.reserve(1, placed("GPU-b", 8 * GIB), ME)
    ledger.context_up(1, NOW - 1)
    assert uuid(join(ledger, gpu("b"), gpu("a"))) == "GPU-a", "a request that is known takes b"


def test_what_waits_for_memory_says_so_though_another_device_takes_no_more_trials() -> None:
    ledger = ledger_with(("GPU-a", 0, ME))
    now = reading(gpu("a"), gpu("b", free=3))
    assert "4.0 GiB asked, 2.0 GiB room on GPU-b" in refusal(
        decide(Request(4 * GIB), now, ledger, max_per_gpu=1)
    )


def test_the_host_takes_as_many_as_its_cores_allow() -> None:
    ledger = ledger_with((HOST_UUID, 0, ME))
    alone = {"max_on_host": 1, "max_concurrent_trials": None}
    assert refusal(decide(Request(0), reading(host()), ledger, **alone)) == (
        "waiting: all places are taken, as many as the cores allow (1)"
    )


def test_places_over_all_devices() -> None:
    devices = [device_id("GPU-a"), device_id("GPU-b"), HOST]
    limits = replace(LIMITS, max_concurrent_trials=None, max_per_gpu=16, max_on_host=4)
    assert limits.at_once(devices) == 36
    assert replace(limits, max_concurrent_trials=9).at_once(devices) == 9
    assert limits.at_once([]) == 1


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
    decide(Request(asked * GIB), now, ledger)  # checks the invariant when it admits


def test_an_idle_process_spares_one_trial_its_context() -> None:
    """The next that is placed before anybody has taken it asks for one."""
    ledger = ledger_with(("GPU-a", 0, OTHER_WORKER))
    ledger.release(0, NOW)
    idle: Idle = {(GPU,): [OTHER_WORKER]}
    now = reading(gpu(free=20))

    def ask_for(size: int) -> Placement | Refusal:
        promised = ledger.snapshot()
        return place(Request(size * GIB), now, promised, LIMITS, now_seconds=NOW, idle=idle)

    assert uuid(ask_for(19)) == "GPU-a"
    ledger.reserve(1, placed("GPU-a", 0))
    assert "18.0 GiB asked, 18.0 GiB room" in refusal(ask_for(18))


def test_accounts_are_kept_until_the_reading_or_the_promises_change() -> None:
    ledger, accounts = Ledger(), Accounts()

    def look(now: Reading) -> DeviceAccount:
        (found,) = accounts.of(now, ledger.snapshot(), 0).values()
        return found

    now = reading(gpu(free=20))
    assert look(now) is look(now)
    assert look(reading(gpu(free=8))).foreign_bytes == 16 * GIB
    before = look(now)
    ledger.reserve(1, placed("GPU-a", 5 * GIB))
    assert before.room_bytes - look(now).room_bytes == 5 * GIB + CONTEXT_BOUND_BYTES


# --- several devices for one trial ---


def test_devices_of_different_sizes_may_go_together_and_the_smallest_counts() -> None:
    small_and_large = reading(gpu(), gpu("b", total=8, free=8))
    decision = decide(Request(6 * GIB, n_devices=2), small_and_large)
    assert isinstance(decision, Placement)
    assert [share.reservation_bytes for share in decision.shares] == [6 * GIB, 6 * GIB]
    never = decide(Request(7 * GIB, n_devices=2), small_and_large)
    assert isinstance(never, Refusal)
    assert never.kind is RefusalKind.NEVER
    assert "at most 6.0 GiB fit on each of the 2 largest devices (GPU-b…" in never.reason


def test_of_unknown_size_it_has_all_of_each_device() -> None:
    decision = decide(Request(None, n_devices=2), reading(gpu(), gpu("b", total=8, free=8)))
    assert isinstance(decision, Placement)
    assert decision.exclusive
    assert [share.reservation_bytes for share in decision.shares] == [22 * GIB, 6 * GIB]


def test_a_set_of_devices_is_named_in_one_order_whatever_is_on_them() -> None:
    """Another order would be another worker."""
    for busy in "ab":
        ledger = ledger_with((f"GPU-{busy}", 2, OTHER_WORKER))
        decision = decide(Request(GIB, n_devices=2), reading(gpu(), gpu("b")), ledger)
        assert isinstance(decision, Placement)
        assert [device.uuid for device in decision.devices] == ["GPU-a", "GPU-b"]


def test_an_idle_process_of_just_these_devices_spares_a_trial_its_contexts() -> None:
    pair: tuple[DeviceId, ...] = (GPU, device_id("GPU-b"))
    ledger = Ledger()
    ledger.reserve(0, Placement(tuple(Share(device, "x", 0) for device in pair)), OTHER_WORKER)
    ledger.context_up(0, NOW - 1)
    ledger.release(0, NOW)
    now = reading(gpu(free=8), gpu("b", free=8), gpu("c", free=1))

    def ask(idle: Idle, size: int = 7) -> Placement | Refusal:
        request, promised = Request(size * GIB, n_devices=2), ledger.snapshot()
        return place(request, now, promised, LIMITS, now_seconds=NOW, idle=idle)

    decision = ask({pair: [OTHER_WORKER]})
    assert isinstance(decision, Placement)
    assert decision.devices == pair
    others: Idle = {(GPU, device_id("GPU-c")): [OTHER_WORKER]}
    for idle in ({}, others):
        assert "7.0 GiB asked on each of 2 devices, 7.0 GiB room" in refusal(ask(idle))
    ledger.reserve(1, Placement(tuple(Share(device, "x", 0) for device in pair)))
    assert "waiting" in refusal(ask({pair: [OTHER_WORKER]}, 6)), "another trial is to have it"


def test_what_a_trial_s_own_processes_hold_is_held_by_nobody_else() -> None:
    """Ranks of a trial: without them it would look as if strangers had come."""
    ledger = ledger_with(("GPU-a", 10, OTHER_WORKER))
    pid = OTHER_WORKER.pid
    ranks = (
        DeviceProcess(pid, GIB, GIB),
        DeviceProcess(4000, 6 * GIB, 6 * GIB, started_by=pid),
        DeviceProcess(4001, 5 * GIB, 5 * GIB, started_by=pid),
    )
    a = account(
        gpu(free=12, processes=ranks), reading(gpu()), ledger.snapshot().on(GPU), headroom_bytes=0
    )
    assert (a.foreign_bytes, a.hold_bytes) == (0, 12 * GIB)


def test_places_are_counted_by_trials() -> None:
    assert replace(LIMITS, max_per_gpu=16, gpus_per_trial=4).at_once([GPU] * 8) == 32
