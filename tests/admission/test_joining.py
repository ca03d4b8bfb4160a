"""Trials of unknown size: alone on a device, or beside others one at a time."""

from __future__ import annotations

from dataclasses import replace

from automl.admission.accounting.ledger import Ledger
from automl.admission.placement_policy import place_trial
from automl.admission.refusals import GIB, AdmissionRefusal
from automl.devices.device_reading import DeviceSnapshot
from automl.trial import (
    HOST_UUID,
    Placement,
    ProcessId,
    RequestSource,
    ResourceRequest,
)
from tests.admission.placing import (
    LIMITS,
    ME,
    NOW,
    OTHER_WORKER,
    decide,
    gpu,
    host,
    ledger_with,
    reading,
    refusal,
    uuid,
)
from tests.places import placed


def test_of_unknown_size_it_gets_a_gpu_to_itself() -> None:
    decision = decide(ResourceRequest(None), reading(gpu()))
    assert isinstance(decision, Placement)
    assert decision.exclusive
    ledger = ledger_with(("GPU-a", 1, ME))
    assert "a device to itself asked" in refusal(
        decide(ResourceRequest(None), reading(gpu()), ledger)
    )


def test_nobody_joins_a_trial_of_unknown_size() -> None:
    ledger = Ledger()
    ledger.reserve(7, placed("GPU-a", 2 * GIB, exclusive=True), ME)
    assert "has GPU-a… (NVIDIA Stub) to itself" in refusal(
        decide(ResourceRequest(GIB), reading(gpu()), ledger)
    )


def test_of_unknown_size_on_the_host_it_counts_by_cores() -> None:
    decision = decide(ResourceRequest(None), reading(host()), ledger_with((HOST_UUID, 0, ME)))
    assert decision == placed(HOST_UUID, 0, name="cpu")


JOINS = ResourceRequest(None, RequestSource.PROBED, joins_at_bytes=5 * GIB)


def join(
    ledger: Ledger, *devices: DeviceSnapshot, process: ProcessId | None = None
) -> Placement | AdmissionRefusal:
    """In a worker, unless the process is named."""
    promised = ledger.snapshot()
    return place_trial(JOINS, reading(*devices), promised, LIMITS, now_seconds=NOW, process=process)


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
    assert isinstance(join(ledger, gpu(), process=OTHER_WORKER), AdmissionRefusal)
    assert uuid(join(ledger, gpu("a"), gpu("b"), process=OTHER_WORKER)) == "GPU-b"


def test_an_empty_device_it_has_to_itself_and_of_others_the_roomiest() -> None:
    alone = join(beside(5), gpu("a"), gpu("b"))
    assert isinstance(alone, Placement)
    assert (uuid(alone), alone.exclusive, alone.probing) == ("GPU-b", True, False)
    ledger = beside(5)
    ledger.reserve(1, placed("GPU-b", 8 * GIB), ME)
    ledger.context_up(1, NOW - 1)
    assert uuid(join(ledger, gpu("b"), gpu("a"))) == "GPU-a", "a request that is known takes b"
