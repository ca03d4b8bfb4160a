"""Makes the sections of a study of a table: its leaderboard, and what its ensemble goes by."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

from automl.record.texts import counted
from automl.report_page.bars_chart import LevelBar, bars_chart
from automl.report_page.section import ReportSection, ReportTable, text_table
from automl.report_page.study_data import StudyData
from automl.report_page.svg import Axis, Chart, number_text, short_text
from automl.trial import EnsembleFindings

_CELL_OPACITY = 0.55
"""Opacity of the cell whose rows are all taken for its class; letters stay legible on it."""
_LETTER = 7
"""Width of a letter in pixels, to keep the names of columns apart."""
_MIN_CELL = 34
"""Smallest width of a cell in pixels that shows its share."""


def leaderboard_section(data: StudyData, choice: str | None) -> ReportSection | None:
    """Return the table of all models, and that of families; None: the study is of no table.

    `choice`: the param that names the family; None: the study has one family.
    """
    if not data.board or not data.ended:
        return None
    ensemble = data.record.ensemble
    sentences = ["Every model of the study; a click on a row tells what is behind it."]
    if ensemble is not None and ensemble.intervals:
        sentences.append(
            f"The intervals (95 %) come from the {counted(ensemble.n_rows, 'row')} that judge the "
            "models. Models were chosen by these rows, so that the best are a little too good."
        )
    families = [] if choice is None else _families(data, choice)
    if families:
        first, second = families[0].rows[:2]
        sentences.append(f"{first.cells[0]} is the best family, {second.cells[0]} the second.")
    title = "Leaderboard"
    return ReportSection(
        "leaderboard", title, tuple(sentences), tables=tuple(families), has_trials=True
    )


def _families(data: StudyData, choice: str) -> list[ReportTable]:
    """Return the table of families with the best trial of each; none for a single family."""
    ranked = data.record.ranking()
    best_of: dict[str, tuple[int, float]] = {}
    counts = Counter(str(t.params[choice]) for t in ranked if choice in t.params)
    weights: dict[str, float] = defaultdict(float)
    members = {} if data.record.ensemble is None else data.record.ensemble.members
    for trial in ranked:
        if choice in trial.params and trial.value is not None:
            family = str(trial.params[choice])
            best_of.setdefault(family, (trial.number, trial.value))
            weights[family] += members.get(trial.number, 0.0)
    rows = [
        (name, number_text(value), str(number), str(counts[name]), f"{weights[name]:.0%}")
        for name, (number, value) in best_of.items()
    ]
    columns = ("family", data.record.metric.name, "best trial", "trials", "weight")
    table = text_table(columns, rows, title="Families", folded=True)
    return [table] if len(rows) > 1 else []


# --- what the ensemble goes by --------------------------------------------------------------------


def ensemble_section(data: StudyData) -> ReportSection | None:
    """Return the pictures of what the ensemble goes by; None if nobody found out."""
    ensemble = data.record.ensemble
    if not data.board or ensemble is None or (found := ensemble.findings) is None:
        return None
    sentences, charts, tables = [], list[str](), list[ReportTable]()
    if found.importances:
        sentences.append(_importance_sentence(found))
        charts.append(_importance_chart(found))
        tables.append(_importance_table(found))
    if found.classes:
        sentences.append(_confusion_sentence(found, ensemble.n_rows))
        charts += [_confusion_chart(found), _calibration_chart(found)]
        tables.append(_confusion_table(found))
    elif found.pairs:
        shown = f"{len(found.pairs):,} of " if len(found.pairs) < ensemble.n_rows else ""
        sentences.append(
            f"True and predicted values of {shown}{counted(ensemble.n_rows, 'row')}: on the dashed "
            "line both are the same."
        )
        charts.append(_pairs_chart(found))
    if not sentences:
        return None
    return ReportSection(
        "why",
        "What the ensemble goes by",
        tuple(sentences),
        tuple(charts),
        tables=tuple(tables),
    )


def _importance_sentence(found: EnsembleFindings) -> str:
    first = found.importances[0]
    what = f"of {counted(found.n_columns, 'column')}" if found.n_columns > 1 else "of one column"
    if first.rise <= 0:
        return f"The loss rises by no column {what} that is shuffled: none matters by itself."
    return (
        f"{short_text(first.name, 40)} matters most {what}: shuffled, it raises the loss from "
        f"{number_text(found.loss, 3)} by {number_text(first.rise, 3)}, on "
        f"{counted(found.n_rows, 'row')} that no model asked has seen."
    )


def _importance_chart(found: EnsembleFindings) -> str:
    bars = [
        LevelBar(
            column.name,
            column.rise,
            column.rise - column.standard_deviation,
            column.rise + column.standard_deviation,
            f"{number_text(column.rise, 2)} ± {number_text(column.standard_deviation, 1)}",
        )
        for column in found.importances
    ]
    notes = ("rise of the loss where the column is shuffled;", "thin line: ± its deviation")
    return bars_chart("columns that matter", bars, notes)


def _importance_table(found: EnsembleFindings) -> ReportTable:
    rows = [
        (c.name, f"{number_text(c.rise, 3)} ± {number_text(c.standard_deviation, 2)}")
        for c in found.importances
    ]
    return text_table(("column", "rise of the loss"), rows, title="Columns", folded=True)


def _confusion_sentence(found: EnsembleFindings, n_rows: int) -> str:
    wrong = [
        (n, row, column)
        for row, counts in enumerate(found.confusion)
        for column, n in enumerate(counts)
        if row != column and n
    ]
    if not wrong:
        return f"No class is taken for another in {counted(n_rows, 'row')}."
    n, row, column = max(wrong, key=lambda each: each[0])
    true, taken = (short_text(found.classes[place], 40) for place in (row, column))
    return (
        f"Most often {true} is taken for {taken}: {n:,} of its "
        f"{counted(sum(found.confusion[row]), 'row')}."
    )


def _confusion_chart(found: EnsembleFindings) -> str:
    n = len(found.classes)
    chart = Chart("what rows of each class are taken for", width=420, height=320, left=146)
    chart.top, chart.bottom = 44, 8
    wide = (chart.width - chart.left - chart.right) / n
    tall = (chart.height - chart.top - chart.bottom) / n
    chart.add_text(8, 14, "class (rows), and what its rows are taken for", "label")
    letters = int(wide / _LETTER)
    is_numbered = any(len(name) > letters for name in found.classes)
    for row, (name, counts) in enumerate(zip(found.classes, found.confusion, strict=True)):
        total, top = sum(counts), chart.top + row * tall
        number = f"{row + 1} " if is_numbered else ""
        text = f"{number}{short_text(name, 11)} ({total:,})"
        chart.add_text(chart.left - 6, top + tall / 2 + 4, text, "tick", "end")
        for column, count in enumerate(counts):
            share = count / total if total else 0.0
            _draw_cell(chart, (chart.left + column * wide, top, wide, tall), share)
    for column, name in enumerate(found.classes):
        text = str(column + 1) if is_numbered else name
        place = chart.left + (column + 0.5) * wide
        chart.add_text(place, chart.top - 6, text, "tick", "middle")
    return chart.svg("small")


def _draw_cell(chart: Chart, box: tuple[float, float, float, float], share: float) -> None:
    left, top, wide, tall = box
    chart.marks.append(
        f'<rect class="bar" x="{left + 0.5:.1f}" y="{top + 0.5:.1f}" width="{wide - 1:.1f}" '
        f'height="{tall - 1:.1f}" fill-opacity="{_CELL_OPACITY * share:.2f}"></rect>'
    )
    if share and wide >= _MIN_CELL:
        chart.add_text(left + wide / 2, top + tall / 2 + 4, f"{share:.0%}", "label", "middle")


def _confusion_table(found: EnsembleFindings) -> ReportTable:
    rows = [
        (name, *(f"{n:,}" for n in counts))
        for name, counts in zip(found.classes, found.confusion, strict=True)
    ]
    columns = ("class", *(f"as {name}" for name in found.classes))
    return text_table(columns, rows, title="Rows by class", folded=True)


def _calibration_chart(found: EnsembleFindings) -> str:
    chart = Chart("calibration", width=420, height=320, right=22)
    of_class = f"of {short_text(found.classes[1], 16)}" if len(found.classes) == 2 else "of a class"
    chart.draw_axes(f"probability {of_class} that is predicted", "share that is of the class")
    chart.add_path(_diagonal(chart), "asked")
    points = [(point.predicted, point.observed) for point in found.calibration]
    chart.add_line(points, "seen")
    most = max((point.n_rows for point in found.calibration), default=1)
    for point in found.calibration:
        radius = 2.5 + 6 * math.sqrt(point.n_rows / most)
        chart.marks.append(
            f'<circle class="rows" cx="{chart.x_at(point.predicted):.1f}" '
            f'cy="{chart.y_at(point.observed):.1f}" r="{radius:.1f}"><title>{point.n_rows:,} rows'
            "</title></circle>"
        )
    return chart.svg("small")


def _pairs_chart(found: EnsembleFindings) -> str:
    axis = Axis.around((value for pair in found.pairs for value in pair), log=False)
    chart = Chart("predicted values against true ones", width=420, height=320, right=22)
    chart.x = chart.y = axis
    chart.draw_axes("true value", "predicted value")
    chart.add_path(_diagonal(chart), "asked")
    chart.add_dots([(true, predicted) for true, predicted in found.pairs], "finished")
    return chart.svg("small")


def _diagonal(chart: Chart) -> str:
    base, right = chart.height - chart.bottom, chart.width - chart.right
    return f"M{chart.left} {base}L{right} {chart.top}"
