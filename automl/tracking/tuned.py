"""What MLflow is told of an export's tuning: figures on the study's run. Pure.

`export_p50_seconds_onnx_2_threads`, one row at a time, and `export_rows_per_second_…`, whose step
is the rows of a call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from automl.tracking.cleaning import clean_key, clean_tags, finite, to_ms
from automl.tracking.run_update import KIND, STUDY, MetricPoint, RunUpdate, StudyRef
from automl.trial import Tuned

FASTEST = "automl.export"
"""The tag that says which way was chosen, of which model."""


def of_tuning(event: Tuned, study: StudyRef) -> RunUpdate:
    """What is new about the study's own run."""
    chosen = f"{event.model}: {event.chosen}" if event.chosen else f"{event.model}: none chosen"
    return RunUpdate(
        name=study.name,
        start_ms=to_ms(event.time),
        key={STUDY: study.uuid, KIND: "study"},
        birth_tags={},
        params={},
        begins=False,
        tags=clean_tags({FASTEST: chosen}),
        metrics=tuple(_points(event)),
    )


def _points(event: Tuned) -> Iterator[MetricPoint]:
    for way, figures in event.figures.items():
        slug = "_".join(re.findall(r"\w+", way))
        for name, value in figures.items():
            figure, _, n_rows = name.partition("@")
            step = int(n_rows) if re.fullmatch(r"\d{1,9}", n_rows, re.ASCII) else 0
            key = clean_key(f"export_{figure}_{slug}")
            yield MetricPoint(key, finite(value), to_ms(event.time), step)
