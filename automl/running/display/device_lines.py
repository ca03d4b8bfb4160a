"""Draws devices as people see them: a bar of memory and the figures beside it, fitted to a
width."""

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
"""Marks and colours for our, reserved, foreign and free memory. The marks differ without colours,
too."""
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
        """Show this device. `n_beside` is the number of columns beside the bar that the widest
        device takes."""
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
    """Return `width` places divided by size. Nothing gets none, all else at least one, taken from
    the largest."""
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
