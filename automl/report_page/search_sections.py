"""Makes the sections that say how the search went: verdict, progress, params, curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from automl.record.texts import counted
from automl.record.trial_record import ERROR_SUFFIX, NEAR, TrialRecord, is_value_returned
from automl.report_page.findings import (
    RungAgreement,
    best_so_far,
    comparable_trials,
    rung_agreements,
)
from automl.report_page.section import ReportSection, text_table
from automl.report_page.study_data import StudyData
from automl.report_page.svg import (
    Axis,
    Chart,
    Point,
    number_text,
    numbered,
    page_duration,
    short_text,
    time_unit,
)
from automl.trial import (
    Direction,
    ParamValue,
    PrunedOutcome,
    TrialState,
)

N_SLICES = 4
MIN_DISTRIBUTION = 10
"""Least number of values whose distribution is drawn."""
N_CURVES = 300
"""Largest number of learning curves that are drawn; the best trials come first."""
MAX_CURVE_POINTS = 60
MAX_TIPS = 100
"""More curves have no text of their own: the page's script tells their trials."""
N_LINES = 400
"""Largest number of trials that are drawn as lines over all params."""


def value_axis(values: Sequence[float], direction: Direction, held: Sequence[float] = ()) -> Axis:
    """Return an axis for trial values on which the worst twentieth does not crowd the others. It
    holds the finite values among `held`, however bad they are."""
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
    return Axis.around([*shown, *filter(math.isfinite, held)])


def show_value(value: ParamValue) -> str:
    """Return a param's value for people."""
    return number_text(value) if isinstance(value, float) else short_text(str(value), 40)


def page_params(params: Mapping[str, ParamValue]) -> str:
    return ", ".join(
        f"{short_text(name, 40)} {show_value(value)}" for name, value in params.items()
    )


def page_value(trial: TrialRecord) -> str:
    """Return the value of a trial, with its standard error over repeats or folds if known."""
    shown, error = number_text(trial.value or 0.0), trial.standard_error
    return shown if error is None else f"{shown} ± {number_text(error, 2)}"


# --- progress ----------------------------------------------------------------------------------


def progress_section(data: StudyData) -> ReportSection | None:
    """Return the best value so far, over trials and over time."""
    valued, metric = data.valued, data.record.metric
    if not valued:
        return None
    steps = best_so_far(comparable_trials(data), metric.direction)
    axis = value_axis([t.value or 0.0 for t in valued], metric.direction)
    unit, name = time_unit(max(map(data.after_seconds, valued)))
    charts = [
        _progress_chart(
            "trials in the order of their ends",
            {t.number: float(i + 1) for i, t in enumerate(data.ended)},
            data,
            steps,
            axis,
        ),
        _progress_chart(
            f"{name} in which a sweep worked",
            {t.number: data.after_seconds(t) / unit for t in data.ended},
            data,
            steps,
            axis,
        ),
    ]
    if len(valued) >= MIN_DISTRIBUTION:
        charts.append(_distribution_chart(data, axis))
    best, n = steps[-1], len(steps) - 1
    improved = "nothing was better" if not n else f"it was improved {counted(n, 'time')}"
    place = [trial.number for trial in data.ended].index(best.number) + 1
    compared = ", and do not compare with finished ones" if data.record.returns_values else ""
    pruned = f" Pruned trials show their best report until they were stopped{compared}."
    pruned = pruned if data.record.counts()[TrialState.PRUNED] else ""
    sentence = (
        f"The best value is that of trial {best.number}, number {place:,} of {len(data.ended):,} "
        f"to end, after {page_duration(data.after_seconds(best))} in which a sweep worked; "
        f"{improved}.{pruned}"
    )
    beyond = sum(axis.is_beyond(t.value or 0.0) for t in valued)
    lie = "1 trial lies" if beyond == 1 else f"{beyond} trials lie"
    notes = (f"{lie} beyond the picture: a triangle at its edge.",) if beyond else ()
    rows = [
        (
            str(t.number),
            number_text(t.value or 0.0),
            page_duration(data.after_seconds(t)),
            page_params({n: t.params[n] for n in data.scales if n in t.params}),
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
    sentences = (sentence, *_value_sentences(data.valued), *notes)
    return ReportSection("progress", "Progress", sentences, tuple(charts), tables=(table,))


def _progress_chart(
    label: str,
    places: Mapping[int, float],
    data: StudyData,
    steps: Sequence[TrialRecord],
    axis: Axis,
) -> str:
    metric = data.record.metric
    chart = Chart(f"{metric.name} over {label}", x=Axis.around([0.0, *places.values()]), y=axis)
    whole = [(v, number_text(v)) for v in chart.x.ticks() if v == round(v)]
    ticks = whole if all(place == round(place) for place in places.values()) else None
    chart.draw_axes(label, short_text(metric.name, 30), x_ticks=ticks)
    pruned = [t for t in data.valued if t.state is TrialState.PRUNED]
    finished = [t for t in data.valued if t.state is TrialState.FINISHED]
    for trials, add, css in (
        (pruned, chart.add_squares, "pruned"),
        (finished, chart.add_dots, "finished"),
    ):
        points = [(places[t.number], t.value or 0.0) for t in trials]
        add(points, css, [t.number for t in trials])
    failed = [t for t in data.ended if t.value is None]
    worst = axis.low if metric.direction is Direction.maximize else axis.high
    crosses = [(places[t.number], worst) for t in failed]
    chart.add_crosses(crosses, "failed", [t.number for t in failed])
    line = [(places[t.number], t.value or 0.0) for t in steps]
    chart.add_steps([*line, (max(places.values()), line[-1][1])], "best")
    return chart.svg()


def _distribution_chart(data: StudyData, axis: Axis) -> str:
    """Return the distribution of the values of finished and of pruned trials."""
    metric = data.record.metric
    is_low_good = metric.direction is Direction.minimize
    chart = Chart(f"distribution of {metric.name}", x=axis, y=Axis(0.0, 1.0))
    meaning = "at most" if is_low_good else "at least"
    chart.draw_axes(f"{short_text(metric.name, 30)} {meaning}", "share of trials")
    for state in (TrialState.PRUNED, TrialState.FINISHED):
        values = [t.value or 0.0 for t in data.valued if t.state is state]
        ordered = sorted(values, reverse=not is_low_good)
        shares = [(value, (i + 1) / len(ordered)) for i, value in enumerate(ordered)]
        shown = [point for point in shares if not axis.is_beyond(point[0])]
        chart.add_steps(shown, f"share {state.value}")
    return chart.svg()


# --- learning curves ---------------------------------------------------------------------------


def curves_section(data: StudyData) -> ReportSection | None:
    """Return the learning curves, and whether a rung's order predicts the last one."""
    metric = data.record.metric
    curves = {
        t.number: points for t in data.record.ranking() if len(points := _curve(t, metric.name)) > 1
    }
    if not curves:
        return None
    shown, best = dict([*curves.items()][:N_CURVES]), data.record.best()
    best_values = [value for _, value in shown.get(-1 if best is None else best.number, ())]
    values = [value for points in shown.values() for _, value in points]
    chart = Chart(
        f"{metric.name} by step",
        width=1000,
        height=320,
        x=Axis.around([step for points in shown.values() for step, _ in points], log=False),
        y=value_axis(values, metric.direction, best_values),
    )
    chart.draw_axes("step", short_text(metric.name, 30))
    trials = data.record.trials
    for number, points in reversed(shown.items()):
        if best is None or number != best.number:
            tip = f"trial {number}" if len(shown) <= MAX_TIPS else ""
            more = _curve_attributes(trials[number], points)
            chart.add_line(points, "curve", tip, more, whole=len(shown) > MAX_TIPS)
    pruned = [n for n in shown if isinstance(trials[n].outcome, PrunedOutcome)]
    ends = [shown[n][-1] for n in pruned]
    chart.add_ticks(ends, "pruned", f' data-of="{" ".join(map(str, pruned))}"')
    if best is not None and best.number in shown:
        chart.add_band(_curve_band(best, metric.name), "band")
        tip = f"trial {best.number}, the best"
        more = _curve_attributes(best, shown[best.number])
        chart.add_line(shown[best.number], "curve winner", tip, more)
    is_best_shown = best is not None and best.number in shown
    sentences = [_curve_sentence(len(curves), len(shown), len(ends), is_best_shown)]
    agreements = rung_agreements(data)
    if agreements:
        judged = [a for a in agreements if a.correlation is not None]
        if judged:
            first = judged[0]
            assert first.correlation is not None
            sentences.append(_rung_sentence(first))
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
        (chart.svg("wide curves", chart.frame),),
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


MAX_PACE_ERROR = 0.01
"""Share of a curve's time by which its points may lie beside a constant pace."""


def _curve_attributes(trial: TrialRecord, points: Sequence[Point]) -> str:
    """Return the attributes by which the page's script knows a curve's trial, and the time in which
    it had run at each point: the first and the last alone where it went on at a constant pace."""
    seconds = [trial.report_seconds.get(round(step)) for step, _ in points]
    known = [each for each in seconds if each is not None]
    if len(known) < len(points):
        return numbered([trial.number])
    (first, last), steps = (known[0], known[-1]), [step for step, _ in points]
    pace = (last - first) / (steps[-1] - steps[0])
    expected = [first + pace * (step - steps[0]) for step in steps]
    off = max(abs(a - b) for a, b in zip(known, expected, strict=True))
    shown = (first, last) if off <= MAX_PACE_ERROR * (last - first) else known
    return f'{numbered([trial.number])} data-s="{" ".join(f"{each:.4g}" for each in shown)}"'


def _curve_band(trial: TrialRecord, metric: str) -> list[tuple[float, float, float]]:
    """Return the steps of a trial with repeats, each with the ends of mean ± standard error."""
    error = f"{metric}{ERROR_SUFFIX}"
    means, errors = dict(_curve(trial, metric)), dict(_curve(trial, error))
    return [(s, means[s] - errors[s], means[s] + errors[s]) for s in means if s in errors]


def _curve_sentence(n: int, n_shown: int, n_pruned: int, is_best_shown: bool) -> str:
    which = f"the best {n_shown} of {counted(n, 'trial')}" if n_shown < n else counted(n, "trial")
    pruned = f"; ticks mark where {n_pruned} of them were pruned" if n_pruned else ""
    thick = ", the best one thick" if is_best_shown else ""
    return f"The reports of {which}{thick}{pruned}."


def _value_sentences(trials: Sequence[TrialRecord]) -> list[str]:
    """Return how the values of the finished trials relate to their reports, if there are some."""
    finished = [t for t in trials if t.state is TrialState.FINISHED and t.value is not None]
    reporting = [t for t in finished if t.best_value is not None]
    others = [t for t in reporting if is_value_returned(t.value or 0.0, t.best_value)]
    made = [t for t in reporting if t.standard_error is not None and t.value != t.best_value]
    if not reporting:
        return []
    if made and not any(trial.reported for trial in others):
        return [
            f"The value of {len(made):,} of the {len(finished):,} finished ones was made of "
            "several trainings or models at the trial's end, and is none of their reports."
        ]
    if not others:
        which = "A trial" if len(reporting) == len(finished) else "A reporting trial"
        are_equal = all(trial.value == trial.best_value for trial in reporting)
        return [f"{which}'s value is its best report{'' if are_equal else f', within {NEAR:.0%}'}."]
    return [
        f"The value of {len(others):,} of the {len(finished):,} finished ones was returned or "
        f"told, and is more than {NEAR:.0%} from their best report."
    ]


def _rung_sentence(rung: RungAgreement) -> str:
    assert rung.correlation is not None, "asked for rungs that have one"
    if rung.correlation >= 0.7:
        meaning = "a hint that stopping the worst there was sound"
    elif rung.correlation < 0.3:
        meaning = "so stopping there is a guess"
    else:
        meaning = "so a good trial may have been stopped there now and then"
    return (
        f"Among the {rung.n_compared} trials that finished, the rank correlation of the order at "
        f"step {rung.step} with the order at the end is {rung.correlation:.2f} (1: the same order, "
        f"0: no relation), {meaning}."
    )
