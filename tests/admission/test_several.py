"""Several devices for one trial."""

from __future__ import annotations

from automl.admission.accounting.idle_processes import Idle
from automl.admission.accounting.ledger import Ledger
from automl.admission.placement_policy import place_trial
from automl.admission.refusals import GIB, AdmissionRefusal, RefusalKind
from automl.trial import (
    DeviceId,
    DeviceShare,
    Placement,
    ResourceRequest,
)
from tests.admission.placing import (
    GPU,
    LIMITS,
    NOW,
    OTHER_WORKER,
    decide,
    gpu,
    ledger_with,
    reading,
    refusal,
)
from tests.places import device_id


def test_devices_of_different_sizes_may_go_together_and_the_smallest_counts() -> None:
    small_and_large = reading(gpu(), gpu("b", total=8, free=8))
    decision = decide(ResourceRequest(6 * GIB, n_devices=2), small_and_large)
    assert isinstance(decision, Placement)
    assert [share.reservation_bytes for share in decision.shares] == [6 * GIB, 6 * GIB]
    never = decide(ResourceRequest(7 * GIB, n_devices=2), small_and_large)
    assert isinstance(never, AdmissionRefusal)
    assert never.kind is RefusalKind.NEVER
    assert "at most 6.0 GiB fit on each of the 2 largest devices (GPU-b…" in never.reason


def test_of_unknown_size_it_has_all_of_each_device() -> None:
    decision = decide(ResourceRequest(None, n_devices=2), reading(gpu(), gpu("b", total=8, free=8)))
    assert isinstance(decision, Placement)
    assert decision.exclusive
    assert [share.reservation_bytes for share in decision.shares] == [22 * GIB, 6 * GIB]


def test_a_set_of_devices_is_named_in_one_order_whatever_is_on_them() -> None:
    """Another order would be another worker."""
    for busy in "ab":
        ledger = ledger_with((f"GPU-{busy}", 2, OTHER_WORKER))
        decision = decide(ResourceRequest(GIB, n_devices=2), reading(gpu(), gpu("b")), ledger)
        assert isinstance(decision, Placement)
        assert [device.uuid for device in decision.devices] == ["GPU-a", "GPU-b"]


def test_an_idle_process_of_just_these_devices_spares_a_trial_its_contexts() -> None:
    pair: tuple[DeviceId, ...] = (GPU, device_id("GPU-b"))
    ledger = Ledger()
    ledger.reserve(
        0, Placement(tuple(DeviceShare(device, "x", 0) for device in pair)), OTHER_WORKER
    )
    ledger.context_up(0, NOW - 1)
    ledger.release(0, NOW)
    now = reading(gpu(free=8), gpu("b", free=8), gpu("c", free=1))

    def ask(idle: Idle, size: int = 7) -> Placement | AdmissionRefusal:
        request, promised = ResourceRequest(size * GIB, n_devices=2), ledger.snapshot()
        return place_trial(request, now, promised, LIMITS, now_seconds=NOW, idle=idle)

    decision = ask({pair: [OTHER_WORKER]})
    assert isinstance(decision, Placement)
    assert decision.devices == pair
    others: Idle = {(GPU, device_id("GPU-c")): [OTHER_WORKER]}
    for idle in ({}, others):
        assert "7.0 GiB asked on each of 2 devices, 7.0 GiB room" in refusal(ask(idle))
    ledger.reserve(1, Placement(tuple(DeviceShare(device, "x", 0) for device in pair)))
    assert "waiting" in refusal(ask({pair: [OTHER_WORKER]}, 6)), "another trial is to have it"
