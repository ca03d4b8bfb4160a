"""A view as people see it: the block of the live table and of `status`, and the plain line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from automl.record.files import StudyFiles
from automl.record.texts import fit_line
from automl.running.device_lines import DeviceLines
from automl.running.readable import clock, params_text
from automl.running.running_table import RunningTable
from automl.running.view import BestRow, EnsembleRow, SweepView
from automl.trial import TrialState

_STATE_STYLES = {
    TrialState.FINISHED: "green",
    TrialState.PRUNED: "yellow",
    TrialState.FAILED: "red",
    TrialState.RUNNING: "cyan",
    TrialState.INTERRUPTED: "magenta",
}
_MAX_RUNNING_ROWS = 12
_MAX_WAITING_ROWS = 3
_MAX_FAMILY_ROWS = 8


def render(view: SweepView) -> RenderableType:
    """The whole view as one block, readable from 80 columns on."""
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
        parts.append(Text(f"MLflow: {trouble}; {view.n_undelivered} events wait", "red"))
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
    """`ensemble loss 0.27 of 4 models`."""
    models = "1 model" if row.n_models == 1 else f"{row.n_models} models"
    return f"ensemble {fit_line(row.metric)} {row.value:.5g} of {models}"


def _waiting_lines(view: SweepView) -> Iterator[Text]:
    rows = view.waiting
    for row in rows[:_MAX_WAITING_ROWS]:
        who = "next trial" if row.number is None else f"trial {view.shown(row.number)}"
        reason = fit_line(row.reason)  # it names other people's processes
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
    text = clock(view.seconds)
    if view.seconds_left is not None and view.ended is None:
        text += f", about {clock(view.seconds_left)} left"
    return text


def progress_line(view: SweepView) -> str:
    """The whole view in one line."""
    counts = ", ".join(f"{n} {state}" for state, n in view.counts.items() if n)
    line = f"{view.progress} trials"
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
        line += f"; MLflow: {view.trouble}; {view.n_undelivered} events wait"
    return line


def _best_text(view: SweepView, best: BestRow) -> str:
    return best_text(view.metric, replace(best, number=view.shown(best.number)))


def best_text(metric: str, best: BestRow) -> str:
    return (
        f"{fit_line(metric)} {best.value:.5g} by trial {best.number} ({params_text(best.params)})"
    )


def failure_lines(view: SweepView) -> Iterator[str]:
    """The failed trials by cause, and where to read on."""
    if not view.failures:
        return
    yield "failed by cause"
    for row in view.failures:
        log = StudyFiles(Path(view.directory)).log(row.first)
        see = f", see {os.path.relpath(log)}" if log.exists() else ""
        times = "1 time" if row.n == 1 else f"{row.n} times"
        yield f"  {times}  {fit_line(row.cause)} (first trial {view.shown(row.first)}{see})"
    n_told = sum(row.n for row in view.failures)
    if (n_more := view.counts.get(TrialState.FAILED.value, 0) - n_told) > 0:
        yield f"  and {n_more} more of other causes"
