"""Writes `refit.pt`: what the seeds of a final training became, as one model file.

One seed's `best.pt` is it already. Of several the model is their mean: they share all but their
weights, and `predictor.load` averages what they give. Of an ensemble it is the weighted mean of its
members, each the mean of its seeds.
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
from automl.record.study_files import BEST
from automl.trial import trial_name


def write(asked: RefitFileJob) -> None:
    """Write the file; whole, or the one of before stands. Raises AutoMLError."""
    contents = [read_model_file(Path(seed)) for seed in asked.seeds]
    states = [content["state"] for content in contents]
    if asked.weights:
        content = members_content(states, asked.weights)
    else:
        content = contents[0] | {"state": join_states(states)}
    if asked.searched is not None and THRESHOLD_KEY not in content["state"]:
        found = read_checkpoint(Path(asked.searched))["state"]
        content["state"] = {
            **content["state"],
            **{n: found[n] for n in (THRESHOLD_KEY,) if n in found},
        }
    if len(contents) > 1:
        content["metrics"] = {}  # nobody measured their mean
    content |= {"study": asked.study, REFITTED_KEY: asdict(asked.refitted)}
    path = Path(asked.path)
    save_model_file(path, content, list(map(Path, asked.seeds)))


def members_content(
    states: Sequence[Mapping[str, Any]], weights: Mapping[int, float]
) -> dict[str, Any]:
    """What the file of an ensemble says of these models, as many of each member."""
    n_seeds = len(states) // len(weights)
    begins = range(0, len(states), n_seeds)
    each = [join_states(states[begin : begin + n_seeds]) for begin in begins]
    return {
        "state": join_states(each, list(weights.values())),
        "params": {trial_name(trial): weight for trial, weight in weights.items()},
    }


def save_model_file(path: Path, content: Mapping[str, Any], models: Sequence[Path]) -> None:
    """Write what was made of these models: without torch where all of them were. Raises
    StorageError."""
    plain = [plain_checkpoint.is_plain_checkpoint(model) for model in models]
    if all(plain):
        plain_checkpoint.save(path.parent, {path.name: content})
        return
    from automl.objectives.checkpoints import torch_checkpoint

    # What was read without torch holds arrays, which become tensors.
    whole = torch_checkpoint.snapshot(content) if any(plain) else content
    torch_checkpoint.save(path.parent, {path.name: whole})


def read_model_file(path: Path) -> dict[str, Any]:
    """All that a model file holds. Raises AutoMLError for one that cannot be read."""
    try:
        return read_checkpoint(path)
    except FileNotFoundError as error:
        raise AutoMLError(
            f"{path}: there is no such file, so that there is no model to keep. A function of your "
            f"own leaves a {BEST} where it gives a checkpoint with its reports."
        ) from error
    except ValueError as error:
        raise AutoMLError(f"{error} Remove its folder, and refit again.") from error


def join_states(
    states: Sequence[Mapping[str, Any]], weights: Sequence[float] | None = None
) -> Mapping[str, Any]:
    """One state of several models', which is their mean, by `weights` if they have some."""
    if len(states) == 1:
        return states[0]
    sizes = [len(state.get(MEMBERS_KEY, [{}])) for state in states]
    if any(MEMBERS_KEY in state for state in states):
        states, weights = _apart(states, weights or [1 / len(states)] * len(states))
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


def _apart(
    states: Sequence[Mapping[str, Any]], weights: Sequence[float]
) -> tuple[Sequence[Mapping[str, Any]], Sequence[float]]:
    """Of a model that is a mean itself, such as that of a trial with folds, each member."""
    found: list[tuple[Mapping[str, Any], float]] = []
    for state, weight in zip(states, weights, strict=True):
        members = state.get(MEMBERS_KEY, [{}])
        own = (MEMBERS_KEY, MEMBER_WEIGHTS_KEY, MEMBER_SIZES_KEY)
        shared = {name: value for name, value in state.items() if name not in own}
        shares = state.get(MEMBER_WEIGHTS_KEY, [1 / len(members)] * len(members))
        for member, share in zip(members, shares, strict=True):
            found.append((shared | member, weight * share))
    return [state for state, _ in found], [weight for _, weight in found]


def _is_same(a: Any, b: Any) -> bool:
    """Of plain values; what holds tensors or arrays is each model's own."""
    if isinstance(a, tuple) or isinstance(b, tuple):  # a file without torch has lists alone
        return isinstance(a, tuple | list) and isinstance(b, tuple | list) and list(a) == list(b)
    try:
        return bool(a == b)
    except (RuntimeError, ValueError):  # of tensors nothing tells in one word
        return False
