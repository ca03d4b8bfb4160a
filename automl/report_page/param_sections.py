"""Makes the sections on params: which matter, what each brought, and all of them at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from automl.record.trial_record import TrialRecord
from automl.report_page.bars_chart import LevelBar, bars_chart
from automl.report_page.findings import RangeEdge, importances, range_edges
from automl.report_page.search_sections import show_value, value_axis
from automl.report_page.section import ReportSection, text_table
from automl.report_page.study_data import ParamScale, StudyData
from automl.report_page.svg import Axis, Chart, number_text, short_text
from automl.search.param_importances import MIN_TRIALS, ParamImportance
from automl.search.value_forest import ValueForest
from automl.trial import Direction, Params, ParamValue, TrialState

N_SLICES = 4
MAX_LABELS = 12
"""Largest number of categories that are named along an axis."""
N_LINES = 400
"""Largest number of trials that are drawn as lines over all params."""
MAX_LEARNED = 1_000
"""The forest learns from every second, third, … trial where there are more."""
MIN_SHARE = 0.02
"""A param with a smaller importance does not matter, and its values are not drawn."""
MIN_FIT = 0.3
"""A forest whose R² on trials left out is below this says nothing of single params."""
_ABSENT = -1.0
"""Place of a param that a trial does not have; the others lie from 0 to 1."""


def params_section(data: StudyData) -> ReportSection | None:
    """Return which params matter, and the values of those that matter most or lie at an edge."""
    if not data.valued or not data.scales:
        return None
    found, best = importances(data), data.record.best()
    edges = [] if best is None else range_edges(data, best)
    charts = [_importance_chart(found)] if found else []
    charts += [_slice_chart(data, data.scales[name], edges) for name in _sliced(data, found, edges)]
    rows = [
        (
            i.name,
            f"{i.share:.0%}",
            f"{i.low:.0%} to {i.high:.0%}",
            "trials that have it" if i.is_conditional else "all trials",
        )
        for i in found
    ]
    table = text_table(
        ("param", "importance", "in resamples", "among"), rows, title="Importances", folded=True
    )
    sentence = _importance_sentence(found) if found else _no_importance_sentence(data)
    return ReportSection(
        "params",
        "What mattered",
        (sentence, *(map(_edge_sentence, edges) if edges else _no_edges(data))),
        tuple(charts),
        tables=(table,) if found else (),
    )


def _sliced(
    data: StudyData, found: Sequence[ParamImportance], edges: Sequence[RangeEdge]
) -> list[str]:
    """Return the params whose values are drawn: those that matter, then those at an edge, and the
    first ones where nobody knows."""
    mattering = [i.name for i in found if i.share >= MIN_SHARE]
    names = [*mattering[:N_SLICES], *(edge.name for edge in edges)] or [*data.scales]
    return [*dict.fromkeys(names)][: N_SLICES + len(edges)]


def _no_importance_sentence(data: StudyData) -> str:
    """Return why no importances are shown."""
    n = len(data.valued)
    trials = "1 trial with a value is" if n == 1 else f"{n} trials with a value are"
    if n < MIN_TRIALS:
        return f"{trials} too few to say which param matters."
    if len(data.scales) < 2:
        return f"{next(iter(data.scales))} is the only param that differs between trials."
    return (
        f"The values of {n:,} trials do not tell which param matters: a forest that learns from "
        "some of them predicts the others hardly better than their mean."
    )


def _importance_sentence(found: Sequence[ParamImportance]) -> str:
    first = found[0]
    others = [i for i in found[1:] if i.high >= first.low]
    where = "among the trials that have it" if first.is_conditional else "over the whole space"
    sentence = (
        f"{first.name} matters most: {where} it makes up {first.share:.0%} of what sets the trials "
        f"apart ({first.low:.0%} to {first.high:.0%})."
    )
    if others:
        names = ", ".join(i.name for i in others[:3])
        sentence += f" From so few trials {names} may matter as much: the ranges overlap."
    return sentence


def _edge_sentence(edge: RangeEdge) -> str:
    end = "upper" if edge.is_high else "lower"
    return (
        f"The best {edge.name} lies at the {end} end of its range ({number_text(edge.bound)}); "
        f"{edge.remedy} would look beyond."
    )


def _no_edges(data: StudyData) -> Sequence[str]:
    """Return a sentence that no range need be wider, if the study declares ranges."""
    if not any(scale.is_declared for scale in data.scales.values()):
        return ()
    return ("No best value lies at an edge with more beyond it: no range has to be wider.",)


def _importance_chart(found: Sequence[ParamImportance]) -> str:
    bars = [
        LevelBar(i.name, i.share, i.low, i.high, f"{i.share:.2f} ({i.low:.2f} to {i.high:.2f})")
        for i in found
    ]
    notes = ("importance from 0 to 1;", "thin line: its range if the trials are drawn anew")
    return bars_chart("importance of params", bars, notes)


def _slice_chart(data: StudyData, scale: ParamScale, edges: Sequence[RangeEdge]) -> str:
    metric, trials = data.record.metric, [t for t in data.valued if scale.name in t.params]
    axis = value_axis([t.value or 0.0 for t in trials], metric.direction)
    x = Axis(scale.low, scale.high, scale.is_log) if scale.is_number else Axis(0.0, 1.0)
    chart = Chart(f"{metric.name} by {scale.name}", width=420, height=230, right=22, x=x, y=axis)
    ticks = None
    if not scale.is_number:
        n = len(scale.categories)
        ticks = [
            ((i + 0.5) / n, short_text(str(c), 60 // n + 3))
            for i, c in enumerate(scale.categories[:12])
        ]
    chart.draw_axes(short_text(scale.name, 40), short_text(metric.name, 30), x_ticks=ticks)
    for state, css in ((TrialState.PRUNED, "pruned"), (TrialState.FINISHED, "finished")):
        own = [t for t in trials if t.state is state]
        points = [(_place(scale, t.params[scale.name], t.number), t.value or 0.0) for t in own]
        add = chart.add_squares if state is TrialState.PRUNED else chart.add_dots
        add(points, css, [t.number for t in own])
    best = data.record.best()
    if best is not None and best.value is not None and scale.name in best.params:
        place = _place(scale, best.params[scale.name], best.number)
        chart.add_dots([(place, best.value)], "winner")
    for edge in edges:
        if edge.name == scale.name:
            place = chart.x_at(edge.bound)
            chart.add_path(f"M{place:.1f} {chart.top}V{chart.height - chart.bottom}", "edge")
    return chart.svg("small")


def _place(scale: ParamScale, value: ParamValue, number: int) -> float:
    """Return where a trial stands; trials of one category are spread a little, always alike."""
    if scale.is_number:
        assert isinstance(value, int | float)
        return float(value)
    spread = ((number * 0.618) % 1 - 0.5) * 0.5
    return scale.share(value) + spread / len(scale.categories)


def path_section(data: StudyData) -> ReportSection | None:
    """Return what each param brought on the way from the first trial to the best one."""
    best, direction = data.record.best(), data.record.metric.direction
    if best is None:
        return None
    path = param_path(data.valued, best, data.scales, direction)
    if path is None:
        return None
    values = [path.start, *(step.value for step in path.steps)]
    sign = -1.0 if direction is Direction.minimize else 1.0
    gains = [sign * (after - before) for before, after in itertools.pairwise(values)]
    place = gains.index(max(gains))
    largest, metrics = path.steps[place], data.record.metrics
    knee = ", the knee of the front" if metrics.are_several else ""
    most_text = (
        f"{largest.name} = {_shown_or_absent(largest.after)} brings most: from "
        f"{number_text(values[place])} to {number_text(values[place + 1])}"
        if gains[place] > 0
        else "no change brings a better value"
    )
    sentence = f"From the first trial's params to those of trial {best.number}{knee}, {most_text}."
    if metrics.are_several:
        sentence += (
            f" Only {metrics.leading.name} is told here; what a change brings by "
            f"{' and '.join(metrics.more_names)} may make up for a loss."
        )
    note = (
        "A forest that learned the trials' values says this; it explains "
        f"{path.fit:.0%} of their order. It predicts what each change brings on this way; the "
        "importances are over the whole space, so the two may rank params differently."
    )
    most = max(*gains, 1e-300)
    changes = [
        (
            step.name,
            f"{_shown_or_absent(step.before)} → {_shown_or_absent(step.after)}",
            number_text(step.value),
        )
        for step in path.steps
    ]
    columns = ("param", "change", f"predicted {data.record.metric.name}", "gain")
    same = [name for name in data.scales if name not in {step.name for step in path.steps}]
    unchanged = f"; {', '.join(same)} unchanged" if same else ""
    rows = [
        ("", f"first trial{unchanged}", number_text(path.start), ""),
        *((*row, f"{gain:.3g}") for row, gain in zip(changes, gains, strict=True)),
        ("", f"measured: trial {best.number}", number_text(best.value or 0.0), ""),
    ]
    bars = [None, *(max(0.0, gain / most) for gain in gains)]
    table = text_table(columns, rows, n_text=2, bars=bars)
    return ReportSection("path", "From the first to the best", (sentence, note), tables=(table,))


def _shown_or_absent(value: ParamValue) -> str:
    return "absent" if value is None else show_value(value)


# --- how far each param brought the best trial, by a forest that learned the trials' values ------


@dataclass(frozen=True)
class PathStep:
    """One param changed from its value in the first trial to that of the best."""

    name: str
    before: ParamValue
    after: ParamValue
    value: float
    """The metric that the forest predicts after this step."""


@dataclass(frozen=True)
class ParamPath:
    """The way from the first trial's params to the best's, the most helpful change first."""

    start: float
    """The metric that the forest predicts for the first trial."""
    steps: tuple[PathStep, ...]
    fit: float
    """The forest's R² on the ranks of trials that it has not learned from."""


def param_path(
    trials: Sequence[TrialRecord],
    best: TrialRecord,
    scales: Mapping[str, ParamScale],
    direction: Direction,
) -> ParamPath | None:
    """Return the path from the first of `trials` to the best one.

    None for few trials, or if the forest explains too little of their order.
    """
    first = min(trials, key=lambda trial: trial.number, default=best)
    names = [n for n, s in scales.items() if first.params.get(n) != best.params.get(n)]
    if len(trials) < MIN_TRIALS or not names:
        return None
    trials = trials[:: math.ceil(len(trials) / MAX_LEARNED)]
    values = np.array([trial.value for trial in trials], dtype=np.float64)
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable") / (len(values) - 1)
    places = np.array([_places(trial.params, scales) for trial in trials])
    forest = ValueForest(places, ranks, [0] * len(scales))
    if forest.fit < MIN_FIT:
        return None
    ordered = np.sort(values)

    def predict(candidates: Sequence[Params]) -> Sequence[float]:
        predicted = forest.predict(np.array([_places(params, scales) for params in candidates]))
        places = predicted * (len(ordered) - 1)
        return [float(v) for v in np.interp(places, np.arange(len(ordered)), ordered)]

    params, steps = dict(first.params), list[PathStep]()
    (start,) = predict([params])
    while names:
        values_after = predict([_changed(params, name, best) for name in names])
        changed = dict(zip(names, values_after, strict=True))
        choose = min if direction is Direction.minimize else max
        name = choose(changed, key=lambda n: changed[n])
        steps.append(PathStep(name, params.get(name), best.params.get(name), changed[name]))
        params = _changed(params, name, best)
        names.remove(name)
    return ParamPath(start, tuple(steps), forest.fit)


def _changed(params: Params, name: str, best: TrialRecord) -> dict[str, ParamValue]:
    """Return the params with one value of the best trial, which may lack it."""
    changed = {n: v for n, v in params.items() if n != name}
    return changed | ({name: best.params[name]} if name in best.params else {})


def _places(params: Params, scales: Mapping[str, ParamScale]) -> list[float]:
    return [s.share(params[n]) if n in params else _ABSENT for n, s in scales.items()]
