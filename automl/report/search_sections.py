"""Makes the sections that say how the search went: verdict, progress, params, curves."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from html import escape

from automl.record.texts import fit_line
from automl.record.trial_record import TrialRecord
from automl.report.findings import (
    RangeEdge,
    best_so_far,
    importances,
    range_edges,
    rung_agreements,
    search_gain,
)
from automl.report.section import ReportSection, text_table
from automl.report.study_data import ParamScale, StudyData
from automl.report.svg import Axis, Chart, duration_text, number_text, short_text
from automl.search.param_importances import ParamImportance
from automl.trial import Direction, ParamValue, PrunedOutcome, TrialState

N_SLICES = 4
N_CURVES = 300
"""Largest number of learning curves that are drawn; the best trials come first."""
MAX_CURVE_POINTS = 60
N_LINES = 400
"""Largest number of trials that are drawn as lines over all params."""


def value_axis(values: Sequence[float], direction: Direction) -> Axis:
    """Return an axis for trial values on which the worst twentieth does not crowd the others."""
    finite = sorted(values, reverse=direction is Direction.maximize)
    if len(finite) < 8:
        return Axis.around(finite)
    if direction is Direction.minimize and finite[0] > 0 and finite[-1] > 5 * finite[0]:
        return Axis.around(finite, log=True)  # losses: the differences between the best count
    shown = finite[: max(4, math.ceil(len(finite) * 0.95))]
    worst, best = shown[-1], finite[0]
    far = finite[-1]
    if abs(far - best) <= 3 * abs(worst - best):
        shown = finite
    return Axis.around(shown)


def show_value(value: ParamValue) -> str:
    """Return a param's value for people."""
    return number_text(value) if isinstance(value, float) else short_text(str(value), 40)


def params_text(params: Mapping[str, ParamValue]) -> str:
    return ", ".join(
        f"{short_text(name, 40)} {show_value(value)}" for name, value in params.items()
    )


def verdict_section(data: StudyData) -> ReportSection:
    """Return the section with the best value, what was gained, and whether more would help."""
    record, valued = data.record, data.valued
    metric, best = record.metric, record.best()
    counts = {state.value: n for state, n in record.counts().items() if n}
    shown = ", ".join(f"{n:,} {state}" for state, n in counts.items()) or "no trial yet"
    if best is None or best.value is None:
        why = "no trial has ended with a value, so nothing can be compared"
        return ReportSection("verdict", "Verdict", (f"No result yet: {why} ({shown}).",))
    goal = "less is better" if metric.direction is Direction.minimize else "more is better"
    sentences = [
        f"The best trial is {best.number}: {metric.name} {number_text(best.value)} ({goal}), with "
        f"{params_text(best.params) or 'no params'}."
    ]
    sentences += _gain_sentences(data, valued)
    sentences.append(f"Trials: {shown}.")
    rows = [
        (
            str(trial.number),
            number_text(trial.value or 0.0),
            *(show_value(trial.params[n]) if n in trial.params else "" for n in data.scales),
            trial.state.value,
        )
        for trial in record.ranking()[:5]
    ]
    table = text_table(
        ("trial", metric.name, *data.scales, "state"), rows, title="The best trials", n_text=0
    )
    return ReportSection("verdict", "Verdict", tuple(sentences), tables=(table, *_scores(data)))


def _gain_sentences(data: StudyData, valued: Sequence[TrialRecord]) -> list[str]:
    gain = search_gain(valued, data.record.metric.direction)
    if gain is None:
        return ["Fewer than six trials have a value: too few to say whether more would help."]
    if gain.first == gain.best:
        return [
            "No trial was better than the first one. Look at the ranges below before you try more."
        ]
    change = abs(gain.best - gain.first) / abs(gain.first) if gain.first else math.inf
    size = f" ({change:.0%})" if change < 10 else ""
    better = f"The search brought it from {number_text(gain.first)} (first trial) to {number_text(gain.best)}{size}."
    if gain.late_share > 0.05:
        more = f"The last third of the trials brought {gain.late_share:.0%} of the gain, so more trials probably help."
    elif gain.late_share > 0:
        more = f"The last third of the trials brought only {gain.late_share:.1%} of the gain, so more trials would bring little."
    else:
        more = f"The last {gain.n_since} trials brought nothing better, so more trials of this space would hardly help."
    return [better, more]


def _scores(data: StudyData) -> Sequence[object]:
    """Return a table of scores on unseen rows, if the study has been evaluated."""
    evaluations = [e for e in data.record.evaluations if e.scores]
    if not evaluations:
        return ()
    newest = next((e for e in reversed(evaluations) if e.kind.unseen), evaluations[-1])
    metrics = list(dict.fromkeys(m for scores in newest.scores.values() for m in scores))[:4]
    rows = [
        (name, *(_interval(scores.get(metric)) for metric in metrics))
        for name, scores in newest.scores.items()
    ]
    return (
        text_table(("model", *metrics), rows, title=f"Scores on {newest.rows}, 95 % intervals"),
    )


def _interval(score: tuple[float, float, float] | None) -> str:
    if score is None:
        return ""
    value, low, high = score
    return f"{number_text(value)} ({number_text(low, 3)} to {number_text(high, 3)})"


# --- progress ----------------------------------------------------------------------------------


def progress_section(data: StudyData) -> ReportSection | None:
    """Return the best value so far, over trials and over time."""
    valued, metric = data.valued, data.record.metric
    if not valued:
        return None
    begun = data.spans[0][0] if data.spans else valued[0].started
    steps = best_so_far(valued, metric.direction)
    axis = value_axis([t.value or 0.0 for t in valued], metric.direction)
    failed = [t for t in data.ended if t.value is None]
    seconds = [max(0.0, (t.ended or begun) - begun) for t in valued]
    unit, name = _time_unit(max(seconds))
    charts = [
        _progress_chart(
            "trials in the order of their ends",
            {t.number: float(i + 1) for i, t in enumerate(data.ended)},
            *(data, steps, failed, axis),
        ),
        _progress_chart(
            f"{name} since the study began",
            {t.number: max(0.0, (t.ended or begun) - begun) / unit for t in data.ended},
            *(data, steps, failed, axis),
        ),
    ]
    best = steps[-1]
    place = valued.index(best) + 1
    sentence = (
        f"The best value came with ended trial {place} of {len(valued)}, "
        f"{duration_text(max(0.0, (best.ended or begun) - begun))} after the begin; it was improved {len(steps) - 1} times."
    )
    beyond = sum(not axis.low <= (t.value or 0.0) <= axis.high for t in valued)
    notes = (f"{beyond} trials lie beyond the picture, at its edge.",) if beyond else ()
    rows = [
        (
            str(t.number),
            number_text(t.value or 0.0),
            duration_text(max(0.0, (t.ended or begun) - begun)),
            params_text({n: t.params[n] for n in data.scales if n in t.params}),
        )
        for t in steps
    ]
    table = text_table(
        ("trial", metric.name, "after", "params"),
        rows,
        title="Each improvement",
        n_text=0,
        folded=True,
    )
    return ReportSection("progress", "Progress", (sentence, *notes), tuple(charts), tables=(table,))


def _time_unit(seconds: float) -> tuple[float, str]:
    if seconds > 2 * 86400:
        return 86400.0, "days"
    if seconds > 2 * 3600:
        return 3600.0, "hours"
    return (60.0, "minutes") if seconds > 180 else (1.0, "seconds")


def _progress_chart(
    label: str,
    places: Mapping[int, float],
    data: StudyData,
    steps: Sequence[TrialRecord],
    failed: Sequence[TrialRecord],
    axis: Axis,
) -> str:
    metric = data.record.metric
    chart = Chart(f"{metric.name} over {label}", x=Axis.around([0.0, *places.values()]), y=axis)
    chart.draw_axes(label, short_text(metric.name, 30))
    pruned = [t for t in data.valued if t.state is TrialState.PRUNED]
    finished = [t for t in data.valued if t.state is TrialState.FINISHED]
    chart.add_squares([(places[t.number], t.value or 0.0) for t in pruned], "pruned")
    chart.add_dots([(places[t.number], t.value or 0.0) for t in finished], "finished")
    worst = axis.low if metric.direction is Direction.maximize else axis.high
    chart.add_crosses([(places[t.number], worst) for t in failed], "failed")
    line = [(places[t.number], t.value or 0.0) for t in steps]
    chart.add_steps([*line, (max(places.values()), line[-1][1])], "best")
    return chart.svg()


# --- params ------------------------------------------------------------------------------------


def params_section(data: StudyData) -> ReportSection | None:
    """Return which params matter, and the values of those that matter most."""
    if not data.valued or not data.scales:
        return None
    found, best = importances(data), data.record.best()
    edges = [] if best is None else range_edges(data, best)
    if not found:
        found = [ParamImportance(name, 0.0, 0.0, 0.0) for name in data.scales]
        sentence = f"{len(data.valued)} trials with a value are too few to say which param matters."
        charts = []
    else:
        sentence = _importance_sentence(found)
        charts = [_importance_chart(found)]
    charts += [_slice_chart(data, data.scales[i.name], edges) for i in found[:N_SLICES]]
    rows = [
        (i.name, f"{i.share:.0%}", f"{i.low:.0%} to {i.high:.0%}", "if there" * i.is_conditional)
        for i in found
    ]
    table = text_table(
        ("param", "importance", "in resamples", ""), rows, title="Importances", folded=True
    )
    return ReportSection(
        "params",
        "What mattered",
        (sentence, *map(_edge_sentence, edges)),
        tuple(charts),
        tables=(table,) if charts and found[0].share else (),
    )


def _importance_sentence(found: Sequence[ParamImportance]) -> str:
    first = found[0]
    others = [i for i in found[1:] if i.high >= first.low]
    sentence = f"{first.name} matters most: {first.share:.0%} of the difference between good trials and all."
    if others:
        names = ", ".join(i.name for i in others[:3])
        sentence += f" By these trials {names} may matter as much: the resamples overlap."
    return sentence


def _edge_sentence(edge: RangeEdge) -> str:
    end = "upper" if edge.is_high else "lower"
    return (
        f"The best {edge.name} lies at the {end} end of its range ({number_text(edge.bound)}); "
        f"a study with {edge.override} would look beyond."
    )


def _importance_chart(found: Sequence[ParamImportance]) -> str:
    shown = found[:12]
    chart = Chart(
        "importance of params",
        height=44 + 24 * len(shown),
        left=150,
        x=Axis(0.0, max(i.high for i in shown) or 1.0),
    )
    for row, i in enumerate(shown):
        top = chart.top + 24 * row
        chart.add_text(chart.left - 8, top + 15, short_text(i.name, 20), "tick", "end")
        width = chart.x_at(i.share) - chart.left
        chart.add_rectangle(chart.left, top + 4, width, 14, "bar", f"{i.name}: {i.share:.0%}")
        chart.add_path(f"M{chart.x_at(i.low):.1f} {top + 11}H{chart.x_at(i.high):.1f}", "whisker")
    chart.add_text(chart.left, chart.height - 8, "importance, and its range in resamples", "label")
    return chart.svg()


def _slice_chart(data: StudyData, scale: ParamScale, edges: Sequence[RangeEdge]) -> str:
    metric, trials = data.record.metric, [t for t in data.valued if scale.name in t.params]
    axis = value_axis([t.value or 0.0 for t in trials], metric.direction)
    x = Axis(scale.low, scale.high, scale.is_log) if scale.is_number else Axis(0.0, 1.0)
    chart = Chart(f"{metric.name} by {scale.name}", width=420, height=230, x=x, y=axis)
    ticks = None
    if not scale.is_number:
        n = len(scale.categories)
        ticks = [
            ((i + 0.5) / n, short_text(str(c), 60 // n + 3))
            for i, c in enumerate(scale.categories[:12])
        ]
    chart.draw_axes(short_text(scale.name, 40), short_text(metric.name, 30), x_ticks=ticks)
    for state, css in ((TrialState.PRUNED, "pruned"), (TrialState.FINISHED, "finished")):
        points = [
            (_place(scale, t.params[scale.name], t.number), t.value or 0.0)
            for t in trials
            if t.state is state
        ]
        if state is TrialState.PRUNED:
            chart.add_squares(points, css)
        else:
            chart.add_dots(points, css)
    best = data.record.best()
    if best is not None and best.value is not None and scale.name in best.params:
        chart.add_dots([(_place(scale, best.params[scale.name], -1), best.value)], "winner")
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
    spread = 0.0 if number < 0 else ((number * 0.618) % 1 - 0.5) * 0.5
    return scale.share(value) + spread / len(scale.categories)


# --- all params at once, and the table of trials -----------------------------------------------


def parallel_section(data: StudyData) -> ReportSection | None:
    """Return the trials as lines over all params; the table of trials follows it."""
    valued = data.valued
    if not data.ended:
        return None
    n_best = max(1, len(valued) // 10)
    sentence = (
        f"Each line is a trial; the best {n_best} of {len(valued)} are coloured. Drag along an axis "
        "to keep the trials that pass there; the table follows."
    )
    shown = len(data.scales) >= 2 and len(valued) >= 2
    charts = (_parallel_chart(data, n_best),) if shown else ()
    return ReportSection(
        "trials",
        "All trials",
        (sentence,) if shown else ("All trials that ended; sort and filter by the table's head.",),
        charts,
        has_trials=True,
    )


def _parallel_chart(data: StudyData, n_best: int) -> str:
    scales = [*data.scales.values()][:20]
    ranked = [t for t in data.record.ranking() if t.value is not None and math.isfinite(t.value)]
    axis = value_axis([t.value or 0.0 for t in ranked], data.record.metric.direction)
    chart = Chart(
        "trials over params", width=1000, height=330, left=50, right=60, top=30, bottom=34
    )
    n = len(scales) + 1
    places = [chart.left + i * (chart.width - chart.left - chart.right) / (n - 1) for i in range(n)]
    inner = chart.height - chart.top - chart.bottom
    base = chart.height - chart.bottom
    step = max(1, math.ceil(len(ranked) / N_LINES))
    kept = ranked[::step]
    n_good = math.ceil(n_best / step)
    for place, trial in reversed([*enumerate(kept)]):
        shares = [s.share(trial.params[s.name]) if s.name in trial.params else None for s in scales]
        points = [*zip(places, [*shares, axis.share(trial.value or 0.0)], strict=True)]
        path, pen = "", "M"
        for x, share in points:
            if share is None:
                pen = "M"
                continue
            path += f"{pen}{x:.0f} {base - share * inner:.0f}"
            pen = "L"
        css = "line good" if place < n_good else "line"
        chart.add_path(path, css, more=f' data-n="{trial.number}"')
    names = [*(s.name for s in scales), data.record.metric.name]
    for i, (x, name) in enumerate(zip(places, names, strict=True)):
        plain = _plain_scale(scales[i] if i < len(scales) else axis)
        chart.add_path(
            f"M{x:.0f} {chart.top}V{base}",
            "axis",
            more=f' data-axis="{i}" data-name="{escape(name)}" data-scale="{escape(plain)}"',
        )
        ends = (
            _ends(scales[i]) if i < len(scales) else (number_text(axis.low), number_text(axis.high))
        )
        anchor = "start" if i == 0 else "end" if i == n - 1 else "middle"
        chart.add_text(x, chart.top - 14, short_text(name, 120 // n + 4), "label", anchor)
        chart.add_text(x, chart.top - 3, ends[1], "tick", anchor)
        chart.add_text(x, base + 14, ends[0], "tick", anchor)
    return chart.svg("wide parallel")


def _plain_scale(scale: ParamScale | Axis) -> str:
    """Return a scale as JSON, by which the page's script turns places into values."""
    if isinstance(scale, ParamScale) and not scale.is_number:
        return json.dumps({"categories": [fit_line(str(c), 100) for c in scale.categories]})
    return json.dumps({"low": scale.low, "high": scale.high, "log": scale.is_log})


def _ends(scale: ParamScale) -> tuple[str, str]:
    if scale.is_number:
        return number_text(scale.low, 3), number_text(scale.high, 3)
    return short_text(str(scale.categories[0]), 14), short_text(str(scale.categories[-1]), 14)


# --- learning curves ---------------------------------------------------------------------------


def curves_section(data: StudyData) -> ReportSection | None:
    """Return the learning curves, and whether a rung's order predicts the last one."""
    metric = data.record.metric
    curves = {
        t.number: points for t in data.record.ranking() if len(points := _curve(t, metric.name)) > 1
    }
    if not curves:
        return None
    shown = dict([*curves.items()][:N_CURVES])
    values = [value for points in shown.values() for _, value in points]
    chart = Chart(
        f"{metric.name} by step",
        width=1000,
        height=320,
        x=Axis.around([step for points in shown.values() for step, _ in points], log=False),
        y=value_axis(values, metric.direction),
    )
    chart.draw_axes("step", short_text(metric.name, 30))
    best = data.record.best()
    trials = data.record.trials
    for number, points in reversed(shown.items()):
        if best is None or number != best.number:
            chart.add_line(points, "curve", f"trial {number}")
    ends = [p[-1] for n, p in shown.items() if isinstance(trials[n].outcome, PrunedOutcome)]
    chart.add_squares(ends, "pruned")
    if best is not None and best.number in shown:
        chart.add_line(shown[best.number], "curve winner", f"trial {best.number}, the best")
    sentences = [_curve_sentence(len(curves), len(shown), len(ends))]
    agreements = rung_agreements(data)
    if agreements:
        judged = [a for a in agreements if a.correlation is not None]
        if judged:
            first = judged[0]
            assert first.correlation is not None
            sentences.append(_rung_sentence(first.step, first.correlation))
    rows = [
        (
            str(a.step),
            str(a.n_stopped),
            str(a.n_compared),
            "too few" if a.correlation is None else f"{a.correlation:.2f}",
        )
        for a in agreements
    ]
    columns = ("step", "stopped there", "finished trials", "rank correlation with the end")
    table = text_table(columns, rows, title="Rungs", n_text=0)
    return ReportSection(
        "curves",
        "Learning curves",
        tuple(sentences),
        (chart.svg("wide"),),
        (table,) if rows else (),
    )


def _curve(trial: TrialRecord, metric: str) -> list[tuple[float, float]]:
    points = [
        (float(step), metrics[metric])
        for step, metrics in sorted((trial.reports or {}).items())
        if metric in metrics and math.isfinite(metrics[metric])
    ]
    stride = max(1, math.ceil(len(points) / MAX_CURVE_POINTS))
    return points[::stride] + (points[-1:] if (len(points) - 1) % stride else [])


def _curve_sentence(n: int, n_shown: int, n_pruned: int) -> str:
    which = f"the best {n_shown} of {n:,} trials" if n_shown < n else f"{n} trials"
    pruned = f"; squares mark where {n_pruned} of them were pruned" if n_pruned else ""
    return f"The reports of {which}, the best one thick{pruned}."


def _rung_sentence(step: int, correlation: float) -> str:
    sound = (
        "so stopping the worst there was sound"
        if correlation >= 0.7
        else "so stopping there is a guess"
        if correlation < 0.3
        else "so a good trial may have been stopped there now and then"
    )
    return (
        f"At step {step} the order of the trials agrees with their order at the end by "
        f"{correlation:.2f} (1: fully, 0: not at all), {sound}."
    )
