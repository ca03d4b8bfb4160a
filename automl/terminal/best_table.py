"""The table of the best trials with which a sweep ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from automl.record.texts import fit_line, value_text
from automl.terminal.console import open_console, params_text
from automl.terminal.view import BestRow

READABLE_METRICS = ("val_loss", "val_error", "val_auc", "val_rmse", "val_r2")
"""Metrics that people read. The study's own metric is shown before them."""
N_MORE_METRICS = 2


def print_best(
    best: Sequence[tuple[BestRow, str]],
    metric: str,
    metrics: Mapping[int, Mapping[str, float]] | None = None,
    *,
    out_of_fold: bool = False,
) -> None:
    """Print the best trials, each with its state.

    `metrics`: further metrics of each trial's best report, by trial number.
    """
    console = open_console()
    console.print("best trials" + f", {fit_line(metric)} out-of-fold" * out_of_fold)
    for others in (metrics or {}, {}):
        table = _best_table(best, metric, others)
        if console.width_of(table) <= console.width:
            console.print(table)
            return
    columns, rows = _best_metrics(best, metric, metrics or {})  # too many params for columns
    with_params = [
        (*cells, state, params_text(row.params))
        for cells, (row, state) in zip(rows, best, strict=True)
    ]
    columns = (*columns, "state", "params")
    console.table(columns, with_params, n_left=len(columns))


def _best_table(
    best: Sequence[tuple[BestRow, str]], metric: str, metrics: Mapping[int, Mapping[str, float]]
) -> Table:
    table = Table(box=None, pad_edge=False)
    names = list(dict.fromkeys(name for row, _ in best for name in row.params))
    columns, rows = _best_metrics(best, metric, metrics)
    for column in (*columns, *names, "state"):
        table.add_column(column, justify="right", no_wrap=True)
    for own, (row, state) in zip(rows, best, strict=True):
        cells = (value_text(row.params[n]) if n in row.params else "" for n in names)
        table.add_row(*own, *cells, state)
    return table


def _best_metrics(
    best: Sequence[tuple[BestRow, str]], metric: str, metrics: Mapping[int, Mapping[str, float]]
) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Return the columns and rows of the trials' numbers, values and further metrics."""
    reported = {name for row, _ in best for name in metrics.get(row.number, ())}
    more = [name for name in READABLE_METRICS if name in reported and name != metric][
        :N_MORE_METRICS
    ]
    several = [name for row, _ in best for name in row.values if name != metric]
    more = list(dict.fromkeys(several)) or more
    rows: list[Sequence[str]] = []
    for row, _ in best:
        own = {**metrics.get(row.number, {}), **row.values}
        others = (f"{own[n]:.5g}" if n in own else "" for n in more)
        rows.append((str(row.number), row.value_text, *others))
    return ("trial", fit_line(metric), *more), rows
