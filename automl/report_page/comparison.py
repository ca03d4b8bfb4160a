"""Compares studies: the settings that differ, the best values, and how fast each came there.

Studies compare if they have one metric and one direction. Their best values are the best of many,
so only scores on the same unseen rows tell whether a difference is more than chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from automl.record.texts import fit_line
from automl.report_page.findings import best_so_far, device_seconds
from automl.report_page.page import render_page
from automl.report_page.search_sections import page_params, page_value, show_value, value_axis
from automl.report_page.section import ReportSection, ReportTable, text_table
from automl.report_page.study_data import StudyData
from automl.report_page.svg import Axis, Chart, number_text, page_duration, short_text
from automl.trial import ModelsEvaluated, ScoreInterval

N_COLOURS = 6
"""Studies beyond these are drawn in the colours of the first ones."""
_OF_FEATURES = ("data.columns", "data.combine", "data.rules")
"""Settings of data that say how rows are read. All others say which rows judge the trials."""
_OF_ITSELF = ("study.name", "study.dir")
"""Settings that differ between any two studies."""


def split_comparable(
    studies: Sequence[StudyData],
) -> tuple[Sequence[StudyData], Sequence[str]]:
    """Return the studies that compare with the first one that has a value, and a sentence on each
    of the others."""
    first = next((data for data in studies if data.valued), None)
    if first is None:
        return (), ["No study has a trial with a value yet, so there is nothing to compare."]
    kept, left_out = [], []
    for data in studies:
        if not data.valued:
            left_out.append(f"{data.record.name} is left out: no trial of it has a value.")
        elif data.record.metric != first.record.metric:
            own, other = data.record.metric, first.record.metric
            left_out.append(
                f"{data.record.name} is left out: its metric is {own.name} ({own.direction.name}), "
                f"that of {first.record.name} is {other.name} ({other.direction.name})."
            )
        else:
            kept.append(data)
    return kept, left_out


def comparison_rows(studies: Sequence[StudyData]) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Return the columns and rows of the table of studies that compare, the best first."""
    metric = studies[0].record.metric
    ordered = sorted(studies, key=lambda data: data.record.ranking()[0].value or 0.0)
    if metric.direction.name == "maximize":
        ordered.reverse()
    rows: list[Sequence[str]] = []
    for data in ordered:
        best = best_so_far(data.valued, metric.direction)[-1]
        rows.append(
            (
                data.record.name,
                page_value(best),
                str(best.number),
                f"{len(data.ended):,}",
                f"{data.valued.index(best) + 1:,}",
                page_duration(data.after_seconds(best)),
                page_duration(sum(device_seconds(data.executions).values())),
            )
        )
    columns = ("study", metric.name, "trial", "trials", "best after trials", "after", "device time")
    return columns, rows


def setting_rows(studies: Sequence[StudyData]) -> list[Sequence[str]]:
    """Return the settings that differ, with the value of each study."""
    settings = [data.record.settings for data in studies]
    keys = sorted({key for own in settings for key in own} - {*_OF_ITSELF})
    rows: list[Sequence[str]] = []
    for key in keys:
        values = [own.get(key, "") for own in settings]
        if len(set(values)) > 1:
            rows.append((key, *values))
    return rows


def data_that_differ(studies: Sequence[StudyData]) -> Sequence[str]:
    """Return the settings of data that differ: values of different rows do not compare.

    None do where the same rows judge the trials, such as those of a file and of a frame.
    """
    starts = [data.record.sweeps[-1].start for data in studies if data.record.sweeps]
    judged = {start.judged_rows for start in starts}
    if len(judged) <= 1 and judged != {""}:
        return []
    keys = [key for key, *_ in setting_rows(studies)]
    of_data = [
        key for key in keys if f"{key}.".startswith("data.") and not key.startswith(_OF_FEATURES)
    ]
    return of_data or ([] if "" in judged else ["data.path"])  # the file has other rows now


def difference_sentence(studies: Sequence[StudyData]) -> str:
    """Return whether the first two studies of the table differ by more than chance."""
    scored = _same_rows(studies)
    if scored is None and (keys := data_that_differ(studies)):
        return (
            f"The studies judged their trials by different rows ({', '.join(keys[:6])}), so their "
            "values do not compare, and none is the best. Score them on the same unseen rows: "
            "python -m automl evaluate NAME data.test=TABLE"
        )
    if scored is None:
        return (
            "Whether the difference is more than chance cannot be said: the best of many trials is "
            "too good. Score the studies on the same unseen rows: python -m automl evaluate "
            "NAME data.test=TABLE"
        )
    metric, by_study = scored
    (first, best), (second, other) = list(by_study.items())[:2]
    apart = best.high < other.low or best.low > other.high
    verdict = (
        "their 95 % intervals do not overlap, so the difference is more than chance"
        if apart
        else "their 95 % intervals overlap, so the difference may be chance"
    )
    return (
        f"On the same unseen rows {first} has {metric} {_interval(best)} and {second} "
        f"{_interval(other)}: {verdict}."
    )


def _interval(score: ScoreInterval) -> str:
    return f"{number_text(score.value)} ({number_text(score.low)} to {number_text(score.high)})"


def _same_rows(
    studies: Sequence[StudyData],
) -> tuple[str, Mapping[str, ScoreInterval]] | None:
    """Return a metric and each study's score by it on rows that no sweep saw, the same of all."""
    found: dict[str, dict[str, ModelsEvaluated]] = {}
    for data in studies:
        for event in data.record.evaluations:
            if event.kind.unseen and event.models:
                found.setdefault(event.digest, {})[data.record.name] = event
    for events in found.values():
        if len(events) == len(studies) and len(studies) > 1:
            scores = {name: event.scores[event.models[0]] for name, event in events.items()}
            shared = set.intersection(*(set(own) for own in scores.values()))
            if shared:
                own_metric = studies[0].record.metric.name.removeprefix("val_")
                metric = own_metric if own_metric in shared else sorted(shared)[0]
                return metric, {name: ScoreInterval(*own[metric]) for name, own in scores.items()}
    return None


def comparison_page(studies: Sequence[StudyData]) -> str:
    """Return the HTML page that compares studies."""
    kept, left_out = split_comparable(studies)
    name = " and ".join(data.record.name for data in studies)
    if not kept:
        return render_page(name, [ReportSection("verdict", "Verdict", tuple(left_out))])
    return render_page(name, [_verdict(kept, left_out), _curves(kept), _settings(kept)])


def _verdict(studies: Sequence[StudyData], left_out: Sequence[str]) -> ReportSection:
    columns, rows = comparison_rows(studies)
    best = next(data for data in studies if data.record.name == rows[0][0])
    trial = best.record.ranking()[0]
    tables = [text_table(columns, rows)]
    sentences = []
    if len(studies) == 1 or not data_that_differ(studies):
        sentences.append(
            f"{best.record.name} has the best {columns[1]}, {rows[0][1]}, by trial {trial.number}: "
            f"{page_params(trial.params)}."
        )
    if len(studies) > 1:
        sentences.append(difference_sentence(studies))
        tables += [*_score_table(studies), _best_table(studies)]
    return ReportSection("verdict", "Verdict", (*sentences, *left_out), tables=tuple(tables))


def _best_table(studies: Sequence[StudyData]) -> ReportTable:
    """Return the params of each study's best trial."""
    _, ordered = comparison_rows(studies)
    params_of = {data.record.name: data.record.ranking()[0].params for data in studies}
    best = {name: params_of[name] for name, *_ in ordered}
    names = list(dict.fromkeys(name for params in best.values() for name in params))
    rows = [
        (study, *(show_value(params[name]) if name in params else "" for name in names))
        for study, params in best.items()
    ]
    return text_table(("study", *names), rows, title="The best trial of each study")


def _score_table(studies: Sequence[StudyData]) -> list[ReportTable]:
    scored = _same_rows(studies)
    if scored is None:
        return []
    metric, by_study = scored
    rows = [(name, _interval(score)) for name, score in by_study.items()]
    return [text_table(("study", metric), rows, title="On the same unseen rows, 95 % intervals")]


def _curves(studies: Sequence[StudyData]) -> ReportSection:
    metric = studies[0].record.metric
    values = value_axis([t.value or 0.0 for data in studies for t in data.valued], metric.direction)
    by_trial, by_time, shares = [], [], []
    for data in studies:
        steps = best_so_far(data.valued, metric.direction)
        n, last = len(data.valued), data.valued[-1]
        line = [(float(data.valued.index(t) + 1), t.value or 0.0) for t in steps]
        by_trial.append([*line, (float(n), line[-1][1])])
        times = [(data.after_seconds(t), t.value or 0.0) for t in steps]
        by_time.append([*times, (data.after_seconds(last), times[-1][1])])
        ordered = sorted(t.value or 0.0 for t in data.valued)
        shares.append([(value, (i + 1) / n) for i, value in enumerate(ordered)])
    name = short_text(metric.name, 30)
    best = value_axis([value for line in by_trial for _, value in line], metric.direction)
    charts = [
        _steps_chart("best so far over trials", by_trial, "trials with a value", name, best),
        _steps_chart(
            "best so far over time", by_time, "seconds in which a sweep worked", name, best
        ),
        _steps_chart("values of all trials", shares, name, "share of trials at most", None, values),
    ]
    names = tuple(fit_line(data.record.name, 60) for data in studies)
    sentence = "Each study's best value so far, over its trials and its time, and all its values."
    return ReportSection("curves", "Progress", (sentence,), tuple(charts), lines=names)


def _steps_chart(
    title: str,
    lines: Sequence[Sequence[tuple[float, float]]],
    x_label: str,
    y_label: str,
    y: Axis | None,
    x: Axis | None = None,
) -> str:
    across = x or Axis.around([0.0, *(p[0] for line in lines for p in line)], log=False)
    chart = Chart(title, x=across, y=y or Axis(0.0, 1.0))
    chart.draw_axes(x_label, y_label)
    for i, line in enumerate(lines):
        chart.add_steps(line, f"study s{i % N_COLOURS}")
    return chart.svg("small")


def _settings(studies: Sequence[StudyData]) -> ReportSection:
    rows = setting_rows(studies)
    names = [fit_line(data.record.name, 60) for data in studies]
    table = text_table(("setting", *names), rows, n_text=1 + len(names))
    differ = "1 setting differs" if len(rows) == 1 else f"{len(rows)} settings differ"
    sentence = f"{differ}." if rows else "All settings are the same."
    return ReportSection("settings", "Settings that differ", (sentence,), tables=(table,))


def comparison_file(folder: Path, studies: Sequence[StudyData]) -> Path:
    """Return the place of the page that compares these studies: in the folder of studies."""
    names = "-and-".join(data.record.name for data in studies)
    return folder / f"compare-{fit_line(names, 120)}.html"
