"""What MLflow is told of an ensemble: its members and scores on the run of the study. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from automl.record.files import PLOTS
from automl.tracking.cleaning import clean_key, clean_tags, finite, to_ms
from automl.tracking.run_update import KIND, STUDY, MetricPoint, RunUpdate, StudyRef
from automl.trial import Ensembled, trial_name

ENSEMBLE = "automl.ensemble"
"""The tag that names the members with their weights."""


def of_ensemble(
    event: Ensembled, study: StudyRef, file: Sequence[str], plots: Sequence[str]
) -> RunUpdate:
    """What is new about the study's run; `file` is the ensemble's path below the study, `plots`
    are those of the pictures of what it found."""
    members = ", ".join(f"{trial_name(n)} {weight:.3g}" for n, weight in event.members.items())
    # A later one has a later time at the same step, and is the one that is shown.
    points = [
        MetricPoint(clean_key(f"ensemble_{metric}"), finite(value), to_ms(event.time), 0)
        for metric, value in event.scores.items()
    ]
    return RunUpdate(
        name=study.name,
        start_ms=to_ms(event.time),
        key={STUDY: study.uuid, KIND: "study"},
        birth_tags={},
        params={},
        begins=False,
        tags=clean_tags({ENSEMBLE: f"{members}; chosen by {event.n_rows:,} rows"}),
        metrics=tuple(points),
        files=file,
        own_files=[(path, PLOTS) for path in plots],
    )
