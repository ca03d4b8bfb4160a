"""The closing table: the best trials of the study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from automl.record.texts import fit_line
from automl.running.console import open_console
from automl.running.readable import value_text
from automl.running.rendering import best_text
from automl.running.view import BestRow

READ = ("val_loss", "val_error", "val_auc", "val_rmse", "val_r2")
"""Metrics that people read; the study's own stands before them."""
N_MORE = 2


def print_best(
    best: Sequence[tuple[BestRow, str]],
    metric: str,
    metrics: Mapping[int, Mapping[str, float]] | None = None,
    *,
    out_of_fold: bool = False,
) -> None:
    """The best trials, each with its state; `metrics`: more of the best report of each."""
    console = open_console()
    console.print("best trials" + f", {fit_line(metric)} out-of-fold" * out_of_fold)
    for others in (metrics or {}, {}):
        table = _best_table(best, metric, others)
        if console.width_of(table) <= console.width:
            console.print(table)
            return
    for row, state in best:  # too many params for columns
        # In a terminal words are kept whole, elsewhere lines are.
        text = Text(f"  {state}: {best_text(metric, row)}")
        console.print(text, soft_wrap=not console.is_terminal)


def _best_table(
    best: Sequence[tuple[BestRow, str]], metric: str, metrics: Mapping[int, Mapping[str, float]]
) -> Table:
    table = Table(box=None, pad_edge=False)
    names = list(dict.fromkeys(name for row, _ in best for name in row.params))
    told = {name for row, _ in best for name in metrics.get(row.number, ())}
    more = [name for name in READ if name in told and name != metric][:N_MORE]
    for column in ("trial", fit_line(metric), *more, *names, "state"):
        table.add_column(column, justify="right", no_wrap=True)
    for row, state in best:
        cells = (value_text(row.params[n]) if n in row.params else "" for n in names)
        own = metrics.get(row.number, {})
        others = (f"{own[n]:.5g}" if n in own else "" for n in more)
        table.add_row(str(row.number), f"{row.value:.5g}", *others, *cells, state)
    return table
