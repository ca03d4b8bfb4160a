"""Makes the section on the front of a study of several metrics: its pictures, and what it says."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from automl.record.study_record import StudyRecord
from automl.record.texts import counted
from automl.record.trial_record import TrialRecord
from automl.report_page.search_sections import page_params
from automl.report_page.section import ReportSection, text_table
from automl.report_page.study_data import StudyData
from automl.report_page.svg import Axis, Chart, number_text, short_text
from automl.trial import Direction, MetricLimit, StudyMetric, TrialState
from automl.trial.study_metrics import MetricPoint, find_front, hypervolume

N_ROWS = 50
"""Largest number of trials of the front in the table."""
MAX_PAIRS = 6
"""Largest number of pictures of two metrics each."""
MAX_VOLUME_METRICS = 4
MAX_VOLUME_TRIALS = 1_000
"""Studies of more trials, or metrics, have no picture of the hypervolume, which takes long."""


def front_section(data: StudyData) -> ReportSection | None:
    """Return the front, with a picture of each two metrics; None for a study of one metric."""
    record = data.record
    names = [metric.name for metric in record.metrics.metrics]
    trials = [t for t in data.ended if {*names} <= t.values.keys()]
    best = record.best()
    if not record.metrics.are_several or best is None or best not in trials:
        return None
    front = record.front()
    sentences = (_front_sentence(record, front, best), *_limit_sentences(record, trials))
    pairs = [*itertools.combinations(record.metrics.metrics, 2)][:MAX_PAIRS]
    charts = [_front_chart(record, trials, front, first, second) for first, second in pairs]
    if (volumes := front_volumes(data)) is not None:
        charts.append(_volume_chart(volumes))
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
    return ReportSection("front", "Front", sentences, tuple(charts), tables=(table,))


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
    record: StudyRecord,
    trials: Sequence[TrialRecord],
    front: Sequence[TrialRecord],
    first: StudyMetric,
    second: StudyMetric,
) -> str:
    """Return the picture of all trials by two metrics, with the front: its edge if there are but
    two metrics, else its trials. Crosses are trials beyond a limit."""
    chart = Chart(
        f"{second.name} over {first.name}",
        x=Axis.around([trial.values[first.name] for trial in trials]),
        y=Axis.around([trial.values[second.name] for trial in trials]),
    )
    chart.draw_axes(short_text(first.name, 30), short_text(second.name, 30))
    beyond = [t for t in trials if (point := record.point(t)) is not None and point.excess > 0]
    within = [t for t in trials if t not in beyond]
    for add, css, own in (
        (chart.add_crosses, "failed", beyond),
        (chart.add_squares, "pruned", [t for t in within if t.state is TrialState.PRUNED]),
        (chart.add_dots, "finished", [t for t in within if t.state is TrialState.FINISHED]),
    ):
        add([_place(t.values, first, second) for t in own], css, [t.number for t in own])
    edge = sorted(_place(trial.values, first, second) for trial in front)
    if first.direction is Direction.maximize:  # the edge of what is reached lies to the left
        edge.reverse()
    if len(record.metrics.metrics) == 2:
        chart.add_steps(edge, "best")
    else:
        chart.add_dots(edge, "front")
    if (best := record.best()) is not None:
        chart.add_dots([_place(best.values, first, second)], "winner")
    return chart.svg()


def front_volumes(data: StudyData) -> list[tuple[int, float]] | None:
    """Return after each ended trial which part of the box between the best and the worst values the
    front dominates; None for more metrics or trials than can be computed in a moment."""
    metrics, points = data.record.metrics.metrics, []
    for trial in data.ended:
        point = data.record.point(trial) if trial.state is TrialState.FINISHED else None
        points.append(point.keys if point is not None and point.excess == 0 else None)
    known = [keys for keys in points if keys is not None]
    if len(known) < 2 or len(metrics) > MAX_VOLUME_METRICS or len(known) > MAX_VOLUME_TRIALS:
        return None
    ends = [(min(column), max(column)) for column in zip(*known, strict=True)]
    front: list[tuple[float, ...]] = []
    volumes = []
    for i, keys in enumerate(points, start=1):
        if keys is not None:
            scaled = tuple(
                (key - low) / (high - low) if high > low else 0.0
                for key, (low, high) in zip(keys, ends, strict=True)
            )
            candidates = [MetricPoint(other) for other in [*front, scaled]]
            front = [candidates[place].keys for place in find_front(candidates)]
        volumes.append((i, hypervolume(front, (1.0 + 1e-9,) * len(metrics))))
    return volumes


def _volume_chart(volumes: Sequence[tuple[int, float]]) -> str:
    chart = Chart(
        "hypervolume over trials",
        x=Axis.around([0.0, *(float(i) for i, _ in volumes)], log=False),
        y=Axis(0.0, max(volume for _, volume in volumes) * 1.05 or 1.0),
    )
    chart.draw_axes("trials in the order of their ends", "hypervolume, as a share")
    chart.add_steps([(float(i), volume) for i, volume in volumes], "best")
    return chart.svg()


def _place(
    values: Mapping[str, float], first: StudyMetric, second: StudyMetric
) -> tuple[float, float]:
    return values[first.name], values[second.name]
