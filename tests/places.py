"""Devices, processes and placements for tests, in short."""

from __future__ import annotations

from automl.trial import LOCAL_HOST, LOCAL_NODE, DeviceId, DeviceShare, Placement, ProcessId


def device_id(name: str) -> DeviceId:
    """`GPU-a` of this machine, or `node-1/GPU-a`."""
    node, _, uuid = name.rpartition("/")
    return DeviceId(node or LOCAL_NODE, uuid)


def process_id(pid: int, node: str = LOCAL_NODE) -> ProcessId:
    return ProcessId(node, pid)


def placed(device: str, size_bytes: int, *, name: str = "x", exclusive: bool = False) -> Placement:
    """On one device."""
    return Placement((DeviceShare(device_id(device), name, size_bytes),), exclusive=exclusive)


ON_HOST = Placement((DeviceShare(LOCAL_HOST, "cpu", 0),))
