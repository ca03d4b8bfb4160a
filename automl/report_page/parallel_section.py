"""Makes the section of all trials: lines over all params, coloured by value, and the table."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from html import escape

from automl.record.texts import fit_line
from automl.record.trial_record import TrialRecord
from automl.report_page.search_sections import value_axis
from automl.report_page.section import ReportSection
from automl.report_page.study_data import ParamScale, StudyData
from automl.report_page.svg import Axis, Chart, number_text, short_text, whole_line
from automl.trial import Direction

MAX_LABELS = 12
"""Largest number of categories that are named along an axis."""
N_LINES = 400
"""Largest number of trials that are drawn."""
MAX_AXES = 20
"""Largest number of params that are drawn."""
N_COLOURS = 10
"""Number of colours from the best value to the worst; the style sheet has them."""
MAX_LETTERS, MAX_NAME_LETTERS = 14, 16
"""Longest texts of a category and of a param's name; the table has them whole."""
_LETTER = 8
"""Width of a letter in pixels, to keep labels apart."""
_MIN_GAP = 90
"""Distance of axes in pixels below which the ends of neighbours would overlap."""


def parallel_section(data: StudyData) -> ReportSection | None:
    """Return the trials as lines over all params; the table of trials follows it."""
    valued = data.valued
    if not data.ended:
        return None
    metric, drawn = data.record.metric.name, _drawn_trials(data)
    some = f" {len(drawn):,} of {len(valued):,} are drawn, evenly over the ranking."
    sentence = f"Each line is a trial, coloured by its {metric} as the last axis shows."
    sentence += some * (len(drawn) < len(valued))
    all_text = "All trials that ended; sort and filter by the table's head."
    hint = (
        "Drag along an axis to keep the trials that pass there: the table and all pictures follow."
    )
    shown = len(data.scales) >= 2 and len(valued) >= 2
    if data.board and not shown:
        return None
    charts = (_parallel_chart(data),) if shown else ()
    return ReportSection(
        "trials",
        "All trials",
        (sentence, hint) if shown else (all_text,),
        charts,
        has_trials=not data.board,
    )


def _ranked_trials(data: StudyData) -> Sequence[TrialRecord]:
    return [t for t in data.record.ranking() if t.value is not None and math.isfinite(t.value)]


def _drawn_trials(data: StudyData) -> Sequence[TrialRecord]:
    """Return the trials that are drawn, the best first: of many every second, third, …"""
    ranked = _ranked_trials(data)
    return ranked[:: max(1, math.ceil(len(ranked) / N_LINES))]


def _parallel_chart(data: StudyData) -> str:
    scales = [*data.scales.values()][:MAX_AXES]
    ranked = _ranked_trials(data)
    direction = data.record.metric.direction
    axis = _whole_axis([t.value or 0.0 for t in ranked], direction)
    colours = value_axis([t.value or 0.0 for t in ranked], direction)
    names = [*(s.name for s in scales), data.record.metric.name]
    n = len(names)
    shown_names = [*(_axis_name(s.name, s) for s in scales), _axis_name(names[-1], axis)]
    is_slanted = not _fit_side_by_side(shown_names)
    chart = Chart(
        "trials over params",
        width=1000,
        height=404 if is_slanted else 350,
        left=50,
        right=140 if is_slanted else 70,
        top=130 if is_slanted else 60,
        bottom=44,
    )
    gap = (chart.width - chart.left - chart.right) / (n - 1)
    places = [chart.left + i * gap for i in range(n)]
    for trial in reversed(_drawn_trials(data)):
        shares = [s.share(trial.params[s.name]) if s.name in trial.params else None for s in scales]
        path = _line_path(chart, places, [*shares, axis.share(trial.value or 0.0)])
        colour = _colour(colours, trial, direction)
        chart.add_path(path, f"line v{colour}", more=f' data-n="{trial.number}"')
    groups = param_groups([scale.name for scale in scales], data.ended)
    for i, (x, name) in enumerate(zip(places, names, strict=True)):
        scale = scales[i] if i < len(scales) else axis
        begin = len(chart.marks)
        chart.add_path(f"M{x:.0f} {chart.top}V{chart.height - chart.bottom}", "axis")
        if i == n - 1:
            _draw_colours(chart, x, axis, colours, direction)
        _label_axis(chart, i, x, name, scale, gap, is_slanted=is_slanted)
        family = f' data-group="{escape(groups[name])}"' if name in groups else ""
        group = (
            f'<g data-axis="{i}" data-x="{x:.0f}" data-name="{escape(name)}" '
            f'data-scale="{escape(_plain_scale(scale))}"{family}>'
        )
        chart.marks[begin:] = [f"{group}{''.join(chart.marks[begin:])}</g>"]
    return chart.svg("wide parallel")


def _line_path(chart: Chart, places: Sequence[float], shares: Sequence[float | None]) -> str:
    """Return a line through the shares of the axes, with a gap at each that a trial does not
    have."""
    base = chart.height - chart.bottom
    parts: list[list[tuple[int, int]]] = [[]]
    for x, share in zip(places, shares, strict=True):
        if share is None:
            parts.append([])
        else:
            parts[-1].append((round(x), round(base - share * (base - chart.top))))
    return "".join(whole_line(part) for part in parts if part)


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
    chart: Chart,
    place: int,
    x: float,
    name: str,
    scale: ParamScale | Axis,
    gap: float,
    *,
    is_slanted: bool,
) -> None:
    """Write the name of an axis, and its ends or categories. Where axes are narrow, every other one
    has its ends a line further out."""
    base = chart.height - chart.bottom
    shown = escape(_axis_name(name, scale))
    if is_slanted:
        way = f'transform="translate({x:.0f} {chart.top - 34}) rotate(-32)"'
    else:
        way = f'x="{x:.0f}" y="{chart.top - 36}" text-anchor="middle"'
    chart.marks.append(f'<text class="label" {way}>{shown}</text>')
    if isinstance(scale, ParamScale) and 0 < len(scale.categories) <= MAX_LABELS:
        letters = max(3, int((gap - 12) / _LETTER))
        for i, category in enumerate(scale.categories):
            y = base - (i + 0.5) / len(scale.categories) * (base - chart.top) + 4
            text = short_text(str(category), MAX_LETTERS)
            whole = f' data-text="{escape(text)}"' if len(text) > letters else ""
            chart.marks.append(
                f'<text class="tick" x="{x + 5:.0f}" y="{y:.0f}"{whole}>'
                f"{escape(short_text(text, min(MAX_LETTERS, letters)))}</text>"
            )
        return
    low, high = _ends(scale)
    further = 13 if place % 2 and gap < _MIN_GAP else 0
    chart.add_text(x, chart.top - 7 - further, high, "tick end", "middle")
    chart.add_text(x, base + 14 + further, low, "tick end", "middle")


def _axis_name(name: str, scale: ParamScale | Axis) -> str:
    return short_text(name, MAX_NAME_LETTERS) + " (log)" * scale.is_log


def _fit_side_by_side(names: Sequence[str]) -> bool:
    """Return whether the names of the axes have room beside one another, each above its axis."""
    gap, widths = 880 / (len(names) - 1), [len(name) * _LETTER for name in names]
    fit_edges = widths[0] / 2 < 50 and widths[-1] / 2 < 70
    return fit_edges and all((a + b) / 2 + _LETTER < gap for a, b in itertools.pairwise(widths))


def param_groups(names: Sequence[str], trials: Sequence[TrialRecord]) -> dict[str, str]:
    """Return the group of each param that shares one with others: params with the same begin of a
    dotted name (`optimizer.lr`), or that only trials with the same value of another param have."""
    groups: dict[str, list[str]] = {}
    choices = [name for name in names if all(isinstance(t.params.get(name), str) for t in trials)]
    for name in names:
        prefix, dot, _ = name.partition(".")
        own = [t for t in trials if name in t.params]
        group = prefix if dot else ""
        for choice in choices if len(own) < len(trials) else ():
            values = {str(t.params[choice]) for t in own}
            group = group or (values.pop() if len(values) == 1 else "")
        if group:
            groups.setdefault(group, []).append(name)
    return {name: group for group, own in groups.items() if len(own) > 1 for name in own}


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
