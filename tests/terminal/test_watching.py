"""What `devices watch=true` shows, and how it ends."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace

import pytest

from automl.devices.device_reading import DeviceProcess
from automl.terminal.console import CommandConsole
from automl.terminal.devices_view import (
    MAX_OTHERS,
    MAX_TRIALS,
    MAX_WAITING,
    WatchedDevice,
    WatchSnapshot,
    limit_to_machine,
    pace_text,
    show_once,
    show_until_stopped,
)
from automl.terminal.view import DeviceRow, RunningRow, SweepView, WaitingRow

GIB = 1024**3
LARGE, SMALL = "GPU-aaaa1111", "GPU-bbbb2222"
TRIAL = RunningRow(
    7, f"Stub A10 {LARGE}", {"lr": 0.1}, 12.0, 3, {"val_loss": 0.5}, 3 * GIB, 2 * GIB, 0.42
)
SWEEP = SweepView(
    study="calm-crane",
    directory="studies/calm-crane",
    time=100.0,
    n_trials=20,
    metric="val_loss",
    counts={"finished": 3},
    running=(TRIAL,),
    waiting=(WaitingRow(9, "waiting: 9.0 GiB asked, 1.0 GiB room"),),
    devices=(DeviceRow(LARGE, "Stub A10", 24 * GIB, 2 * GIB, GIB, pids=(10,)),),
)
DEVICES = (
    WatchedDevice(DeviceRow(SMALL, "Stub T4", 8 * GIB), ()),
    WatchedDevice(
        DeviceRow(LARGE, "Stub A10", 24 * GIB, foreign_bytes=6 * GIB),
        (
            DeviceProcess(10, 2 * GIB, name="python"),
            DeviceProcess(41, 4 * GIB, name="x[b]\x1b", user="ann"),
        ),
    ),
)


def lines(watched: WatchSnapshot, width: int = 80) -> list[str]:
    file = io.StringIO()
    show_once(CommandConsole(file=file, width=width, markup=False, highlight=False), watched)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_each_device_with_its_trials_and_who_else_is_there_then_the_queue() -> None:
    shown = lines(WatchSnapshot(101.0, DEVICES, [SWEEP], "studies"))
    assert shown[0] == "Stub T4 GPU-bbbb2222"
    at = shown.index("Stub A10 GPU-aaaa1111")
    assert "ours 2.0  reserved 1.0  others 4.0  free 17.0 of 24.0 GiB" in shown[at + 1]
    assert shown[at + 2].split() == (
        ["trial", "7", "calm-crane", "2.0/3.0", "GiB", "12", "s", "step", "3", "0.42", "s/step"]
    )
    assert shown[at + 3] == "  4.0 GiB held by pid 41 (x[b]�, user ann)"
    assert shown[at + 4 :] == [
        "",
        "calm-crane  3/20 trials, 1 running",
        "  trial 9 waiting: 9.0 GiB asked, 1.0 GiB room",
    ]


def test_a_trial_of_several_devices_stands_at_each() -> None:
    both = replace(TRIAL, device=f"Stub A10 {LARGE}, Stub T4 {SMALL}")
    shown = lines(WatchSnapshot(101.0, DEVICES, [replace(SWEEP, running=(both,))], "studies"))
    assert sum("trial 7" in line for line in shown) == 2


def test_what_runs_here_is_shown_though_its_sweep_names_this_machine() -> None:
    """A sweep of a shared study names its machine, and a sweep on a cluster that this machine is a
    node of."""
    here, there = (replace(TRIAL, number=n, device=f"{TRIAL.device} of box-{n}") for n in (1, 2))
    rows = tuple(replace(SWEEP.devices[0], node=f"box-{n}") for n in (1, 2))
    sweep = limit_to_machine(replace(SWEEP, running=(here, there), devices=rows), "box-1")
    shown = lines(WatchSnapshot(101.0, DEVICES, [sweep], "studies"))
    at = shown.index("Stub A10 GPU-aaaa1111")
    assert "ours 2.0  reserved 1.0  others 4.0" in shown[at + 1]
    assert [line.split()[1] for line in shown if line.startswith("  trial")][:1] == ["1"]
    assert not any("trial 2" in line for line in shown)


def test_what_is_too_much_is_counted() -> None:
    many = replace(
        SWEEP,
        running=tuple(replace(TRIAL, number=n) for n in range(MAX_TRIALS + 2)),
        waiting=SWEEP.waiting * (MAX_WAITING + 3),
    )
    tenants = tuple(DeviceProcess(100 + n, GIB) for n in range(MAX_OTHERS + 4))
    shown = lines(WatchSnapshot(101.0, [replace(DEVICES[1], processes=tenants)], [many], "studies"))
    for more in ("2 more trials", "4 more processes", "3 more waiting"):
        assert f"  … and {more}" in shown


def test_an_old_picture_and_devices_that_do_not_answer_are_told() -> None:
    shown = lines(WatchSnapshot(130.0, DEVICES, [SWEEP], "studies", "Timeout"))
    assert "Timeout" in shown
    assert "calm-crane  3/20 trials, 1 running, as of 30 s ago" in shown


def test_where_nobody_is_at_work_it_says_so() -> None:
    assert lines(WatchSnapshot(1.0, [], [], "here")) == [
        "study.dir=here: no sweep is at work there"
    ]


@pytest.mark.parametrize(
    ("pace", "text"), [(None, ""), (0.42, "0.42 s/step"), (0.04, "25 steps/s"), (0.0, "")]
)
def test_a_pace_reads_well_above_and_below_a_tenth_of_a_second(
    pace: float | None, text: str
) -> None:
    assert pace_text(pace) == text


def test_ctrl_c_ends_it_and_leaves_the_last_picture() -> None:
    def two() -> Iterator[WatchSnapshot]:
        yield WatchSnapshot(1.0, [], [], "first")
        yield WatchSnapshot(1.0, [], [], "second")

    slept: list[None] = []

    def sleep() -> None:
        slept.append(None)
        if len(slept) == 2:
            raise KeyboardInterrupt

    file = io.StringIO()
    console = CommandConsole(file=file, width=80, force_terminal=True, color_system=None)
    show_until_stopped(console, two(), sleep)
    assert "second" in file.getvalue()
    assert file.getvalue().endswith("\x1b[?25h"), "the cursor is shown again"
