"""Whose the memory of a device is: by one sweep, and by all that are at work."""

from __future__ import annotations

from automl.admission.accounting.account import make_account
from automl.admission.accounting.ledger import Ledger
from automl.devices.device_reading import DeviceProcess, DeviceReading, DeviceSnapshot
from automl.terminal.view import DeviceRow, add_sweep_memory, device_row, foreign_processes
from tests.places import device_id, placed, process_id

GB = 1000**3
GPU = device_id("GPU-a")
RANK = DeviceProcess(11, 2 * GB, 2 * GB, started_by=10)


def test_what_is_held_reserved_foreign_and_free_is_all_there_is() -> None:
    """Ours hold 6 of the 10 that were promised; another sweep was promised 3 more."""
    ledger, ours = Ledger(), process_id(10)
    ledger.reserve(1, placed("GPU-a", 10 * GB), ours)
    ledger.context_up(1, -1.0)
    processes = (DeviceProcess(10, 4 * GB, 4 * GB), RANK, DeviceProcess(12, 5 * GB, 5 * GB))
    device = DeviceSnapshot(GPU, "a GPU", 24 * GB, 13 * GB, 0.5, processes, power_watts=70.0)
    held = {(GPU, ours): 3 * GB}
    reading = DeviceReading(0.0, (device,), held, held, {(GPU, "other"): 3 * GB})
    row = device_row(make_account(device, reading, ledger.snapshot().on(GPU), 0), reading)
    sizes = (row.ours_bytes, row.reserved_bytes, row.foreign_bytes, row.free_bytes)
    assert sizes == (6 * GB, 7 * GB, 5 * GB, 6 * GB)
    assert (row.load, row.power_watts, row.temperature_celsius) == (0.5, 70.0, None)
    assert row.pids == (10, 11)


def test_who_only_looks_takes_the_sweeps_word_for_what_is_theirs() -> None:
    seen = DeviceRow("GPU-a", "x", 24, foreign_bytes=11, reserved_bytes=3)
    sweeps = [
        DeviceRow("GPU-a", "x", 24, ours_bytes=4, reserved_bytes=2, pids=(10, 11)),
        DeviceRow("GPU-a", "x", 24, ours_bytes=2, reserved_bytes=5, pids=(12,)),
        DeviceRow("GPU-b", "x", 24, ours_bytes=9, pids=(13,)),
    ]
    row = add_sweep_memory(seen, sweeps)
    assert (row.ours_bytes, row.foreign_bytes, row.reserved_bytes) == (6, 5, 5)
    processes = [DeviceProcess(pid, pid) for pid in (10, 11, 12, 13, 14)]
    assert [p.pid for p in foreign_processes(processes, row)] == [14, 13]


def test_nobody_has_more_of_a_device_than_is_taken() -> None:
    """A picture is a second old: its trial has ended since."""
    seen = DeviceRow("GPU-a", "x", 24, foreign_bytes=1)
    row = add_sweep_memory(seen, [DeviceRow("GPU-a", "x", 24, ours_bytes=9)])
    assert (row.ours_bytes, row.foreign_bytes) == (1, 0)
