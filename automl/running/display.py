"""What people look at: the live table in a terminal, plain lines elsewhere, the closing table."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.constrain import Constrain
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from automl.admission.policy import ALL_TAKEN, DeviceAccount, gib
from automl.record.files import StudyFiles
from automl.record.texts import fit, fit_line
from automl.running.view import BestRow, RunningRow, SweepView, WaitingRow
from automl.trial import Params, ParamValue, TrialState

_STATE_STYLES = {
    TrialState.FINISHED: "green",
    TrialState.PRUNED: "yellow",
    TrialState.FAILED: "red",
    TrialState.RUNNING: "cyan",
    TrialState.INTERRUPTED: "magenta",
}
_MAX_RUNNING_ROWS = 12
_MAX_WAITING_ROWS = 3
_LEAST_PARAMS = 10
"""Columns of the screen in which params still say something."""
_NARROW = 18
"""Columns that a metric and its value are given before any other column of the table."""
_ANY_WIDTH = 10_000
_PLAIN_SECONDS = 10.0
"""Plain output repeats the progress line at least this often while trials run."""


class Display(Protocol):
    """Shows a sweep's views as they come."""

    def __enter__(self) -> Display: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def show(self, view: SweepView) -> None: ...

    def say(self, line: str) -> None:
        """One line that stays."""

    def end(self) -> None:
        """No view follows; what is printed from now on stays."""


class _Console(Console):
    """rich ends the program when whoever reads stdout has gone; here that is the caller's to do."""

    def on_broken_pipe(self) -> None:
        raise


def open_display() -> Display:
    """The live table where stdout is a terminal, else plain lines."""
    console = _console()
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)


def _console() -> Console:
    """Nothing that a stranger wrote is taken for markup."""
    return _Console(highlight=False, markup=False, emoji=False)


class LiveDisplay:
    """A table that is redrawn in place, and gone at the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> LiveDisplay:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def show(self, view: SweepView) -> None:
        # A `^C` that the terminal shows behind the last line must not break that line in two: the
        # table would be erased one line too low.
        width = self._console.width - len("^C^C")
        self._live.update(Constrain(render(view), width), refresh=True)

    def say(self, line: str) -> None:
        self._console.print(Text(fit(line)), soft_wrap=True)  # a path or command is copied whole

    def end(self) -> None:
        self._live.stop()


class PlainDisplay:
    """A line whenever a trial ended, and now and then while nothing does."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._n_ended = 0
        self._last_seconds = 0.0

    def __enter__(self) -> PlainDisplay:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def show(self, view: SweepView) -> None:
        news = view.n_ended > self._n_ended
        if news or view.seconds - self._last_seconds >= _PLAIN_SECONDS:
            self._n_ended, self._last_seconds = view.n_ended, view.seconds
            self.say(_progress_line(view))

    def say(self, line: str) -> None:
        self._console.print(Text(fit(line)), soft_wrap=True)

    def end(self) -> None:
        pass


# --- the pieces ---------------------------------------------------------------------------------


def render(view: SweepView) -> RenderableType:
    """The whole view as one block, readable from 80 columns on."""
    parts: list[RenderableType] = [*_head(view)]
    if view.running:
        parts.append(_RunningTable(view.running, view.metric))
        if (more := len(view.running) - _MAX_RUNNING_ROWS) > 0:
            parts.append(Text(f"… and {more} more running", "dim"))
    if view.ended is None:
        parts.extend(_waiting_lines(view.waiting))
    if view.trouble:
        trouble = fit_line(view.trouble)
        parts.append(Text(f"MLflow: {trouble}; {view.n_undelivered} events wait", "red"))
    return Group(*parts)


def _head(view: SweepView) -> Iterator[RenderableType]:
    yield Text.assemble((fit_line(view.study), "bold"), "  ", (_time_text(view), "dim"))
    grid = Table.grid(padding=(0, 2))
    grid.add_row(
        ProgressBar(total=view.n_trials, completed=view.n_ended, width=16),
        Text(f"{view.n_ended}/{view.n_trials}", no_wrap=True),
        _counts_text(view),
    )
    yield grid
    if view.best is not None:
        yield Text(f"best {_best_text(view.metric, view.best)}", "green")


def _waiting_lines(rows: Sequence[WaitingRow]) -> Iterator[Text]:
    for row in rows[:_MAX_WAITING_ROWS]:
        who = "next trial" if row.number is None else f"trial {row.number}"
        reason = fit_line(row.reason)  # it names other people's processes
        yield Text(f"{who} {reason}", "dim" if row.reason.startswith(ALL_TAKEN) else "yellow")
    if (more := len(rows) - _MAX_WAITING_ROWS) > 0:
        yield Text(f"… and {more} more waiting", "yellow")


def _counts_text(view: SweepView) -> Text:
    text = Text()
    for state, style in _STATE_STYLES.items():
        if n := view.counts.get(state.value, 0):
            text.append("  " if text else "").append(f"{n} {state.value}", style)
    return text


def _time_text(view: SweepView) -> str:
    text = clock(view.seconds)
    if view.seconds_left is not None and view.ended is None:
        text += f", about {clock(view.seconds_left)} left"
    return text


class _RunningTable:
    """The running trials. On a narrow screen the value of the study's metric stays whole: cut are
    first the params, then the other metrics; then columns are left out, then the metric's name."""

    def __init__(self, rows: Sequence[RunningRow], metric: str) -> None:
        self._rows, self._metric = rows[:_MAX_RUNNING_ROWS], metric

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = {
            "trial": [str(row.number) for row in self._rows],
            "device": [short_device(row.device) for row in self._rows],
            "time": [clock(row.seconds) for row in self._rows],
            "step": ["" if row.step is None else str(row.step) for row in self._rows],
        }
        least = max(_width(_report_text(r.metrics, self._metric, _NARROW)) for r in self._rows)
        for name in ("device", "time", "step"):
            if _room(columns, options.max_width) < least:
                del columns[name]
        room = _room(columns, options.max_width)
        params = [params_text(row.params) for row in self._rows]
        n_params = max(map(_width, ["params", *params]))
        n_report = min(room, max(least, room - 2 - n_params))
        reports = [_report_text(row.metrics, self._metric, n_report) for row in self._rows]
        columns["last report"] = reports
        n_report = max(map(_width, ["last report", *reports]))
        if (left := room - 2 - n_report) >= _LEAST_PARAMS:
            columns["params"] = [_cut(text, left) for text in params]
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in columns:
            table.add_column(_cut(name, room), no_wrap=True)
        for cells in zip(*columns.values(), strict=True):
            table.add_row(*cells)
        yield table


def _room(columns: Mapping[str, Sequence[str]], width: int) -> int:
    """What other columns leave of the width, for one more."""
    return width - sum(max(map(_width, [name, *cells])) + 2 for name, cells in columns.items())


def _width(text: str) -> int:
    return cell_len(text)


def _cut(text: str, width: int) -> str:
    """`text` in one line of at most `width` columns."""
    line = Text(text)
    line.truncate(max(1, width), overflow="ellipsis")
    return line.plain


def _report_text(metrics: Mapping[str, float], first: str, width: int) -> str:
    """`val_loss 0.03  train_loss 0.02` on at most `width` columns.

    The study's metric comes before the others; its name is cut, its value is not.
    """
    texts = {name: f" {value:.4g}" for name, value in metrics.items()}
    value = texts.pop(first, "")
    begin = value and _cut(fit_line(first), width - _width(value)) + value
    others = "  ".join(fit_line(name) + text for name, text in texts.items())
    if not begin:
        return _cut(others, width)
    left = width - _width(begin) - 2
    return f"{begin}  {_cut(others, left)}" if others and left > 1 else begin


def short_device(device: str) -> str:
    """`NVIDIA H200 GPU-8f3a12b4-…` → `H200 GPU-8f3a12b4`: enough to tell the GPUs of a machine."""
    text = re.sub(r"\b((?:GPU|MIG)-[0-9a-f]{8})[0-9a-f-]+", r"\1", device)
    return re.sub(r"^NVIDIA (GeForce )?", "", text)


def _progress_line(view: SweepView) -> str:
    counts = ", ".join(f"{n} {state}" for state, n in view.counts.items() if n)
    line = f"{view.n_ended}/{view.n_trials} trials"
    line += f" ({counts}), {_time_text(view)}" if counts else f", {_time_text(view)}"
    if view.best is not None:
        line += f"; best {_best_text(view.metric, view.best)}"
    first = view.waiting[0] if view.waiting else None
    if first is not None and not first.reason.startswith(ALL_TAKEN):
        who = "the next trial" if first.number is None else f"trial {first.number}"
        line += f"; {who} {first.reason}"
    if view.trouble:
        line += f"; MLflow: {view.trouble}; {view.n_undelivered} events wait"
    return line


def _best_text(metric: str, best: BestRow) -> str:
    return (
        f"{fit_line(metric)} {best.value:.5g} by trial {best.number} ({params_text(best.params)})"
    )


def params_text(params: Params) -> str:
    """`depth 3, lr 0.012`."""
    return ", ".join(f"{name} {value_text(value)}" for name, value in params.items())


def value_text(value: ParamValue) -> str:
    return f"{value:.4g}" if isinstance(value, float) else fit_line(str(value))


def clock(seconds: float) -> str:
    """`12 s`, `3:05`, `1:02:03`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


# --- whole commands -----------------------------------------------------------------------------


def print_view(view: SweepView, note: str | None) -> None:
    """For `status`."""
    console = _console()
    console.print(render(view))
    for line in failure_lines(view):
        console.print(Text(line, "red"), soft_wrap=True)
    age = time.time() - view.time
    if view.ended is not None:
        console.print(Text(f"{fit_line(view.ended)}, {clock(age)} ago", "dim"), soft_wrap=True)
    elif note is not None:
        console.print(Text(fit_line(note), "magenta"), soft_wrap=True)


def failure_lines(view: SweepView) -> Iterator[str]:
    """The failed trials by cause, and where to read on."""
    if not view.failures:
        return
    yield "failed by cause"
    for row in view.failures:
        log = StudyFiles(Path(view.directory)).log(row.first)
        see = f", see {os.path.relpath(log)}" if log.exists() else ""
        times = "1 time" if row.n == 1 else f"{row.n} times"
        yield f"  {times}  {fit_line(row.cause)} (first trial {row.first}{see})"
    n_told = sum(row.n for row in view.failures)
    if (n_more := view.counts.get(TrialState.FAILED.value, 0) - n_told) > 0:
        yield f"  and {n_more} more of other causes"


def print_best(best: Sequence[tuple[BestRow, str]], metric: str) -> None:
    """The closing table: the best trials, each with its state."""
    console = _console()
    console.print("best trials")
    table = _best_table(best, metric)
    unbounded = console.options.update_width(_ANY_WIDTH)
    if console.measure(table, options=unbounded).maximum <= console.width:
        console.print(table)
        return
    for row, state in best:  # too many params for columns
        # In a terminal words are kept whole, elsewhere lines are.
        text = Text(f"  {state}: {_best_text(metric, row)}")
        console.print(text, soft_wrap=not console.is_terminal)


def _best_table(best: Sequence[tuple[BestRow, str]], metric: str) -> Table:
    table = Table(box=None, pad_edge=False)
    names = list(dict.fromkeys(name for row, _ in best for name in row.params))
    for column in ("trial", fit_line(metric), *names, "state"):
        table.add_column(column, justify="right", no_wrap=True)
    for row, state in best:
        cells = (value_text(row.params[n]) if n in row.params else "" for n in names)
        table.add_row(str(row.number), f"{row.value:.5g}", *cells, state)
    return table


def print_accounts(accounts: Sequence[DeviceAccount]) -> None:
    """For `devices`: a row a device, and a row for each process on it."""
    console = _console()
    table = Table(box=None, pad_edge=False)
    for column in ("device", "total", "free", "held by others", "reserved", "room", "load"):
        table.add_column(column, justify="left" if column == "device" else "right")
    for a in accounts:
        load = "" if a.device.utilisation is None else f"{a.device.utilisation:.0%}"
        sizes = (a.device.total_bytes, a.device.free_bytes, a.foreign_bytes, a.hold_bytes)
        table.add_row(
            f"{a.device.uuid}  {a.device.name}",
            *(gib(size) for size in sizes),
            gib(max(0, a.room_bytes)),
            load,
        )
        for p in a.device.processes:
            used = "" if p.used_bytes is None else gib(p.used_bytes)
            who = fit_line(f"pid {p.pid} ({p.name or '?'}, user {p.user or '?'})")
            table.add_row(f"  {who}", "", "", used)
    console.print(table)
