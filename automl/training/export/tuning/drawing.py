"""What was measured as a picture: rows a second by the rows of a call, a line for each way."""

from __future__ import annotations

from collections.abc import Sequence

from automl.training.drawing import new_figure, png
from automl.training.export.tuning.choice import Measured
from automl.training.export.tuning.timing import BATCHES


def draw(seen: Sequence[Measured], written: str) -> bytes:
    """A PNG; ways that are not within the tolerance are dotted, `written` is the thick one."""
    figure = new_figure(9, 6)
    axes = figure.add_subplot(
        title="Throughput by way of running the model",
        xlabel="rows in a call",
        ylabel="rows per second",
        xscale="log",
        yscale="log",
    )
    for one in seen:
        if one.timing is None:
            continue
        axes.plot(
            list(one.timing.rows_per_second),
            list(one.timing.rows_per_second.values()),
            label=one.label,
            marker="o",
            markersize=3,
            linestyle="-" if one.within else ":",
            linewidth=3 if one.label == written else 1,
        )
    axes.set_xticks(BATCHES, [f"{n:,}" for n in BATCHES])
    axes.grid(visible=True, alpha=0.3)
    figure.legend(loc="outside right upper", fontsize="small")
    return png(figure)
