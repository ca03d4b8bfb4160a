"""Which alias a version gets. Pure.

The first version is the `champion`: there is nothing to compare it with. A later one is if it is no
worse than the champion before it on the same rows, which neither has seen. Rows are the same if
their digests are, and a version carries the digests of those that are known to be new to it. Where
nobody can tell, it is `challenger`, with what is missing.

By which metric models are judged, and how a score is told. Pure.

What MLflow's registry says of a version, for whoever has to decide on it. Pure.
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
    "data.test_path=FILE"
)


@dataclass(frozen=True)
class UnseenRows:
    """Rows that the new model has not learned from."""

    digest: str
    kind: RowsKind
    data: str
    """Digest of the data set whose training and validation parts are all that the model can have
    learned from; empty: it learned from more."""
    words: str
    """For people."""
    event: ModelsEvaluated | None = None
    """Its scores there."""


class ChampionComparison(NamedTuple):
    """The new model beside the champion."""

    metric: str
    difference: ScoreDifference
    """By how much the new one's is above the champion's."""


@dataclass(frozen=True)
class ModelAlias:
    """An alias, and why."""

    alias: str
    why: str


def choose_alias(
    unseen: UnseenRows | None,
    champion: RegisteredVersion | None,
    compare: Callable[[], ChampionComparison | str],
) -> ModelAlias:
    """`compare` tells how the new one stands beside the champion on these rows, or why nobody can
    tell."""
    if champion is None:
        judged = f"scored on {unseen.words}" if unseen else _NO_ROWS
        return ModelAlias(CHAMPION, f"there is no champion yet to compare it with; {judged}")
    if unseen is None:
        return ModelAlias(CHALLENGER, _NO_ROWS)
    before = f"version {champion.number}"
    if not is_new_to(champion, unseen):
        return ModelAlias(
            CHALLENGER,
            f"nobody knows whether {before}, the champion, has seen its rows ({unseen.words}); "
            "register both with the same rows that came later than either: data.test_path=FILE",
        )
    found = compare()
    if isinstance(found, str):
        return ModelAlias(
            CHALLENGER, f"{before}, the champion, cannot be compared with it: {found}"
        )
    metric, by = found
    said = (
        f"{metric} {by.value:+.4g} ({by.low:+.4g} to {by.high:+.4g}) from that of {before} on "
        f"{unseen.words}: {by.verdict}"
    )
    return ModelAlias(CHALLENGER if by.verdict == WORSE else CHAMPION, said)


def is_new_to(version: RegisteredVersion, rows: UnseenRows) -> bool:
    """Whether it is known that a version has not seen the rows: they are recorded with it, or they
    came later, and it learned from the same data set as the model that they are recorded for."""
    later = rows.kind is RowsKind.GIVEN and version.tags.get(DATA_TAG) == rows.data != ""
    return version.has_not_seen(rows.digest) or later


LOSS = "loss"


def judged_metric(study_metric: str, known: Container[str]) -> str:
    """The study's own metric (`val_auc` is `auc`) where it is known, else the loss."""
    own = study_metric.removeprefix("val_")
    return own if own in known else LOSS


def shown_score(score: ScoreInterval) -> str:
    """`0.157 (0.0854 to 0.244)`."""
    return f"{score.value:.4g} ({score.low:.4g} to {score.high:.4g})"


def about_version(
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
    """Markdown: how good the model is, what it is of, which file it is. `metric` is the study's,
    `own` what its training reported, `digest` that of its file in hex."""
    of = f"{task.value} of `{target}`" if target else task.value
    what = f"`{model}` of the study `{study}`: {of}."
    scores = {} if unseen is None or unseen.event is None else unseen.event.scores.get(model, {})
    if unseen is not None and unseen.event is not None and scores:
        own_metric = judged_metric(metric, scores)
        judged = f"{own_metric} {shown_score(scores[own_metric])} on {unseen.event.rows}."
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


def _table(scores: Mapping[str, ScoreInterval]) -> str:
    rows = (
        f"| {name} | {one.value:.4g} | {one.low:.4g} to {one.high:.4g} |"
        for name, one in scores.items()
    )
    return "\n".join(["| metric | value | 95 % interval |", "|---|---|---|", *rows])
