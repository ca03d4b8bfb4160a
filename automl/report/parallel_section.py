"""Makes the section of all trials: lines over all params, coloured by value, and the table."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape

from automl.record.texts import fit_line
from automl.record.trial_record import TrialRecord
from automl.report.search_sections import value_axis
from automl.report.section import ReportSection
from automl.report.study_data import ParamScale, StudyData
from automl.report.svg import Axis, Chart, number_text, short_text
from automl.trial import Direction

MAX_LABELS = 12
"""Largest number of categories that are named along an axis."""
N_LINES = 400
"""Largest number of trials that are drawn."""
MAX_AXES = 20
"""Largest number of params that are drawn."""
N_COLOURS = 10
"""Number of colours from the best value to the worst; the style sheet has them."""
_LETTER = 8
"""Width of a letter in pixels, to keep labels apart."""


def parallel_section(data: StudyData) -> ReportSection | None:
    """Return the trials as lines over all params; the table of trials follows it."""
    valued = data.valued
    if not data.ended:
        return None
    metric = data.record.metric.name
    sentence = f"Each line is a trial, coloured by its {metric} as the last axis shows."
    all_text = "All trials that ended; sort and filter by the table's head."
    hint = (
        "Drag along an axis to keep the trials that pass there: the table and all pictures follow."
    )
    shown = len(data.scales) >= 2 and len(valued) >= 2
    charts = (_parallel_chart(data),) if shown else ()
    return ReportSection(
        "trials",
        "All trials",
        (sentence, hint) if shown else (all_text,),
        charts,
        has_trials=True,
    )


def _parallel_chart(data: StudyData) -> str:
    scales = [*data.scales.values()][:MAX_AXES]
    ranked = [t for t in data.record.ranking() if t.value is not None and math.isfinite(t.value)]
    direction = data.record.metric.direction
    axis = _whole_axis([t.value or 0.0 for t in ranked], direction)
    colours = value_axis([t.value or 0.0 for t in ranked], direction)
    names = [*(s.name for s in scales), data.record.metric.name]
    n = len(names)
    is_slanted = _is_narrow(names, 880 / (n - 1))
    chart = Chart(
        "trials over params",
        width=1000,
        height=360 if is_slanted else 340,
        left=50,
        right=120 if is_slanted else 70,
        top=100 if is_slanted else 46,
        bottom=34,
    )
    gap = (chart.width - chart.left - chart.right) / (n - 1)
    places = [chart.left + i * gap for i in range(n)]
    step = max(1, math.ceil(len(ranked) / N_LINES))
    for trial in reversed(ranked[::step]):
        shares = [s.share(trial.params[s.name]) if s.name in trial.params else None for s in scales]
        path = _line_path(chart, places, [*shares, axis.share(trial.value or 0.0)])
        colour = _colour(colours, trial, direction)
        chart.add_path(path, f"line v{colour}", more=f' data-n="{trial.number}"')
    for i, (x, name) in enumerate(zip(places, names, strict=True)):
        scale = scales[i] if i < len(scales) else axis
        begin = len(chart.marks)
        chart.add_path(f"M{x:.0f} {chart.top}V{chart.height - chart.bottom}", "axis")
        if i == n - 1:
            _draw_colours(chart, x, axis, colours, direction)
        _label_axis(chart, x, name, scale, gap, is_slanted=is_slanted)
        group = (
            f'<g data-axis="{i}" data-x="{x:.0f}" data-name="{escape(name)}" '
            f'data-scale="{escape(_plain_scale(scale))}">'
        )
        chart.marks[begin:] = [f"{group}{''.join(chart.marks[begin:])}</g>"]
    return chart.svg("wide parallel")


def _line_path(chart: Chart, places: Sequence[float], shares: Sequence[float | None]) -> str:
    """Return a line through the shares of the axes, with a gap at each that a trial does not
    have."""
    base = chart.height - chart.bottom
    path, pen = "", "M"
    for x, share in zip(places, shares, strict=True):
        if share is None:
            pen = "M"
            continue
        path += f"{pen}{x:.0f} {base - share * (base - chart.top):.0f}"
        pen = "L"
    return path


def _colour(colours: Axis, trial: TrialRecord, direction: Direction) -> int:
    """Return the number of a trial's colour, 0 for the best."""
    share = colours.share(trial.value or 0.0)
    badness = share if direction is Direction.minimize else 1 - share
    return min(N_COLOURS - 1, int(badness * N_COLOURS))


def _draw_colours(chart: Chart, x: float, axis: Axis, colours: Axis, direction: Direction) -> None:
    """Draw the scale of colours beside the axis of values."""
    base, inner = chart.height - chart.bottom, chart.height - chart.top - chart.bottom
    ends = [colours.value_at(i / N_COLOURS) for i in range(N_COLOURS + 1)]
    ends[0], ends[-1] = min(ends[0], axis.low), max(ends[-1], axis.high)
    for i in range(N_COLOURS):
        low, high = axis.share(ends[i]), axis.share(ends[i + 1])
        colour = i if direction is Direction.minimize else N_COLOURS - 1 - i
        box = x + 4, base - high * inner, 9, (high - low) * inner
        chart.add_rectangle(box, f"scale v{colour}")


def _label_axis(
    chart: Chart, x: float, name: str, scale: ParamScale | Axis, gap: float, *, is_slanted: bool
) -> None:
    """Write the name of an axis, and its ends or categories."""
    base = chart.height - chart.bottom
    shown = short_text(name, 22 if is_slanted else 40) + " (log)" * scale.is_log
    if is_slanted:
        chart.marks.append(
            f'<text class="label" transform="translate({x:.0f} {chart.top - 24}) rotate(-32)">'
            f"{escape(shown)}</text>"
        )
    else:
        is_first, is_last = x <= chart.left, x >= chart.width - chart.right
        anchor = "start" if is_first else "end" if is_last else "middle"
        chart.add_text(x, chart.top - 28, shown, "label", anchor)
    if isinstance(scale, ParamScale) and 0 < len(scale.categories) <= MAX_LABELS:
        letters = max(3, int((gap - 12) / _LETTER))
        for place, category in enumerate(scale.categories):
            y = base - (place + 0.5) / len(scale.categories) * (base - chart.top) + 4
            chart.add_text(x + 5, y, short_text(str(category), min(14, letters)))
        return
    low, high = _ends(scale)
    chart.add_text(x, chart.top - 7, high, "tick", "middle")
    chart.add_text(x, base + 14, low, "tick", "middle")


def _is_narrow(names: Sequence[str], gap: float) -> bool:
    """Return whether the names of the axes would overlap side by side."""
    return any((len(short_text(name, 40)) + 6) * _LETTER > gap for name in names)


def _whole_axis(values: Sequence[float], direction: Direction) -> Axis:
    """Return an axis from the least to the largest value, so that a line ends at its value."""
    low, high = min(values), max(values)
    return (
        Axis(low, high, value_axis(values, direction).is_log) if low < high else Axis(low, low + 1)
    )


def _plain_scale(scale: ParamScale | Axis) -> str:
    """Return a scale as JSON, by which the page's script turns places into values."""
    if isinstance(scale, ParamScale) and not scale.is_number:
        return json.dumps({"categories": [fit_line(str(c), 100) for c in scale.categories]})
    return json.dumps({"low": scale.low, "high": scale.high, "log": scale.is_log})


def _ends(scale: ParamScale | Axis) -> tuple[str, str]:
    if isinstance(scale, Axis):
        return number_text(scale.low), number_text(scale.high)
    if scale.is_number:
        return number_text(scale.low, 3), number_text(scale.high, 3)
    return short_text(str(scale.categories[0]), 14), short_text(str(scale.categories[-1]), 14)
