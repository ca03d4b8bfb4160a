"""Devices as people see them: a bar of memory, and the figures beside it, fitted to a width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from automl.admission.refusals import GIB
from automl.record.texts import fit_line
from automl.running.display.console import cut_to_width, short_device_name
from automl.running.display.view import DeviceRow
from automl.trial import LOCAL_NODE

_PARTS = (("█", "green"), ("▒", "cyan"), ("▓", "yellow"), ("·", "dim"))
"""Ours, reserved, foreign, free: told apart without colours, too."""
_LEAST_BAR, _MOST_BAR = 8, 48


class DeviceLines:
    """A line a device, for a screen that shows much besides."""

    def __init__(self, rows: Sequence[DeviceRow]) -> None:
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        figures = [_short_figures(row) for row in self._rows]
        room = options.max_width - 4 - max(map(cell_len, figures))
        most = max(12, options.max_width // 3)
        if any(row.node != LOCAL_NODE for row in self._rows):  # whose bars give way to its name
            most = max(most, room + 2)
        names = [cut_to_width(device_label(row), most) for row in self._rows]
        widest = max(map(cell_len, names))
        room -= widest
        width = min(_MOST_BAR // 2, room)
        for row, name, told in zip(self._rows, names, figures, strict=True):
            line = Text(f"{name:<{widest}}  ", no_wrap=True, overflow="ellipsis")
            if row.fault is not None:
                line.append(fit_line(row.fault), "red")
            else:
                if width >= _LEAST_BAR:
                    line.append_text(bar(row, width)).append("  ")
                line.append(told)
            yield line


class DeviceHeader:
    """Two lines of one device: its names and figures, and its bar with what each part is."""

    def __init__(self, row: DeviceRow, n_beside: int = 0) -> None:
        """`n_beside`: columns that the widest of all devices takes beside its bar."""
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
        width = min(_MOST_BAR, options.max_width - beside)
        line = Text(no_wrap=True, overflow="ellipsis")
        if width >= _LEAST_BAR:
            line.append_text(bar(row, width)).append("  ")
        yield line.append_text(parts)


def n_columns_beside_bar(row: DeviceRow) -> int:
    """Of the second line of a `DeviceHeader`."""
    return cell_len(_parts_text(row).plain) + 2


def device_label(row: DeviceRow) -> str:
    """`0 A10 GPU-8f3a12b4`: CUDA's number where it is known, name and UUID as far as needed, and
    the node, where there are several."""
    number = "" if row.cuda_number is None else f"{row.cuda_number} "
    where = "" if row.node == LOCAL_NODE else f" of {row.node}"
    return fit_line(number + short_device_name(f"{row.name} {row.uuid}") + where)


def bar(row: DeviceRow, width: int) -> Text:
    """Whose the memory is. What is there at all has at least one place, as far as they go."""
    sizes = (row.ours_bytes, row.reserved_bytes, row.foreign_bytes, row.free_bytes)
    text = Text()
    for (mark, style), n in zip(_PARTS, bar_widths(sizes, width), strict=True):
        text.append(mark * n, style)
    return text


def bar_widths(sizes: Sequence[int], width: int) -> list[int]:
    """`width` places divided by size: none for nothing, and at least one for all else, which those
    that have most give."""
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
    """In columns; what a device does not tell is left blank."""
    load = "" if row.load is None else f"{row.load:.0%}"
    power = "" if row.power_watts is None else f"{row.power_watts:.0f} W"
    heat = "" if row.temperature_celsius is None else f"{row.temperature_celsius:.0f} °C"
    free = f"{row.free_bytes / GIB:5.1f}/{row.total_bytes / GIB:.1f} GiB free"
    return f"{free}  {load:>4}  {power:>5}  {heat:>6}".rstrip()
