"""What MLflow is told of an evaluation: scores on the runs of its trials and of the study. Pure.

`test_loss` with `test_loss_low` and `test_loss_high`, the ends of its 95 % interval; of rows by
which trials were chosen `validation_loss`, of trials with folds `out_of_fold_loss`. The study's run
has those of the first model, and the baselines' beside them (`test_loss_linear`). Of a refit there
is no run of a trial: the study's has its scores, and the trial's those of its own model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from automl.tracking.cleaning import clean_key, clean_tags, finite, to_ms
from automl.tracking.run_update import KIND, STUDY, TRIAL, MetricPoint, RunUpdate, StudyRef
from automl.trial import Difference, Evaluated, trial_name

EVALUATED = "automl.evaluated"
"""The tag that says on which rows, and how others compare."""


def of_trial(event: Evaluated, number: int, study_uuid: str) -> RunUpdate:
    """What is new about the trial's run."""
    name = trial_name(number)
    lines = [event.rows]
    if compared := event.differences.get(name):
        lines.append(f"against {event.models[0]}: {_compared(compared)}")
    key = {STUDY: study_uuid, TRIAL: str(number)}
    return _update(event, name, key, lines, of_model(event, name))


def of_study(event: Evaluated, study: StudyRef) -> RunUpdate:
    """What is new about the study's own run."""
    names = event.models
    first = names[0] if names else ""
    lines = [f"{first} on {event.rows}"]
    lines += [f"{name} against it: {_compared(of)}" for name, of in event.differences.items()]
    points = [*of_model(event, first)]
    points += [
        _point(event, f"{metric}_{name}", score.value)
        for name, scores in event.scores.items()
        if name not in names
        for metric, score in scores.items()
    ]
    return _update(event, study.name, {STUDY: study.uuid, KIND: "study"}, lines, points)


def _update(
    event: Evaluated,
    name: str,
    key: Mapping[str, str],
    lines: Iterable[str],
    points: Iterable[MetricPoint],
) -> RunUpdate:
    return RunUpdate(
        name=name,
        start_ms=to_ms(event.time),
        key=key,
        birth_tags={},
        params={},
        begins=False,
        tags=clean_tags({EVALUATED: "\n".join(lines)}),
        metrics=tuple(points),
    )


def of_model(event: Evaluated, name: str) -> Iterable[MetricPoint]:
    """The scores of one model."""
    for metric, score in event.scores.get(name, {}).items():
        yield _point(event, metric, score.value)
        yield _point(event, f"{metric}_low", score.low)
        yield _point(event, f"{metric}_high", score.high)


def _point(event: Evaluated, metric: str, value: float) -> MetricPoint:
    """A later evaluation has a later time at the same step, and is the one that is shown."""
    part = "test" if event.kind.unseen else event.kind.value
    return MetricPoint(clean_key(f"{part}_{metric}"), finite(value), to_ms(event.time), 0)


def _compared(differences: Mapping[str, Difference]) -> str:
    return ", ".join(
        f"{metric} {of.value:+.4g} ({of.low:+.4g} to {of.high:+.4g}; {of.verdict})"
        for metric, of in differences.items()
    )
