"""The table of the trials that run, fitted to the width of a screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

from automl.admission.reasons import GIB
from automl.record.texts import fit_line
from automl.running.readable import clock, cut, params_text, short_device
from automl.running.view import RunningRow

_LEAST_PARAMS = 10
"""Columns of the screen in which params still say something."""
_NARROW = 18
"""Columns that a metric and its value are given before any other column of the table."""


class RunningTable:
    """The running trials. On a narrow screen the value of the study's metric stays whole: cut are
    first the params, then the other metrics; then columns are left out, then the metric's name."""

    def __init__(self, rows: Sequence[RunningRow], metric: str) -> None:
        self._rows, self._metric = rows, metric

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = {
            "trial": [str(row.number) for row in self._rows],
            "device": [short_device(row.device) for row in self._rows],
            "time": [clock(row.seconds) for row in self._rows],
            "step": ["" if row.step is None else str(row.step) for row in self._rows],
        }
        if any(row.peak_bytes for row in self._rows):
            columns["memory"] = [memory_text(row) for row in self._rows]
        least = max(_width(_report_text(r.metrics, self._metric, _NARROW)) for r in self._rows)
        for name in ("memory", "device", "time", "step"):
            if _room(columns, options.max_width) < least:
                columns.pop(name, None)
        room = _room(columns, options.max_width)
        params = [params_text(row.params) for row in self._rows]
        n_params = max(map(_width, ["params", *params]))
        n_report = min(room, max(least, room - 2 - n_params))
        reports = [_report_text(row.metrics, self._metric, n_report) for row in self._rows]
        columns["last report"] = reports
        n_report = max(map(_width, ["last report", *reports]))
        if (left := room - 2 - n_report) >= _LEAST_PARAMS:
            columns["params"] = [cut(text, left) for text in params]
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in columns:
            table.add_column(cut(name, room), no_wrap=True)
        for cells in zip(*columns.values(), strict=True):
            table.add_row(*cells)
        yield table


def memory_text(row: RunningRow) -> str:
    """`1.2/3.0 GiB`: what it holds at most, of what it asked for."""
    asked = "?" if row.request_bytes is None else f"{row.request_bytes / GIB:.1f}"
    return f"{row.peak_bytes / GIB:.1f}/{asked} GiB" if row.peak_bytes else ""


def _room(columns: Mapping[str, Sequence[str]], width: int) -> int:
    """What other columns leave of the width, for one more."""
    return width - sum(max(map(_width, [name, *cells])) + 2 for name, cells in columns.items())


def _width(text: str) -> int:
    return cell_len(text)


def _report_text(metrics: Mapping[str, float], first: str, width: int) -> str:
    """`val_loss 0.03  train_loss 0.02` on at most `width` columns.

    The study's metric comes before the others; its name is cut, its value is not.
    """
    texts = {name: f" {value:.4g}" for name, value in metrics.items()}
    value = texts.pop(first, "")
    begin = value and cut(fit_line(first), width - _width(value)) + value
    others = "  ".join(fit_line(name) + text for name, text in texts.items())
    if not begin:
        return cut(others, width)
    left = width - _width(begin) - 2
    return f"{begin}  {cut(others, left)}" if others and left > 1 else begin
