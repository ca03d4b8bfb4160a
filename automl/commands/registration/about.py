"""What MLflow's registry says of a version, for whoever has to decide on it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from automl.commands.registration.judged import metric_of, shown
from automl.commands.registration.standing import Unseen
from automl.config import Task
from automl.trial import Interval


def about_version(
    model: str,
    *,
    study: str,
    metric: str,
    task: Task,
    target: str,
    unseen: Unseen | None,
    own: Mapping[str, float],
    digest: str,
) -> str:
    """Markdown: how good the model is, what it is of, which file it is. `metric` is the study's,
    `own` what its training reported, `digest` that of its file in hex."""
    of = f"{task.value} of `{target}`" if target else task.value
    what = f"`{model}` of the study `{study}`: {of}."
    scores = {} if unseen is None or unseen.event is None else unseen.event.scores.get(model, {})
    if unseen is not None and unseen.event is not None and scores:
        own_metric = metric_of(metric, scores)
        judged = f"{own_metric} {shown(scores[own_metric])} on {unseen.event.rows}."
        more = [_table(scores)]
    else:
        listed = ", ".join(f"{name} {value:.4g}" for name, value in own.items())
        reported = f" Its training reported {listed}." if own else ""
        judged, more = f"No rows are known that it has not seen.{reported}", []
    # What it scores first: a list of versions shows no more than the beginning.
    return "\n\n".join([judged, what, *more, f"SHA-256 of its ONNX file: `{digest}`"])


def about_model(study: str, task: Task, target: str) -> str:
    """Likewise of all versions together."""
    of = f"{task.value} of `{target}`" if target else task.value
    return f"{of[:1].upper()}{of[1:]}, by the study `{study}` of automl."


def _table(scores: Mapping[str, Interval]) -> str:
    rows = (
        f"| {name} | {one.value:.4g} | {one.low:.4g} to {one.high:.4g} |"
        for name, one in scores.items()
    )
    return "\n".join(["| metric | value | 95 % interval |", "|---|---|---|", *rows])
