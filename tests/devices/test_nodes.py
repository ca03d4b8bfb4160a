"""Devices of several machines as one reading."""

from __future__ import annotations

from dataclasses import replace

import pytest

from automl.devices.device_reader import take_reading
from automl.devices.device_reading import (
    DeviceReadError,
    DeviceReading,
    DeviceSnapshot,
    HostState,
    NodeReading,
    NodesReader,
    address_on_node,
    close_unclaimed_devices,
    merge_node_readings,
)
from automl.trial import LOCAL_HOST, LOCAL_NODE, DeviceId, ProcessId

GB = 1000**3


def reading_of(
    node: str, begun: float, *, error: str | None = None, heard: float = 0.0
) -> NodeReading:
    host = DeviceSnapshot(LOCAL_HOST, "cpu", 8 * GB, 5 * GB)
    gpu = DeviceSnapshot(DeviceId(LOCAL_NODE, "GPU-a"), "A10", 24 * GB, 20 * GB)
    held = {(DeviceId(node, "host"), ProcessId(node, 7)): GB}
    own = DeviceReading(
        begun, (host, gpu), held, held, hosts={LOCAL_NODE: HostState(5 * GB)}, error=error
    )
    if error is not None:
        own = DeviceReading(begun, error=error)
    return NodeReading(node, address_on_node(own, node, 3), heard)


def test_addresses_name_the_node_and_hosts_say_how_many_they_train() -> None:
    reading = merge_node_readings([reading_of("a", 10.0), reading_of("b", 9.0)], 10.0 - 10.0)
    found = [(d.address.node, d.address.uuid, d.n_places) for d in reading.devices]
    assert found == [("a", "host", 3), ("a", "GPU-a", None), ("b", "host", 3), ("b", "GPU-a", None)]
    assert {place.node for place, _ in reading.reserved_after} == {"a", "b"}
    assert reading.begun_seconds == 9.0, "as old as the oldest"


def test_each_node_tells_of_its_machine_beside_its_gpus() -> None:
    """Its main memory, and its cores whether or not its host trains."""
    told = reading_of("a", 1.0).reading
    there = [NodeReading("a", told, 1e12), reading_of("b", 2.0, heard=1e12)]
    found = take_reading(NodesReader(lambda: there), dict).hosts
    assert found == {node: HostState(5 * GB, n_places=3) for node in ("a", "b")}
    bad = reading_of("b", 2.0, error="NVML: unknown")
    assert merge_node_readings([there[0], bad], 0.0).hosts.keys() == {"a"}
    unknown = replace(told, hosts={})
    assert merge_node_readings([NodeReading("a", unknown, 0.0)], 0.0).hosts == {}
    assert address_on_node(DeviceReading(0.0, told.devices), "c", 3).hosts == {}
    assert close_unclaimed_devices(told, {}).hosts == told.hosts, "whoever holds it"


def test_a_node_that_says_nothing_takes_nothing_new_and_makes_no_other_old() -> None:
    silent, speaking = reading_of("a", 1.0, heard=1.0), reading_of("b", 5.0, heard=5.0)
    reading = merge_node_readings([silent, speaking], 5.0)
    faults = {d.address.node: d.fault for d in reading.devices}
    assert faults == {"a": "node a said nothing for 4 s", "b": None}
    assert reading.begun_seconds == 5.0


def test_a_node_that_cannot_read_is_left_out() -> None:
    good, bad = reading_of("a", 1.0), reading_of("b", 2.0, error="NVML: unknown")
    assert {d.address.node for d in merge_node_readings([good, bad], 0.0).devices} == {"a"}
    assert merge_node_readings([bad], 0.0).error == "b: NVML: unknown"
    assert merge_node_readings([], 0.0).error == "no node is there"


def test_devices_may_come_and_go() -> None:
    there: list[NodeReading] = []
    reader = NodesReader(lambda: there)
    assert not reader.addresses
    with pytest.raises(DeviceReadError, match="no node is there"):
        reader.read()
    there.append(reading_of("a", 1.0, heard=1e12))
    assert {address.node for address in reader.addresses} == {"a"}
    assert take_reading(reader, dict).reserved_before, "as the node saw it"


def test_of_a_shared_cluster_what_is_held_takes_trials() -> None:
    one = reading_of("a", 1.0).reading
    gpu, host = DeviceId("a", "GPU-a"), DeviceId("a", "host")
    found = {
        name: [
            (d.max_processes, d.n_places, d.closed is None)
            for d in close_unclaimed_devices(one, held).devices
        ]
        for name, held in {
            "nothing": {},
            "a GPU": {DeviceId("a", "gpu-A"): 1},
            "shares": {host: 2, DeviceId("b", "GPU-a"): 1},
            "more than it has": {gpu: 1, host: 9},
        }.items()
    }
    assert found == {
        "nothing": [(None, 0, False), (0, None, False)],
        "a GPU": [(None, 0, False), (None, None, True)],
        "shares": [(None, 2, True), (0, None, False)],
        "more than it has": [(None, 3, True), (None, None, True)],
    }
