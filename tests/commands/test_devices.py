"""`devices`: a row a device, and one for each process on it."""

from __future__ import annotations

import time

import pytest

from automl.admission.accounting.account import make_account
from automl.admission.accounting.ledger import DeviceLedgerPage
from automl.commands.command_call import CommandCall
from automl.commands.devices import print_accounts, print_nodes, run
from automl.config import (
    Config,
    DevicesConfig,
    ExecutionConfig,
    ExecutionKind,
    RayConfig,
)
from automl.devices.device_reading import DeviceProcess, DeviceReading, DeviceSnapshot, NodeReading
from automl.errors import AutoMLError
from tests.places import device_id

GIB = 2**30


def test_the_host_is_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(CommandCall(Config(devices=DevicesConfig("cpu")))) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["device", "total", "free"]
    assert row.startswith("host  cpu  ")


def test_a_cluster_of_its_own_is_not_started_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    config = Config(
        devices=DevicesConfig("cpu"),
        execution=ExecutionConfig(kind=ExecutionKind.ray),
        ray=RayConfig("local"),
    )
    assert run(CommandCall(config)) == 0
    _, row = capsys.readouterr().out.splitlines()
    assert row.startswith("host  cpu  "), "it would have this machine alone"


def test_of_nodes_each_row_has_the_name_and_who_cannot_read_says_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    process = DeviceProcess(41, 2 * GIB, 2 * GIB, "train", "ann")
    gpu = DeviceSnapshot(device_id("node-b/GPU-a"), "a GPU", 16 * GIB, 14 * GIB, 0.5, (process,))
    host = DeviceSnapshot(device_id("node-a/host"), "cpu", 16 * GIB, 8 * GIB, n_places=2)
    broken = DeviceReading(0.0, error="Driver\x1b[2J gone")
    found = [
        NodeReading(node, reading, time.monotonic())
        for node, reading in (
            ("node-c", broken),
            ("node-b", DeviceReading(0.0, (gpu,))),
            ("node-a", DeviceReading(0.0, (host,))),
        )
    ]
    print_nodes(found, Config())
    head, *rows, said = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["node", "device"]
    assert [row.split()[:2] for row in rows] == [
        ["node-a", "host"],
        ["node-b", "GPU-a"],
        ["node-b", "pid"],
    ]
    assert said == "node-c: the devices cannot be read: Driver�[2J gone"
    with pytest.raises(AutoMLError, match="node-c: Driver"):
        print_nodes(found[:1], Config())


def test_who_else_is_there_is_told_below_the_device(capsys: pytest.CaptureFixture[str]) -> None:
    others = (DeviceProcess(41, 2 * GIB, 2 * GIB, "train [x]\x1b[2J", "ann"), DeviceProcess(42))
    device = DeviceSnapshot(device_id("GPU-a"), "a GPU", 16 * GIB, 14 * GIB, 0.5, others)
    reading = DeviceReading(0.0, (device,))
    print_accounts([make_account(device, reading, DeviceLedgerPage(), headroom_bytes=GIB)])
    _, gpu, first, second = capsys.readouterr().out.splitlines()
    figures = ["16.0", "GiB", "14.0", "GiB", "2.0", "GiB", "0.0", "GiB", "13.0", "GiB", "50%"]
    assert gpu.split() == ["GPU-a", "a", "GPU", *figures]
    assert first.rstrip().split("  ", 2)[1] == "pid 41 (train [x]�[2J, user ann)"
    assert first.rstrip().endswith("2.0 GiB")
    assert second.rstrip() == "  pid 42 (?, user ?)"
