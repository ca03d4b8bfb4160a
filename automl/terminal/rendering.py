"""Renders a view for people: the block of the live table and of `status`, and the plain line."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from automl.record.study_files import StudyFiles
from automl.record.texts import counted, duration_text, fit_line
from automl.terminal.console import cell_width, cut_to_width, params_text, short_device_name
from automl.terminal.devices_view import DeviceLines, memory_text
from automl.terminal.view import BestRow, EnsembleRow, RunningRow, SweepView
from automl.trial import TrialState

_MIN_PARAMS_WIDTH = 10
"""Fewest columns of the screen in which params are worth showing."""
_MIN_METRIC_WIDTH = 18
"""Columns that a metric and its value get before any other column of the table."""


class RunningTable:
    """The table of running trials, fitted to the screen's width.

    On a narrow screen the value of the study's metric stays whole. The params are cut first, then
    the other metrics; then columns are left out, and last the metric's name is cut.
    """

    def __init__(self, rows: Sequence[RunningRow], metric: str) -> None:
        self._rows, self._metric = rows, metric

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = {
            "trial": [str(row.number) for row in self._rows],
            "device": [short_device_name(row.device) for row in self._rows],
            "time": [duration_text(row.seconds) for row in self._rows],
            "step": ["" if row.step is None else str(row.step) for row in self._rows],
        }
        if any(row.peak_bytes for row in self._rows):
            columns["memory"] = [memory_text(row) for row in self._rows]
        least = max(
            cell_width(_report_text(r.metrics, self._metric, _MIN_METRIC_WIDTH)) for r in self._rows
        )
        for name in ("memory", "device", "time", "step"):
            if _room(columns, options.max_width) < least:
                columns.pop(name, None)
        room = _room(columns, options.max_width)
        params = [params_text(row.params) for row in self._rows]
        n_params = max(map(cell_width, ["params", *params]))
        n_report = min(room, max(least, room - 2 - n_params))
        reports = [_report_text(row.metrics, self._metric, n_report) for row in self._rows]
        columns["last report"] = reports
        n_report = max(map(cell_width, ["last report", *reports]))
        if (left := room - 2 - n_report) >= _MIN_PARAMS_WIDTH:
            columns["params"] = [cut_to_width(text, left) for text in params]
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in columns:
            table.add_column(cut_to_width(name, room), no_wrap=True)
        for cells in zip(*columns.values(), strict=True):
            table.add_row(*cells)
        yield table


def _room(columns: Mapping[str, Sequence[str]], width: int) -> int:
    """Return the width that the other columns leave for one more."""
    return width - sum(max(map(cell_width, [name, *cells])) + 2 for name, cells in columns.items())


def _report_text(metrics: Mapping[str, float], first: str, width: int) -> str:
    """Return `val_loss 0.03  train_loss 0.02` on at most `width` columns.

    The study's metric comes before the others. Its name is cut if need be, its value is not.
    """
    texts = {name: f" {value:.4g}" for name, value in metrics.items()}
    value = texts.pop(first, "")
    begin = value and cut_to_width(fit_line(first), width - cell_width(value)) + value
    others = "  ".join(fit_line(name) + text for name, text in texts.items())
    if not begin:
        return cut_to_width(others, width)
    left = width - cell_width(begin) - 2
    return f"{begin}  {cut_to_width(others, left)}" if others and left > 1 else begin


_BLOCKS = "▁▂▃▄▅▆▇█"
_LOG_RATIO = 5.0
"""Ratio of the first value to the last from which a line is drawn on a logarithmic scale."""


class BestSoFarLine:
    """A line of blocks that draws the best value so far; better is higher.

    It is left out where the output's encoding has no blocks.
    """

    def __init__(self, values: Sequence[float]) -> None:
        self._values = values

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        try:
            _BLOCKS.encode(options.encoding)
        except (UnicodeEncodeError, LookupError):
            return
        if len(self._values) > 1:
            text = Text(no_wrap=True, overflow="ellipsis")
            text.append(best_blocks(self._values), "green")
            yield text.append(f"  {self._values[0]:.5g} → {self._values[-1]:.5g}", "dim")


def best_blocks(values: Sequence[float]) -> str:
    """Return a block for each value: the lowest for the first one, the highest for the best."""
    first, last = values[0], values[-1]
    if min(first, last) > 0 and max(first, last) > _LOG_RATIO * min(first, last):
        values = [*map(math.log, values)]
        first, last = values[0], values[-1]
    if first == last:
        return _BLOCKS[0] * len(values)
    # Halves, since the difference of two finite numbers may be infinite.
    width = last / 2 - first / 2
    shares = [(value / 2 - first / 2) / width for value in values]
    return "".join(_BLOCKS[min(7, int(8 * share))] for share in shares)


_STATE_STYLES = {
    TrialState.FINISHED: "green",
    TrialState.PRUNED: "yellow",
    TrialState.FAILED: "red",
    TrialState.RUNNING: "cyan",
    TrialState.INTERRUPTED: "magenta",
    TrialState.PAUSED: "blue",
}
_MAX_RUNNING_ROWS = 12
_MAX_WAITING_ROWS = 3
_MAX_FAMILY_ROWS = 8
_MAX_FRONT_ROWS = 10


def render_view(view: SweepView) -> RenderableType:
    """Return the whole view as one block, readable from 80 columns on."""
    parts: list[RenderableType] = [*_head(view)]
    if view.ensemble is not None:
        parts.extend(_ensemble(view.ensemble))
    if view.devices and view.ended is None:
        parts.append(DeviceLines(view.devices))
    if view.running:
        rows = [replace(r, number=view.shown(r.number)) for r in view.running[:_MAX_RUNNING_ROWS]]
        parts.append(RunningTable(rows, view.metric))
        if (more := len(view.running) - _MAX_RUNNING_ROWS) > 0:
            parts.append(Text(f"… and {more} more running", "dim"))
    if view.ended is None:
        parts.extend(_waiting_lines(view))
    if view.trouble:
        trouble = fit_line(view.trouble)
        parts.append(Text(f"MLflow: {trouble}; {_undelivered_text(view)}", "red"))
    return Group(*parts)


def _head(view: SweepView) -> Iterator[RenderableType]:
    yield Text.assemble((fit_line(view.study), "bold"), "  ", (_time_text(view), "dim"))
    grid = Table.grid(padding=(0, 2))
    grid.add_row(
        ProgressBar(total=1.0, completed=view.share_done, width=16),
        Text(view.progress, no_wrap=True),
        _counts_text(view),
    )
    yield grid
    if view.best is not None:
        yield Text(f"best {_best_text(view, view.best)}", "green")
    if view.front:
        yield from _front(view.front)
    elif view.best is not None:
        yield BestSoFarLine(view.best_so_far)
    if view.reason is not None:
        yield Text(f"no more trials: {fit_line(view.reason)}", "yellow")


def _front(rows: Sequence[BestRow]) -> Iterator[RenderableType]:
    names = list(dict.fromkeys(name for row in rows for name in row.values))
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("front", *names):
        table.add_column(fit_line(name), justify="right", no_wrap=True)
    table.add_column("params")
    for row in rows[:_MAX_FRONT_ROWS]:
        values = (f"{row.values[name]:.5g}" for name in names)
        table.add_row(str(row.number), *values, params_text(row.params))
    yield table
    if (more := len(rows) - _MAX_FRONT_ROWS) > 0:
        yield Text(f"… and {more} more on the front: all are in the report", "dim")


def _ensemble(row: EnsembleRow) -> Iterator[RenderableType]:
    yield Text(ensemble_text(row), "green")
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("family")
    for name in ("best", "in the ensemble"):
        table.add_column(name, justify="right", no_wrap=True)
    for family in row.families[:_MAX_FAMILY_ROWS]:
        weight = f"{family.weight:.0%}" if family.weight else "–"
        table.add_row(fit_line(family.name), f"{family.best:.5g}", weight)
    yield table


def ensemble_text(row: EnsembleRow) -> str:
    """Return the text `ensemble loss 0.27 of 4 models`."""
    models = counted(row.n_models, "model")
    return f"ensemble {fit_line(row.metric)} {row.value:.5g} of {models}"


def _waiting_lines(view: SweepView) -> Iterator[Text]:
    rows = view.waiting
    for row in rows[:_MAX_WAITING_ROWS]:
        who = "next trial" if row.number is None else f"trial {view.shown(row.number)}"
        reason = fit_line(row.reason)  # the reason names other users' processes
        yield Text(f"{who} {reason}", "dim" if row.as_it_should else "yellow")
    if (more := len(rows) - _MAX_WAITING_ROWS) > 0:
        yield Text(f"… and {more} more waiting", "yellow")


def _counts_text(view: SweepView) -> Text:
    text = Text()
    for state, style in _STATE_STYLES.items():
        if n := view.counts.get(state.value, 0):
            text.append("  " if text else "").append(f"{n} {state.value}", style)
    return text


def _time_text(view: SweepView) -> str:
    text = duration_text(view.seconds)
    if view.seconds_left is not None and view.ended is None:
        text += f", about {duration_text(view.seconds_left)} left"
    if view.earlier_seconds:
        text += f"; {duration_text(view.earlier_seconds)} in earlier sweeps"
    return text


def _undelivered_text(view: SweepView) -> str:
    events = counted(view.n_undelivered, "event")
    return f"{events} wait{'s' * (view.n_undelivered == 1)}"


def progress_line(view: SweepView) -> str:
    """Return the whole view in one line."""
    counts = ", ".join(f"{n} {state}" for state, n in view.counts.items() if n)
    line = view.progress_text
    line += f" ({counts}), {_time_text(view)}" if counts else f", {_time_text(view)}"
    if view.best is not None:
        line += f"; best {_best_text(view, view.best)}"
    if view.ensemble is not None:
        line += f"; {ensemble_text(view.ensemble)}"
    first = view.waiting[0] if view.waiting else None
    if first is not None and not first.as_it_should:
        who = "the next trial" if first.number is None else f"trial {view.shown(first.number)}"
        line += f"; {who} {first.reason}"
    if view.trouble:
        line += f"; MLflow: {view.trouble}; {_undelivered_text(view)}"
    return line


def _best_text(view: SweepView, best: BestRow) -> str:
    text = best_text(view.metric, replace(best, number=view.shown(best.number)))
    return text if len(view.front) < 2 else f"{text}, the knee of a front of {len(view.front)}"


def best_text(metric: str, best: BestRow) -> str:
    """Return the text `val_loss 0.27 by trial 3 (lr 0.1)`, with all values of several metrics."""
    values = f"{fit_line(metric)} {best.value_text}"
    if best.values:
        values = ", ".join(f"{fit_line(n)} {value:.5g}" for n, value in best.values.items())
    returned = "" if best.reported is None else f" (returned; reported {best.reported:.5g})"
    return f"{values}{returned} by trial {best.number} ({params_text(best.params)})"


def failure_lines(view: SweepView) -> Iterator[str]:
    """Yield the failed trials by cause, and where to read on."""
    if not view.failures:
        return
    yield "failed by cause"
    for row in view.failures:
        log = StudyFiles(Path(view.directory)).log(row.first)
        see = f", see {os.path.relpath(log)}" if log.exists() else ""
        where = f"(first trial {view.shown(row.first)}{see})"
        yield f"  {counted(row.n, 'time')}  {fit_line(row.cause)} {where}"
    n_told = sum(row.n for row in view.failures)
    if (n_more := view.counts.get(TrialState.FAILED.value, 0) - n_told) > 0:
        yield f"  and {n_more} more of other causes"
