"""How much of a GPU each running trial may take."""

from __future__ import annotations

from automl.admission.accounting.device_table import DeviceTable
from automl.admission.accounting.ledger import Ledger
from automl.admission.memory_caps import Caps, memory_caps
from automl.devices.device_reading import DeviceReading, DeviceSnapshot
from automl.trial import HOST_UUID, LOCAL_HOST, DeviceId, Placement
from tests.places import device_id, placed, process_id

GB = 1000**3
A, B = device_id("GPU-a"), device_id("GPU-b")


def ledger_of(*placements: Placement) -> Ledger:
    """As reserved, in processes whose contexts are up and seen."""
    ledger = Ledger()
    for key, placement in enumerate(placements):
        ledger.reserve(key, placement, process_id(key))
        ledger.context_up(key, 0.5)
    return ledger


def reading(*devices: DeviceId, free: int = 24 * GB) -> DeviceReading:
    return DeviceReading(1.0, tuple(DeviceSnapshot(d, "x", 24 * GB, free) for d in devices))


def compute_caps(now: DeviceReading, ledger: Ledger) -> Caps:
    promised = ledger.snapshot()
    return memory_caps(DeviceTable().update(now, promised, GB), promised, promised.pages)


def test_who_is_alone_is_not_capped() -> None:
    ledger = ledger_of(placed("GPU-a", 5 * GB), placed("GPU-b", 24 * GB, exclusive=True))
    assert compute_caps(reading(A, B), ledger) == {0: {}, 1: {}}


def test_neighbours_may_take_what_is_promised_to_nobody_besides_their_promise() -> None:
    ledger = ledger_of(placed("GPU-a", 5 * GB), placed("GPU-a", 8 * GB), placed("GPU-b", GB))
    found = compute_caps(reading(A, B), ledger)
    assert found == {0: {A: 15 * GB}, 1: {A: 18 * GB}, 2: {}}


def test_what_one_took_of_it_is_no_others() -> None:
    ledger = ledger_of(placed("GPU-a", 5 * GB), placed("GPU-a", 8 * GB))
    ledger.observe_peak(0, 12 * GB)
    assert compute_caps(reading(A), ledger) == {0: {A: 15 * GB}, 1: {A: 11 * GB}}


def test_strangers_leave_the_promise() -> None:
    ledger = ledger_of(placed("GPU-a", 5 * GB), placed("GPU-a", 0))
    found = compute_caps(reading(A, free=2 * GB), ledger)
    assert found == {0: {A: 5 * GB}, 1: {A: 1}}, "0 would be no cap"


def test_on_the_host_nothing_is_capped() -> None:
    ledger = ledger_of(placed(HOST_UUID, 5 * GB), placed(HOST_UUID, GB))
    assert compute_caps(reading(LOCAL_HOST), ledger) == {0: {}, 1: {}}
