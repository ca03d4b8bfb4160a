"""What MLflow's registry says of a version, for whoever has to decide on it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from automl.commands.registration.standing import Unseen
from automl.config import Task
from automl.trial import Interval


def about_version(
    model: str,
    *,
    study: str,
    task: Task,
    target: str,
    unseen: Unseen | None,
    own: Mapping[str, float],
    digest: str,
) -> str:
    """Markdown: what the model is of, how good it is, which file it is. `own` is what its training
    reported, `digest` that of its file in hex."""
    scores = {} if unseen is None or unseen.event is None else unseen.event.scores.get(model, {})
    if unseen is not None and scores:
        judged = [f"On {unseen.words}", *_table(scores)]
    elif own:
        listed = ", ".join(f"{name} {value:.4g}" for name, value in own.items())
        judged = [f"No rows are known that it has not seen. Its training reported {listed}."]
    else:
        judged = ["No rows are known that it has not seen."]
    of = f"{task.value} of `{target}`" if target else task.value
    return "\n\n".join(
        [
            f"`{model}` of the study `{study}`: {of}.",
            "\n".join(judged),
            f"SHA-256 of its ONNX file: `{digest}`",
        ]
    )


def about_model(study: str, task: Task, target: str) -> str:
    """Likewise of all versions together."""
    of = f"{task.value} of `{target}`" if target else task.value
    return f"{of[:1].upper()}{of[1:]}, by the study `{study}` of automl."


def _table(scores: Mapping[str, Interval]) -> list[str]:
    return [
        "",
        "| metric | value | 95 % interval |",
        "|---|---|---|",
        *(
            f"| {name} | {one.value:.4g} | {one.low:.4g} to {one.high:.4g} |"
            for name, one in scores.items()
        ),
    ]
