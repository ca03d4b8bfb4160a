"""Devices on a screen: bars that add up, lines that fit."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console, RenderableType

from automl.terminal.devices_view import DeviceHeader, DeviceLines, bar_widths, device_label
from automl.terminal.view import DeviceRow

GIB = 1024**3
ROW = DeviceRow(
    "GPU-8f3a12b4-0000-0000-0000-000000000001",
    "NVIDIA GeForce RTX 2080 Ti",
    24 * GIB,
    ours_bytes=6 * GIB,
    reserved_bytes=3 * GIB,
    foreign_bytes=3 * GIB,
    load=0.87,
    power_watts=211.4,
    temperature_celsius=64.0,
    nvml_number=1,
    cuda_number=0,
)
SILENT = replace(ROW, load=None, power_watts=None, temperature_celsius=None, cuda_number=None)


def shown(renderable: RenderableType, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert all(cell_len(line) <= width for line in lines), lines
    return [line.rstrip() for line in lines]


@given(st.lists(st.integers(0, 2**40), min_size=4, max_size=4), st.integers(8, 60))
def test_a_bar_has_its_width_and_shows_all_that_is_there(sizes: list[int], width: int) -> None:
    found = bar_widths(sizes, width)
    if sum(sizes):
        assert sum(found) == width
    assert min(found) >= 0
    assert all((n > 0) >= (size > 0) for n, size in zip(found, sizes, strict=True))
    assert all(n == 0 for n, size in zip(found, sizes, strict=True) if size == 0)


def test_a_bar_has_a_part_for_each_that_has_memory() -> None:
    head, line = shown(DeviceHeader(ROW), 120)
    assert head == "0 RTX 2080 Ti GPU-8f3a12b4  NVML 1  load 87%  211 W  64 °C"
    assert line.split(maxsplit=1)[1] == "ours 6.0  reserved 3.0  others 3.0  free 12.0 of 24.0 GiB"
    bar = line.split(maxsplit=1)[0]
    assert [bar.count(mark) for mark in "█▒▓·"] == [12, 6, 6, 24]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_it_fits_the_screen_and_says_the_memory(width: int) -> None:
    lines = shown(DeviceLines([ROW, SILENT]), width)
    assert len(lines) == 2
    if width >= 60:
        assert all("12.0/24.0 GiB free" in line for line in lines)
    assert len(shown(DeviceHeader(ROW), width)) == 2


def test_what_a_device_does_not_tell_is_left_blank() -> None:
    told, silent = shown(DeviceLines([ROW, SILENT]), 100)
    assert told.endswith("GiB free   87%  211 W   64 °C")
    assert silent.endswith("GiB free")
    assert shown(DeviceHeader(SILENT), 100)[0] == "RTX 2080 Ti GPU-8f3a12b4  NVML 1"


def test_a_fault_stands_in_place_of_the_bar() -> None:
    lost = replace(ROW, fault="GPU is lost [x]")
    assert shown(DeviceLines([lost]), 80) == ["0 RTX 2080 Ti GPU-8f3a12b4  GPU is lost [x]"]
    assert shown(DeviceHeader(lost), 80)[1] == "takes no new trial: GPU is lost [x]"


def test_the_host_is_a_device_too() -> None:
    assert device_label(DeviceRow("host", "cpu", GIB)) == "cpu host"


@pytest.mark.parametrize("width", [60, 80, 160])
def test_nodes_are_told_apart_by_their_whole_names(width: int) -> None:
    """The bars give way where there is no room for both."""
    nodes = ("gpu-cluster-node-00017", "gpu-cluster-node-00018")
    hosts = [DeviceRow("host", "cpu", 64 * GIB, node=node) for node in nodes]
    for line, node in zip(shown(DeviceLines(hosts), width), nodes, strict=True):
        assert line.startswith(f"cpu host of {node}  ")
        assert line.endswith("64.0/64.0 GiB free")
        assert ("····" in line) == (width > 60)
