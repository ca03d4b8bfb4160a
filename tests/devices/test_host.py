"""The machine as a device."""

import os

import psutil

from automl.devices.host import HostReader, own_memory_bytes, usable_cores
from automl.trial import LOCAL_HOST


def test_the_host_has_the_machines_memory_and_our_cores() -> None:
    (host,) = HostReader().read()
    assert host.address == LOCAL_HOST
    assert 0 < host.total_bytes <= psutil.virtual_memory().total
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)


def test_memory_that_we_take_is_seen() -> None:
    before = own_memory_bytes()
    taken = b"\1" * (64 * 1024**2)
    assert own_memory_bytes() - before > len(taken) // 2
