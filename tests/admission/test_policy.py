"""Placing, with plain values: who is let in, where, and what a refusal says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from automl.admission.accounting.idle_processes import Idle
from automl.admission.accounting.ledger import Ledger
from automl.admission.placement_policy import place_trial
from automl.admission.refusals import GIB, AdmissionRefusal, RefusalKind
from automl.devices.device_reading import DeviceProcess, DeviceReading
from automl.trial import (
    HOST_UUID,
    Placement,
    ResourceRequest,
)
from tests.admission.placing import (
    GPU,
    LIMITS,
    ME,
    NOW,
    OTHER_WORKER,
    STRANGER,
    decide,
    gpu,
    host,
    ledger_with,
    reading,
    refusal,
    uuid,
)
from tests.places import placed


def test_a_request_that_fits_is_placed_with_its_bytes_reserved() -> None:
    decision = decide(ResourceRequest(3 * GIB), reading(gpu()))
    assert decision == placed("GPU-a", 3 * GIB, name="NVIDIA Stub")


def test_a_new_process_asks_for_its_context_too() -> None:
    """17 GiB free for trials: with a context of its own 17 GiB do not fit, in ours they do."""
    now, ready = reading(gpu(free=18)), ledger_with(("GPU-a", 0, ME))
    ours = place_trial(
        ResourceRequest(17 * GIB), now, ready.snapshot(), LIMITS, now_seconds=NOW, process=ME
    )
    assert uuid(ours) == "GPU-a"
    new = place_trial(ResourceRequest(17 * GIB), now, ready.snapshot(), LIMITS, now_seconds=NOW)
    assert "17.0 GiB asked, 17.0 GiB room" in refusal(new)
    assert uuid(decide(ResourceRequest(15 * GIB), reading(host()))) == HOST_UUID, "none on the host"


def test_the_last_attempt_gets_the_largest_device_to_itself() -> None:
    small, large = gpu("a", 8, 8), gpu("b", 24, 24)
    decision = decide(ResourceRequest(None, alone=True), reading(small, large))
    assert isinstance(decision, Placement)
    assert (uuid(decision), decision.exclusive) == ("GPU-b", True)


def test_larger_than_any_device_is_refused_for_good_with_the_largest_that_would_fit() -> None:
    decision = decide(ResourceRequest(40 * GIB), reading(gpu("a", 8, 8), gpu("b", 24, 1)))
    assert isinstance(decision, AdmissionRefusal)
    assert decision.kind is RefusalKind.NEVER
    assert decision.reason == (
        "40.0 GiB asked, but at most 22.0 GiB fit on the largest device (GPU-b… (NVIDIA Stub))"
    )


def test_trials_spread_over_devices_then_take_the_tightest() -> None:
    ledger = ledger_with(("GPU-a", 1, ME))
    assert uuid(decide(ResourceRequest(GIB), reading(gpu("a"), gpu("b")), ledger)) == "GPU-b"
    assert uuid(decide(ResourceRequest(GIB), reading(gpu("a"), gpu("b", free=9)))) == "GPU-b"
    busy = gpu("b", free=9, utilisation=0.9)
    assert uuid(decide(ResourceRequest(GIB), reading(gpu("a", utilisation=0.0), busy))) == "GPU-a"


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
            "waiting: the last reading of the devices is 7.0 s old, and one older than 5 s "
            "admits no trial",
        ),
    ],
)
def test_without_a_fresh_reading_nothing_is_admitted(
    now: DeviceReading | None, reason: str
) -> None:
    assert refusal(decide(ResourceRequest(0), now)) == reason


def test_a_device_that_has_failed_takes_nobody_and_refuses_nobody_for_good() -> None:
    silent = gpu("a", fault="Timeout")
    assert uuid(decide(ResourceRequest(GIB), reading(silent, gpu("b")))) == "GPU-b"
    assert refusal(decide(ResourceRequest(20 * GIB), reading(silent, gpu("b", 8, 8)))).startswith(
        "waiting"
    )
    assert refusal(decide(ResourceRequest(GIB), reading(silent))) == (
        "waiting: GPU-a… (NVIDIA Stub) takes no new trial: Timeout"
    )


def test_what_fits_on_a_lost_device_alone_is_told_so() -> None:
    now = reading(gpu("a", fault="GPU is lost", lost=True), gpu("b", 8, 8))
    refused = decide(ResourceRequest(20 * GIB), now)
    assert isinstance(refused, AdmissionRefusal)
    assert refused.kind is RefusalKind.LOST
    assert refused.reason == (
        "waiting: 20.0 GiB asked, for which no device is left (GPU-a… (NVIDIA Stub): GPU is lost)"
    )
    alone = decide(ResourceRequest(None, alone=True), now)
    assert uuid(alone) == "GPU-b", "the largest of those that are left"
    assert uuid(decide(ResourceRequest(2 * GIB), now)) == "GPU-b"


def test_where_one_process_may_be_a_strangers_is_named_and_one_that_draws_is_not_one() -> None:
    stranger = DeviceProcess(STRANGER, GIB, GIB, "python", "ann")
    taken = gpu(max_processes=1, processes=(stranger,))
    assert refusal(decide(ResourceRequest(GIB), reading(taken))) == (
        "waiting: GPU-a… (NVIDIA Stub) takes one process (its compute mode is EXCLUSIVE_PROCESS), "
        "and has pid 4121 (python, user ann)"
    )
    draws = replace(stranger, computes=False)
    assert (
        uuid(decide(ResourceRequest(GIB), reading(replace(taken, processes=(draws,))))) == "GPU-a"
    )


def test_where_one_process_may_be_a_trial_whose_process_is_not_known_yet_is_one() -> None:
    ledger = Ledger()
    ledger.reserve(0, placed("GPU-a", GIB))
    assert "and has one of this sweep" in refusal(
        decide(ResourceRequest(GIB), reading(gpu(max_processes=1)), ledger)
    )
    in_ours = ledger_with(("GPU-a", 1, ME))
    assert uuid(decide(ResourceRequest(GIB), reading(gpu(max_processes=1)), in_ours)) == "GPU-a"


def test_an_idle_process_spares_one_trial_its_context() -> None:
    """The next that is placed before anybody has taken it asks for one."""
    ledger = ledger_with(("GPU-a", 0, OTHER_WORKER))
    ledger.release(0, NOW)
    idle: Idle = {(GPU,): [OTHER_WORKER]}
    now = reading(gpu(free=20))

    def ask_for(size: int) -> Placement | AdmissionRefusal:
        promised = ledger.snapshot()
        return place_trial(
            ResourceRequest(size * GIB), now, promised, LIMITS, now_seconds=NOW, idle=idle
        )

    assert uuid(ask_for(19)) == "GPU-a"
    ledger.reserve(1, placed("GPU-a", 0))
    assert "18.0 GiB asked, 18.0 GiB room" in refusal(ask_for(18))
