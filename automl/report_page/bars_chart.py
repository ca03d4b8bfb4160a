"""Draws a picture of level bars with names, ranges and figures, such as importances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from automl.report_page.svg import Axis, Chart, short_text

MAX_BARS = 12
"""Largest number of bars of a picture, the first ones."""


@dataclass(frozen=True)
class LevelBar:
    """A bar of a picture, with the range of its value."""

    name: str
    value: float
    low: float
    high: float
    figures: str
    """The text behind the bar."""


def bars_chart(title: str, bars: Sequence[LevelBar], notes: Sequence[str]) -> str:
    """Return the picture of bars that begin at 0; `notes` are the lines below them."""
    shown = bars[:MAX_BARS]
    chart = Chart(
        title,
        width=420,
        height=22 + 24 * len(shown) + 16 * len(notes),
        left=120,
        right=126,
        x=Axis(0.0, max(bar.high for bar in shown) if any(bar.high > 0 for bar in shown) else 1.0),
    )
    for row, bar in enumerate(shown):
        top = chart.top + 24 * row
        chart.add_text(chart.left - 8, top + 15, short_text(bar.name, 14), "tick", "end")
        width = chart.x_at(bar.value) - chart.left
        tip = f"{bar.name}: {bar.figures}"
        chart.add_rectangle((chart.left, top + 4, width, 14), "bar", tip)
        low, high = chart.x_at(bar.low), chart.x_at(bar.high)
        ends = f"M{low:.1f} {top + 7}v8M{high:.1f} {top + 7}v8"
        chart.add_path(f"M{low:.1f} {top + 11}H{high:.1f}{ends}", "whisker")
        chart.add_text(chart.width - chart.right + 8, top + 15, bar.figures)
    for line, note in enumerate(reversed(notes)):
        chart.add_text(8, chart.height - 8 - 16 * line, note, "label")
    return chart.svg("small")
