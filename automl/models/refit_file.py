"""Writes `refit.pt`, one model file made of the seeds of a final training; it trains nothing.

The `best.pt` of a single seed is such a model already. Several seeds become their mean: they share
all but their weights, and `predictor.load` averages their outputs. An ensemble becomes the weighted
mean of its members, each the mean of its seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from automl.errors import AutoMLError
from automl.models.model_file import REFITTED_KEY, THRESHOLD_KEY, RefitFileJob
from automl.models.predictor import (
    MEMBER_SIZES_KEY,
    MEMBER_WEIGHTS_KEY,
    MEMBERS_KEY,
    is_model_state,
    read_checkpoint,
)
from automl.objectives.checkpoints import plain_checkpoint
from automl.record.study_files import BEST_CHECKPOINT_FILE
from automl.trial import trial_name


def write(job: RefitFileJob) -> None:
    """Write the file of a job; if that fails, a former file stays. Raises AutoMLError."""
    contents = [read_model_file(Path(seed)) for seed in job.seeds]
    states = [content["state"] for content in contents]
    if job.weights:
        content = members_content(states, job.weights)
    else:
        content = contents[0] | {"state": join_states(states)}
    if job.searched_model is not None and THRESHOLD_KEY not in content["state"]:
        searched_state = read_checkpoint(Path(job.searched_model))["state"]
        content["state"] = {
            **content["state"],
            **{key: searched_state[key] for key in (THRESHOLD_KEY,) if key in searched_state},
        }
    if len(contents) > 1:
        content["metrics"] = {}  # nobody measured their mean
    content |= {"study": job.study, REFITTED_KEY: asdict(job.refitted)}
    path = Path(job.path)
    save_model_file(path, content, list(map(Path, job.seeds)))


def members_content(
    states: Sequence[Mapping[str, Any]], weights: Mapping[int, float]
) -> dict[str, Any]:
    """Return the content of an ensemble's file, from equally many states of each member.

    `states` has the seeds of one member after those of another, in the order of `weights`.
    """
    n_seeds = len(states) // len(weights)
    begins = range(0, len(states), n_seeds)
    members = [join_states(states[begin : begin + n_seeds]) for begin in begins]
    return {
        "state": join_states(members, list(weights.values())),
        "params": {trial_name(trial): weight for trial, weight in weights.items()},
    }


def save_model_file(path: Path, content: Mapping[str, Any], models: Sequence[Path]) -> None:
    """Write a file made of `models`, with torch if torch wrote one of them. Raises StorageError."""
    plain = [plain_checkpoint.is_plain_checkpoint(model) for model in models]
    if all(plain):
        plain_checkpoint.save(path.parent, {path.name: content})
        return
    from automl.objectives.checkpoints import torch_checkpoint

    # What was read without torch holds arrays, which become tensors.
    torch_content = torch_checkpoint.snapshot(content) if any(plain) else content
    torch_checkpoint.save(path.parent, {path.name: torch_content})


def read_model_file(path: Path) -> dict[str, Any]:
    """Return the content of a model file. Raises AutoMLError for one that cannot be read."""
    try:
        return read_checkpoint(path)
    except FileNotFoundError as error:
        raise AutoMLError(
            f"{path}: there is no such file, so that there is no model to keep. A function of your "
            f"own leaves a {BEST_CHECKPOINT_FILE} where it gives a checkpoint with its reports."
        ) from error
    except ValueError as error:
        raise AutoMLError(f"{error} Remove its folder, and refit again.") from error


def join_states(
    states: Sequence[Mapping[str, Any]], weights: Sequence[float] | None = None
) -> Mapping[str, Any]:
    """Return one state for the mean of several models, weighted by `weights` if there are any."""
    if len(states) == 1:
        return states[0]
    sizes = [len(state.get(MEMBERS_KEY, [{}])) for state in states]
    if any(MEMBERS_KEY in state for state in states):
        states, weights = _split_means(states, weights or [1 / len(states)] * len(states))
    first = states[0]
    assert all(map(is_model_state, states)), "only models of ours are averaged"
    shared = {
        name: value
        for name, value in first.items()
        if all(name in state and _is_same(value, state[name]) for state in states)
    }
    members = [{n: v for n, v in state.items() if n not in shared} for state in states]
    own = {} if weights is None else {MEMBER_WEIGHTS_KEY: list(weights), MEMBER_SIZES_KEY: sizes}
    return shared | {MEMBERS_KEY: members} | own


def _split_means(
    states: Sequence[Mapping[str, Any]], weights: Sequence[float]
) -> tuple[Sequence[Mapping[str, Any]], Sequence[float]]:
    """Replace each model that is a mean itself, as of a trial with folds, by its members."""
    members_with_weights: list[tuple[Mapping[str, Any], float]] = []
    for state, weight in zip(states, weights, strict=True):
        members = state.get(MEMBERS_KEY, [{}])
        own = (MEMBERS_KEY, MEMBER_WEIGHTS_KEY, MEMBER_SIZES_KEY)
        shared = {name: value for name, value in state.items() if name not in own}
        shares = state.get(MEMBER_WEIGHTS_KEY, [1 / len(members)] * len(members))
        for member, share in zip(members, shares, strict=True):
            members_with_weights.append((shared | member, weight * share))
    return (
        [state for state, _ in members_with_weights],
        [weight for _, weight in members_with_weights],
    )


def _is_same(a: Any, b: Any) -> bool:
    """Return whether two plain values are equal. Tensors and arrays are each model's own."""
    if isinstance(a, tuple) or isinstance(b, tuple):  # a file without torch has lists alone
        return isinstance(a, tuple | list) and isinstance(b, tuple | list) and list(a) == list(b)
    try:
        return bool(a == b)
    except (RuntimeError, ValueError):  # a comparison of tensors has no single truth value
        return False
