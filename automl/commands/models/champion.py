"""Decides which alias a version in MLflow's registry gets, and writes its description. Pure.

The first version is the `champion`: there is no other to compare it with. A later version becomes
the champion if it is no worse than the present champion on the same rows, which neither has seen.
Rows are the same if their digests are, and a version carries the digests of the rows that are known
to be new to it. Where nobody can tell, it is the `challenger`, with what is missing. Scores are
computed elsewhere (`new_version.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from automl.config import Task
from automl.tracking.registry.model_versions import (
    CHALLENGER,
    CHAMPION,
    DATA_TAG,
    RegisteredVersion,
)
from automl.trial import ModelsEvaluated, RowsKind, ScoreDifference, ScoreInterval

WORSE = "worse"
_NO_ROWS = (
    "there are no rows that it has not seen; register it again with some that came later: "
    "data.test=FILE"
)


@dataclass(frozen=True)
class UnseenRows:
    """Rows that the new model has not learned from, as they are recorded with its version."""

    digest: str
    kind: RowsKind
    data: str
    """Digest of the data set whose training and validation parts are all that the model can have
    learned from; empty: it learned from more."""
    words: str
    """The rows and the model's score on them, in words for the user."""
    event: ModelsEvaluated | None = None
    """The evaluation that has the model's scores on these rows."""


class ChampionComparison(NamedTuple):
    """The difference of the new model from the champion, on rows that neither has seen."""

    metric: str
    difference: ScoreDifference
    """The amount by which the new model's metric is above the champion's."""


@dataclass(frozen=True)
class ModelAlias:
    """An alias for a version, with the reason in words for the user."""

    alias: str
    why: str


def choose_alias(
    unseen: UnseenRows | None,
    champion: RegisteredVersion | None,
    compare: Callable[[], ChampionComparison | str],
) -> ModelAlias:
    """Return the alias of a new version. `compare` returns how it does beside the champion on these
    rows, or why it is unknown."""
    if champion is None:
        judged = f"scored on {unseen.words}" if unseen else _NO_ROWS
        return ModelAlias(CHAMPION, f"there is no champion yet to compare it with; {judged}")
    if unseen is None:
        return ModelAlias(CHALLENGER, _NO_ROWS)
    champion_words = f"version {champion.number}"
    if not is_new_to(champion, unseen):
        return ModelAlias(
            CHALLENGER,
            f"nobody knows whether {champion_words}, the champion, has seen its rows "
            f"({unseen.words}); register both with the same rows that came later than either: "
            "data.test=FILE",
        )
    comparison = compare()
    if isinstance(comparison, str):
        return ModelAlias(
            CHALLENGER, f"{champion_words}, the champion, cannot be compared with it: {comparison}"
        )
    metric, difference = comparison
    reason = (
        f"{metric} {difference.value:+.4g} ({difference.low:+.4g} to "
        f"{difference.high:+.4g}) from that of {champion_words} on "
        f"{unseen.words}: {difference.verdict}"
    )
    return ModelAlias(CHALLENGER if difference.verdict == WORSE else CHAMPION, reason)


def is_new_to(version: RegisteredVersion, rows: UnseenRows) -> bool:
    """Return whether it is known that a version has not seen the rows. It is if they are recorded
    with it, or if they came later and it learned from the same data set as the model that they are
    recorded for."""
    came_later = rows.kind is RowsKind.GIVEN and version.tags.get(DATA_TAG) == rows.data != ""
    return version.has_not_seen(rows.digest) or came_later


LOSS_METRIC = "loss"


def judged_metric(study_metric: str, known: Container[str]) -> str:
    """Return the study's own metric (`val_auc` is `auc`) if it is known, else the loss."""
    own = study_metric.removeprefix("val_")
    return own if own in known else LOSS_METRIC


def shown_score(score: ScoreInterval) -> str:
    """Return a score with its interval: `0.157 (0.0854 to 0.244)`."""
    return f"{score.value:.4g} ({score.low:.4g} to {score.high:.4g})"


def version_description(
    model: str,
    *,
    study: str,
    metric: str,
    task: Task,
    target: str,
    unseen: UnseenRows | None,
    own: Mapping[str, float],
    digest: str,
) -> str:
    """Return a description of a version in Markdown: how good the model is, what it is trained for,
    and which file it is.

    `metric` is the study's metric, `own` the metrics that the training reported, `digest` the
    SHA-256 of the file in hex.
    """
    task_words = f"{task.value} of `{target}`" if target else task.value
    subject = f"`{model}` of the study `{study}`: {task_words}."
    scores = {} if unseen is None or unseen.event is None else unseen.event.scores.get(model, {})
    if unseen is not None and unseen.event is not None and scores:
        own_metric = judged_metric(metric, scores)
        judged = f"{own_metric} {shown_score(scores[own_metric])} on {unseen.event.rows}."
        tables = [_table(scores)]
    else:
        listed = ", ".join(f"{name} {value:.4g}" for name, value in own.items())
        reported = f" Its training reported {listed}." if own else ""
        judged, tables = f"No rows are known that it has not seen.{reported}", []
    # The score comes first: a list of versions shows no more than the beginning.
    return "\n\n".join([judged, subject, *tables, f"SHA-256 of its ONNX file: `{digest}`"])


def model_description(study: str, task: Task, target: str) -> str:
    """Return a description of the registered model, for all versions together."""
    task_words = f"{task.value} of `{target}`" if target else task.value
    return f"{task_words[:1].upper()}{task_words[1:]}, by the study `{study}` of automl."


def _table(scores: Mapping[str, ScoreInterval]) -> str:
    rows = (
        f"| {name} | {score.value:.4g} | {score.low:.4g} to {score.high:.4g} |"
        for name, score in scores.items()
    )
    return "\n".join(["| metric | value | 95 % interval |", "|---|---|---|", *rows])
