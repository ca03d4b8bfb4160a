"""Shows all devices of the machine with the trials on them, from the views that sweeps write.

The module only shows. Reading the devices and finding the sweeps is done by the command `devices`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.table import Table
from rich.text import Text

from automl.admission.refusals import gib_text
from automl.devices.device_reading import DeviceProcess
from automl.record.texts import fit_line
from automl.running.display.console import CommandConsole, duration_text
from automl.running.display.device_lines import DeviceHeader, n_columns_beside_bar
from automl.running.display.rendering import memory_text
from automl.running.display.view import (
    DeviceRow,
    RunningRow,
    SweepView,
    add_sweep_memory,
    foreign_processes,
)
from automl.trial import (
    HOST_UUID,
    LOCAL_NODE,
    DeviceKind,
    kind_of_label,
    label_seen_from,
    node_of_label,
)

MAX_TRIALS, MAX_OTHERS, MAX_WAITING = 16, 4, 6
"""Lines of waiting trials for each study. `MAX_TRIALS` and `MAX_OTHERS` limit the lines for each
device."""
STALE_VIEW_SECONDS = 5.0
"""Age in seconds from which a view is shown with its age."""


@dataclass(frozen=True)
class WatchedDevice:
    """A device as it was read, and the processes on it."""

    row: DeviceRow
    processes: Sequence[DeviceProcess]


@dataclass(frozen=True)
class WatchSnapshot:
    """All that is shown at one time (`time.time()`)."""

    time: float
    devices: Sequence[WatchedDevice]
    sweeps: Sequence[SweepView]
    """Views of the running sweeps in `folder`."""
    folder: str
    trouble: str | None = None
    """Why the devices are not shown as they are now."""


def render_watch(watched: WatchSnapshot) -> RenderableType:
    """Return the snapshot as one block, readable from 80 columns on."""
    parts: list[RenderableType] = []
    shown = [_with_sweeps(device, watched.sweeps) for device in watched.devices]
    n_beside = max((n_columns_beside_bar(device.row) for device in shown), default=0)
    for device in shown:
        parts.append(DeviceHeader(device.row, n_beside))
        parts.extend(_tenant_lines(device, watched.sweeps))
    if watched.trouble is not None:
        parts.append(Text(fit_line(watched.trouble), "red"))
    for sweep in watched.sweeps:
        parts.extend(_queue(sweep, watched.time))
    if not watched.sweeps:
        parts.append(Text(f"study.dir={watched.folder}: no sweep is at work there", "dim"))
    return Group(*parts)


def show_once(console: CommandConsole, watched: WatchSnapshot) -> None:
    """Print the snapshot as lines that stay."""
    console.print(render_watch(watched))


def show_until_stopped(
    console: CommandConsole, snapshots: Iterator[WatchSnapshot], sleep: Callable[[], object]
) -> None:
    """Show each snapshot in the place of the last, until Ctrl-C. The last one stays."""
    live = Live(console=console, auto_refresh=False)
    try:
        with live:
            for watched in snapshots:
                # `^C` behind the last line must not break the line in two.
                shown = Constrain(render_watch(watched), console.width - len("^C^C"))
                live.update(shown, refresh=True)
                sleep()
    except KeyboardInterrupt:
        return


def limit_to_machine(sweep: SweepView, name: str) -> SweepView:
    """Return a sweep's view with the devices of the named machine as that machine reads them,
    without a node.

    A sweep of a shared study names its machine, and a sweep on a cluster names every node.
    """
    running = (replace(row, device=label_seen_from(row.device, name)) for row in sweep.running)
    devices = (replace(d, node=LOCAL_NODE) if d.node == name else d for d in sweep.devices)
    return replace(sweep, running=tuple(running), devices=tuple(devices))


def _with_sweeps(device: WatchedDevice, sweeps: Sequence[SweepView]) -> WatchedDevice:
    rows = [row for sweep in sweeps for row in sweep.devices]
    return replace(device, row=add_sweep_memory(device.row, rows))


def _tenant_lines(device: WatchedDevice, sweeps: Sequence[SweepView]) -> Iterator[RenderableType]:
    row = device.row
    here = [(s, r) for s in sweeps for r in s.running if _is_on(r, row)]
    if here:
        yield _trials(here[:MAX_TRIALS])
    yield from _more(len(here) - MAX_TRIALS, "trials")
    tenants = foreign_processes(device.processes, row)
    for p in tenants[:MAX_OTHERS]:
        used = "" if p.used_bytes is None else f"{gib_text(p.used_bytes)} held by "
        who = f"{used}pid {p.pid} ({p.name or '?'}, user {p.user or '?'})"
        yield Text(f"  {fit_line(who)}", "yellow", no_wrap=True, overflow="ellipsis")
    yield from _more(len(tenants) - MAX_OTHERS, "processes")
    yield Text("")


def _trials(here: Sequence[tuple[SweepView, RunningRow]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    for justify in ("left", "left", "right", "right", "right", "right"):
        table.add_column(justify=justify, no_wrap=True, overflow="ellipsis")
    for sweep, row in here:
        step = "" if row.step is None else f"step {row.step}"
        table.add_row(
            f"  trial {sweep.shown(row.number)}",
            fit_line(sweep.study),
            memory_text(row) or _asked(row),
            duration_text(row.seconds),
            step,
            pace_text(row.seconds_per_step),
        )
    return table


def _asked(row: RunningRow) -> str:
    return "" if row.request_bytes is None else f"{gib_text(row.request_bytes)} asked"


def pace_text(seconds_per_step: float | None) -> str:
    """Return the pace as `0.42 s/step`, or for short steps as `25 steps/s`."""
    if seconds_per_step is None:
        return ""
    if seconds_per_step >= 0.1:
        return f"{seconds_per_step:.3g} s/step"
    return f"{1 / seconds_per_step:.3g} steps/s" if seconds_per_step > 0 else ""


def _is_on(row: RunningRow, device: DeviceRow) -> bool:
    """Return whether the trial is on the device, by the label of its placement, which has UUIDs or
    the CPU."""
    if node_of_label(row.device) != device.node:
        return False
    if device.uuid == HOST_UUID:
        return kind_of_label(row.device) is DeviceKind.CPU
    return device.uuid in re.split(r"[ ,]+", row.device)


def _queue(sweep: SweepView, now: float) -> Iterator[Text]:
    text = Text(fit_line(sweep.study), "bold")
    n_running = len(sweep.running)
    text.append(f"  {sweep.progress} trials, {n_running} running", "not bold")
    if (age := now - sweep.time) > STALE_VIEW_SECONDS:
        text.append(f", as of {duration_text(age)} ago", "magenta not bold")
    yield text
    for row in sweep.waiting[:MAX_WAITING]:
        who = "next trial" if row.number is None else f"trial {sweep.shown(row.number)}"
        style = "dim" if row.as_it_should else "yellow"
        yield Text(f"  {who} {fit_line(row.reason)}", style)
    yield from _more(len(sweep.waiting) - MAX_WAITING, "waiting")


def _more(n: int, what: str) -> Iterator[Text]:
    if n > 0:
        yield Text(f"  … and {n} more {what}", "dim")
