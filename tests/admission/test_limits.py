"""How many trials may be at once: of the sweep, on a device, on the host."""

from __future__ import annotations

from dataclasses import replace

from automl.admission.governor import SharingLimit
from automl.admission.refusals import GIB, AdmissionRefusal, RefusalKind
from automl.trial import (
    HOST_UUID,
    LOCAL_HOST,
    ResourceRequest,
)
from tests.admission.placing import (
    GPU,
    LIMITS,
    ME,
    decide,
    gpu,
    host,
    ledger_with,
    reading,
    refusal,
    uuid,
)
from tests.places import device_id, placed


def test_the_limit_of_trials_at_once() -> None:
    ledger = ledger_with(("GPU-a", 0, ME), ("GPU-a", 0, ME))
    assert refusal(decide(ResourceRequest(0), reading(gpu()), ledger, max_concurrent_trials=2)) == (
        "waiting: all places are taken, admission.max_concurrent_trials=2"
    )


def test_a_device_takes_so_many_trials_and_the_next_goes_elsewhere() -> None:
    ledger = ledger_with(("GPU-a", 0, ME), ("GPU-a", 0, ME), ("GPU-b", 0, ME))
    two = {"max_per_gpu": 2, "max_concurrent_trials": None}
    full, roomy = gpu("a"), gpu("b", utilisation=1.0)
    assert uuid(decide(ResourceRequest(0), reading(full, roomy), ledger, **two)) == "GPU-b"
    ledger.reserve(3, placed("GPU-b", 0), ME)
    refused = decide(ResourceRequest(0), reading(full, roomy), ledger, **two)
    assert refused == AdmissionRefusal(
        "waiting: all places are taken, admission.max_trials_per_device=2", RefusalKind.FULL
    )
    assert uuid(decide(ResourceRequest(0), reading(full, host()), ledger, **two)) == HOST_UUID


def test_no_more_share_a_device_than_are_faster_together() -> None:
    ledger = ledger_with(("GPU-a", 0, ME), ("GPU-a", 0, ME), ("GPU-b", 0, ME))
    found = {"sharing": {GPU: SharingLimit(2, "a third made them 4 % slower together")}}
    assert (
        uuid(decide(ResourceRequest(0), reading(gpu("a"), gpu("b", free=9)), ledger, **found))
        == "GPU-b"
    )
    assert decide(ResourceRequest(0), reading(gpu("a")), ledger, **found) == AdmissionRefusal(
        "waiting: 2 trials share GPU-a… (NVIDIA Stub): a third made them 4 % slower together",
        RefusalKind.FULL,
    )
    one = {
        "sharing": {device_id("GPU-b"): SharingLimit(1, "a second made them 9 % slower together")}
    }
    assert refusal(decide(ResourceRequest(0), reading(gpu("b")), ledger, **one)) == (
        "waiting: 1 trial is on GPU-b… (NVIDIA Stub): a second made them 9 % slower together"
    )
    assert "max_trials_per_device=2" in refusal(
        decide(ResourceRequest(0), reading(gpu("a")), ledger, max_per_gpu=2)
    )


def test_what_waits_for_memory_says_so_though_another_device_takes_no_more_trials() -> None:
    ledger = ledger_with(("GPU-a", 0, ME))
    now = reading(gpu("a"), gpu("b", free=3))
    assert "4.0 GiB asked, 2.0 GiB room on GPU-b" in refusal(
        decide(ResourceRequest(4 * GIB), now, ledger, max_per_gpu=1)
    )


def test_the_host_takes_as_many_as_its_cores_allow() -> None:
    ledger = ledger_with((HOST_UUID, 0, ME))
    alone = {"max_on_host": 1, "max_concurrent_trials": None}
    assert refusal(decide(ResourceRequest(0), reading(host()), ledger, **alone)) == (
        "waiting: all places are taken, as many as the cores allow (1)"
    )


def test_places_over_all_devices() -> None:
    devices = [device_id("GPU-a"), device_id("GPU-b"), LOCAL_HOST]
    limits = replace(LIMITS, max_concurrent_trials=None, max_per_gpu=16, max_on_host=4)
    assert limits.at_once(devices) == 36
    assert replace(limits, max_concurrent_trials=9).at_once(devices) == 9
    assert limits.at_once([]) == 1


def test_places_are_counted_by_trials() -> None:
    assert replace(LIMITS, max_per_gpu=16, gpus_per_trial=4).at_once([GPU] * 8) == 32
