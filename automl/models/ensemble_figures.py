"""Draws PNGs of what was found in an ensemble (`ensemble_findings.py`), for its run in MLflow.

It is the only module that knows matplotlib. It uses no global state of matplotlib, so that it does
not disturb threads and notebooks that draw, too.
"""

from __future__ import annotations

import warnings
from io import BytesIO

import numpy as np
from matplotlib.figure import Figure

from automl.record.study_files import (
    CALIBRATION_PLOT,
    ERRORS_PLOT,
    IMPORTANCES_PLOT,
    PREDICTED_PLOT,
)
from automl.trial import EnsembleFindings


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure; `width` and `height` are in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def png_bytes(figure: Figure) -> bytes:
    """Return the PNG file of a figure."""
    file = BytesIO()
    with warnings.catch_warnings():  # letters that the font lacks are drawn as boxes
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(file, format="png", dpi=120)
    return file.getvalue()


def ensemble_plots(found: EnsembleFindings, n_rows: int) -> dict[str, bytes]:
    """Return PNGs by the names of their files. `n_rows`: how many rows judge the ensemble."""
    pngs = {}
    if found.classes:
        pngs[ERRORS_PLOT] = _draw_errors(found, n_rows)
        pngs[CALIBRATION_PLOT] = _draw_calibration(found, n_rows)
    else:
        pngs[PREDICTED_PLOT] = _draw_predictions(found, n_rows)
    if found.importances:
        pngs[IMPORTANCES_PLOT] = _draw_importances(found)
    return pngs


def _draw_importances(found: EnsembleFindings) -> bytes:
    shown = found.importances
    figure = new_figure(8, 1.5 + 0.28 * len(shown))
    axes = figure.add_subplot(
        title=_title(
            f"Columns that matter, the first {len(shown)} of {found.n_columns}", found.n_rows
        ),
        xlabel=f"rise of the loss from {found.loss:.4g} where a column is shuffled",
    )
    names = [_short(column.name) for column in shown]
    rises, errors = [c.rise for c in shown], [c.standard_deviation for c in shown]
    axes.barh(range(len(shown)), rises, xerr=errors, color="tab:blue")
    axes.set_yticks(range(len(shown)), names, parse_math=False)
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    return png_bytes(figure)


def _draw_errors(found: EnsembleFindings, n_rows: int) -> bytes:
    counts = np.array(found.confusion)
    totals = counts.sum(axis=1)
    shares = counts / np.maximum(1, totals[:, None])
    n, names = len(found.classes), [_short(name) for name in found.classes]
    figure = new_figure(3.5 + 0.55 * n, 2.5 + 0.5 * n)
    axes = figure.add_subplot(
        title=_title("What rows of each class are taken for", n_rows),
        xlabel="taken for",
        ylabel="class, and how many rows",
    )
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    row_names = [f"{name}  {rows:,}" for name, rows in zip(names, totals, strict=True)]
    axes.set_xticks(range(n), names, rotation=45, ha="right", parse_math=False)
    axes.set_yticks(range(n), row_names, parse_math=False)
    for (row, column), share in np.ndenumerate(shares):
        colour = "white" if share > 0.5 else "black"
        axes.text(column, row, f"{share:.0%}", ha="center", va="center", color=colour)
    return png_bytes(figure)


def _draw_calibration(found: EnsembleFindings, n_rows: int) -> bytes:
    predicted, observed, sizes = (
        np.array(values) for values in zip(*found.calibration, strict=True)
    )
    of_class = f"of {_short(found.classes[1])}" if len(found.classes) == 2 else "of each class"
    figure = new_figure(6, 6)
    axes = figure.add_subplot(
        title=_title("Calibration", n_rows),
        xlabel=f"probability {of_class} that is predicted",
        ylabel="share that is of the class",
        aspect="equal",
    )
    axes.xaxis.label.set_parse_math(False)
    axes.plot([0, 1], [0, 1], color="gray", linestyle="--", label="as it should be")
    axes.plot(predicted, observed, color="tab:blue")
    dots = 20 + 180 * sizes / sizes.max()
    axes.scatter(predicted, observed, s=dots, color="tab:blue", label="larger: more rows")
    axes.legend(loc="upper left")
    axes.grid(alpha=0.3)
    return png_bytes(figure)


def _draw_predictions(found: EnsembleFindings, n_rows: int) -> bytes:
    true, predicted = (np.array(values) for values in zip(*found.pairs, strict=True))
    figure = new_figure(6, 6)
    axes = figure.add_subplot(
        title=_title("Predicted against true", n_rows), xlabel="true", ylabel="predicted"
    )
    axes.xaxis.label.set_parse_math(False)
    axes.scatter(true, predicted, s=9, alpha=0.4, color="tab:blue", linewidths=0)
    axes.axline((true.mean(), true.mean()), slope=1, color="gray", linestyle="--")
    axes.grid(alpha=0.3)
    return png_bytes(figure)


def _title(text: str, n_rows: int) -> str:
    return f"{text}\n{n_rows:,} rows that no model asked has seen"


def _short(name: str) -> str:
    return name if len(name) <= 24 else name[:23] + "…"
