"""Makes the section on the front of a study of several metrics: its picture, and what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from automl.record.study_record import StudyRecord
from automl.record.texts import counted
from automl.record.trial_record import TrialRecord
from automl.report.search_sections import page_params, value_axis
from automl.report.section import ReportSection, text_table
from automl.report.study_data import StudyData
from automl.report.svg import Axis, Chart, number_text, short_text
from automl.trial import Direction, MetricLimit, StudyMetric, TrialState

N_ROWS = 50
"""Largest number of trials of the front in the table."""


def front_section(data: StudyData) -> ReportSection | None:
    """Return the front, with a picture of its first two metrics; None for a study of one metric."""
    record = data.record
    names = [metric.name for metric in record.metrics.metrics]
    trials = [t for t in data.ended if {*names} <= t.values.keys()]
    best = record.best()
    if not record.metrics.are_several or best is None or best not in trials:
        return None
    front = record.front()
    sentences = (_front_sentence(record, front, best), *_limit_sentences(record, trials))
    charts = (_front_chart(record, trials, front),) if len(names) > 1 else ()
    shown = (record.metric.name, *record.metrics.more_names)
    columns = ("trial", *shown, "params")
    rows = [
        (
            f"{trial.number}{' (knee)' * (trial is best)}",
            *(number_text(trial.values[name]) for name in shown),
            page_params(trial.params),
        )
        for trial in front[:N_ROWS]
    ]
    more = f", the first {N_ROWS} of {len(front)}" if len(front) > N_ROWS else ""
    table = text_table(columns, rows, title=f"The trials of the front{more}", n_text=0)
    return ReportSection("front", "Front", sentences, charts, tables=(table,))


def _front_sentence(record: StudyRecord, front: Sequence[TrialRecord], best: TrialRecord) -> str:
    n_finished = sum(trial.state is TrialState.FINISHED for trial in record.trials.values())
    names = [metric.name for metric in record.metrics.metrics]
    if len(front) == 1:
        n = counted(n_finished, "finished trial")
        return f"Trial {best.number} is the best by every metric of {n}."
    return (
        f"{len(front)} of {n_finished:,} finished trials are on the front: no trial is better than "
        f"one of them by one of {', '.join(names)} and no worse by the others."
    )


def _limit_sentences(record: StudyRecord, trials: Sequence[TrialRecord]) -> list[str]:
    return [_limit_sentence(limit, trials) for limit in record.metrics.limits]


def _limit_sentence(limit: MetricLimit, trials: Sequence[TrialRecord]) -> str:
    values = [trial.values[limit.name] for trial in trials if limit.name in trial.values]
    n_beyond = sum(limit.excess(value) > 0 for value in values)
    return (
        f"{n_beyond} of {len(values)} trials exceed {limit.name} {number_text(limit.largest)} "
        "(study.constraints)."
    )


def _front_chart(
    record: StudyRecord, trials: Sequence[TrialRecord], front: Sequence[TrialRecord]
) -> str:
    """Return the picture of all trials by the first two metrics, and the edge of the front."""
    first, second = record.metrics.metrics[:2]
    chart = Chart(
        f"{second.name} over {first.name}",
        x=_axis(trials, first),
        y=_axis(trials, second),
    )
    chart.draw_axes(short_text(first.name, 30), short_text(second.name, 30))
    for state, add in (
        (TrialState.PRUNED, chart.add_squares),
        (TrialState.FINISHED, chart.add_dots),
    ):
        own = [t for t in trials if t.state is state]
        add([_place(t.values, first, second) for t in own], state.value, [t.number for t in own])
    edge = sorted(_place(trial.values, first, second) for trial in front)
    if first.direction is Direction.maximize:  # the edge of what is reached lies to the left
        edge.reverse()
    chart.add_steps(edge, "best")
    if (best := record.best()) is not None:
        chart.add_dots([_place(best.values, first, second)], "winner")
    return chart.svg()


def _axis(trials: Sequence[TrialRecord], metric: StudyMetric) -> Axis:
    return value_axis([trial.values[metric.name] for trial in trials], metric.direction)


def _place(
    values: Mapping[str, float], first: StudyMetric, second: StudyMetric
) -> tuple[float, float]:
    return values[first.name], values[second.name]
