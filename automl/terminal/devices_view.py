"""Draws devices as people see them: a bar of memory and the figures beside it, fitted to a width.

`render_watch` shows all devices of the machine with the trials on them, from the views that sweeps
write. Reading the devices and finding the sweeps is done by the command `devices`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.constrain import Constrain
from rich.live import Live
from rich.table import Table
from rich.text import Text

from automl.admission.refusals import GIB, gib_text
from automl.devices.device_reading import DeviceProcess
from automl.record.texts import duration_text, fit_line
from automl.terminal.console import CommandConsole, cut_to_width, short_device_name
from automl.terminal.view import (
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

_PARTS = (("█", "green"), ("▒", "cyan"), ("▓", "yellow"), ("·", "dim"))
"""Marks and colours for our, reserved, foreign and free memory."""
_MIN_BAR_WIDTH, _MAX_BAR_WIDTH = 8, 48


class DeviceLines:
    """One line for each device, for a screen that shows much besides."""

    def __init__(self, rows: Sequence[DeviceRow]) -> None:
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        figures = [_short_figures(row) for row in self._rows]
        room = options.max_width - 4 - max(map(cell_len, figures))
        most = max(12, options.max_width // 3)
        if any(row.node != LOCAL_NODE for row in self._rows):  # node names come before bars
            most = max(most, room + 2)
        names = [cut_to_width(device_label(row), most) for row in self._rows]
        widest = max(map(cell_len, names))
        room -= widest
        width = min(_MAX_BAR_WIDTH // 2, room)
        for row, name, figure in zip(self._rows, names, figures, strict=True):
            line = Text(f"{name:<{widest}}  ", no_wrap=True, overflow="ellipsis")
            if row.fault is not None:
                line.append(fit_line(row.fault), "red")
            else:
                if width >= _MIN_BAR_WIDTH:
                    line.append_text(bar(row, width)).append("  ")
                line.append(figure)
            yield line


class DeviceHeader:
    """Two lines for one device: its names and figures, and its bar with the size of each part."""

    def __init__(self, row: DeviceRow, n_beside: int = 0) -> None:
        """Show this device. `n_beside`: columns beside the bar that the widest device takes."""
        self._row, self._n_beside = row, n_beside

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        row = self._row
        head = Text(no_wrap=True, overflow="ellipsis").append(device_label(row), "bold")
        yield head.append("".join(f"  {figure}" for figure in _figures(row)))
        if row.fault is not None:
            yield Text(f"takes no new trial: {fit_line(row.fault)}", "red")
            return
        parts = _parts_text(row)
        beside = max(self._n_beside, n_columns_beside_bar(row))
        width = min(_MAX_BAR_WIDTH, options.max_width - beside)
        line = Text(no_wrap=True, overflow="ellipsis")
        if width >= _MIN_BAR_WIDTH:
            line.append_text(bar(row, width)).append("  ")
        yield line.append_text(parts)


def n_columns_beside_bar(row: DeviceRow) -> int:
    """Return the columns that the second line of a `DeviceHeader` takes beside its bar."""
    return cell_len(_parts_text(row).plain) + 2


def device_label(row: DeviceRow) -> str:
    """Return the label of a device, such as `0 A10 GPU-8f3a12b4`.

    It has CUDA's number if known, as much of name and UUID as needed, and the node if there are
    several.
    """
    number = "" if row.cuda_number is None else f"{row.cuda_number} "
    where = "" if row.node == LOCAL_NODE else f" of {row.node}"
    return fit_line(number + short_device_name(f"{row.name} {row.uuid}") + where)


def bar(row: DeviceRow, width: int) -> Text:
    """Return the bar of a device's memory by owner. Every part above zero gets at least one place
    while there are enough."""
    sizes = (row.ours_bytes, row.reserved_bytes, row.foreign_bytes, row.free_bytes)
    text = Text()
    for (mark, style), n in zip(_PARTS, bar_widths(sizes, width), strict=True):
        text.append(mark * n, style)
    return text


def bar_widths(sizes: Sequence[int], width: int) -> list[int]:
    """Divide `width` places by size. What is above 0 gets at least one, from the largest."""
    total = max(1, sum(sizes))
    ends = [round(width * sum(sizes[: n + 1]) / total) for n in range(len(sizes))]
    found = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
    for n, size in enumerate(sizes):
        most = max(range(len(found)), key=found.__getitem__)
        if size > 0 and found[n] == 0 and found[most] > 1:
            found[n], found[most] = 1, found[most] - 1
    return found


def _parts_text(row: DeviceRow) -> Text:
    sizes = (row.ours_bytes, row.reserved_bytes, row.foreign_bytes, row.free_bytes)
    text = Text()
    words = ("ours", "reserved", "others", "free")
    for word, size, (_, style) in zip(words, sizes, _PARTS, strict=True):
        text.append("  " if text else "").append(f"{word} {size / GIB:.1f}", style)
    return text.append(f" of {row.total_bytes / GIB:.1f} GiB")


def _figures(row: DeviceRow) -> Iterator[str]:
    if row.nvml_number is not None:
        yield f"NVML {row.nvml_number}"
    if row.load is not None:
        yield f"load {row.load:.0%}"
    if row.power_watts is not None:
        yield f"{row.power_watts:.0f} W"
    if row.temperature_celsius is not None:
        yield f"{row.temperature_celsius:.0f} °C"


def _short_figures(row: DeviceRow) -> str:
    """Return the figures in columns. What a device does not tell is left blank."""
    load = "" if row.load is None else f"{row.load:.0%}"
    power = "" if row.power_watts is None else f"{row.power_watts:.0f} W"
    heat = "" if row.temperature_celsius is None else f"{row.temperature_celsius:.0f} °C"
    free = f"{row.free_bytes / GIB:5.1f}/{row.total_bytes / GIB:.1f} GiB free"
    return f"{free}  {load:>4}  {power:>5}  {heat:>6}".rstrip()


def memory_text(row: RunningRow) -> str:
    """Return the memory as `1.2/3.0 GiB`: the peak so far, and the request."""
    asked = "?" if row.request_bytes is None else f"{row.request_bytes / GIB:.1f}"
    return f"{row.peak_bytes / GIB:.1f}/{asked} GiB" if row.peak_bytes else ""


MAX_TRIALS, MAX_OTHERS, MAX_WAITING = 16, 4, 6
"""Most lines: of trials and of other processes for a device, of waiting trials for a study."""
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
    """Return whether the trial is on the device, by the UUIDs in the label of its placement."""
    if node_of_label(row.device) != device.node:
        return False
    if device.uuid == HOST_UUID:
        return kind_of_label(row.device) is DeviceKind.CPU
    return device.uuid in re.split(r"[ ,]+", row.device)


def _queue(sweep: SweepView, now: float) -> Iterator[Text]:
    text = Text(fit_line(sweep.study), "bold")
    n_running = len(sweep.running)
    text.append(f"  {sweep.progress_text}, {n_running} running", "not bold")
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
