"""`devices`: a row a device, and one for each process on it."""

from __future__ import annotations

import pytest

from automl.admission.account import account
from automl.admission.ledger import Page
from automl.commands.devices import print_accounts, run
from automl.config import Config, DevicesConfig, DevicesKind, ExecutionConfig, ExecutionKind
from automl.devices.device import DeviceProcess, DeviceSnapshot, Reading
from tests.places import device_id

GIB = 2**30


def test_the_host_is_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Config(devices=DevicesConfig(kind=DevicesKind.host)), "") == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["device", "total", "free"]
    assert row.startswith("host  cpu  ")


def test_of_a_cluster_this_machine_is_shown_and_that_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    devices = DevicesConfig(kind=DevicesKind.host)
    assert run(Config(devices=devices, execution=ExecutionConfig(kind=ExecutionKind.ray)), "") == 0
    *_, row, said = capsys.readouterr().out.splitlines()
    assert row.startswith("host  cpu  ")
    assert said.startswith("of this machine; those of the other nodes are shown while a sweep")


def test_who_else_is_there_is_told_below_the_device(capsys: pytest.CaptureFixture[str]) -> None:
    others = (DeviceProcess(41, 2 * GIB, 2 * GIB, "train [x]\x1b[2J", "ann"), DeviceProcess(42))
    device = DeviceSnapshot(device_id("GPU-a"), "a GPU", 16 * GIB, 14 * GIB, 0.5, others)
    reading = Reading(0.0, (device,))
    print_accounts([account(device, reading, Page(), headroom_bytes=GIB)])
    _, gpu, first, second = capsys.readouterr().out.splitlines()
    figures = ["16.0", "GiB", "14.0", "GiB", "2.0", "GiB", "0.0", "GiB", "13.0", "GiB", "50%"]
    assert gpu.split() == ["GPU-a", "a", "GPU", *figures]
    assert first.rstrip().split("  ", 2)[1] == "pid 41 (train [x]�[2J, user ann)"
    assert first.rstrip().endswith("2.0 GiB")
    assert second.rstrip() == "  pid 42 (?, user ?)"
