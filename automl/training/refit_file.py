"""Writes `refit.pt`: what the seeds of a final training became, as one model file.

One seed's `best.pt` is it already. Of several the model is their mean: they share all but their
weights, and `predictor.load` averages what they give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automl.errors import AutoMLError
from automl.record.files import BEST
from automl.training import plain_checkpoint
from automl.training.predictor import MEMBERS, content_of, is_model


@dataclass(frozen=True)
class RefitFile:
    """What is written, and of what. Picklable."""

    path: str
    seeds: Sequence[str]
    """The `best.pt` of each."""
    study: str
    trial: int
    """The one that was trained again."""


def write(asked: RefitFile) -> None:
    """Write the file; whole, or the one of before stands. Raises AutoMLError."""
    contents = [_read(Path(seed)) for seed in asked.seeds]
    content = contents[0] | {"state": _mean([content["state"] for content in contents])}
    if len(contents) > 1:
        content["metrics"] = {}  # nobody measured their mean
    content |= {"study": asked.study, "refit_of": asked.trial}
    path = Path(asked.path)
    _save(path, content, without_torch=all(map(plain_checkpoint.is_plain, map(Path, asked.seeds))))


def _save(path: Path, content: Mapping[str, Any], *, without_torch: bool) -> None:
    """As the seeds were written."""
    if without_torch:
        plain_checkpoint.save(path.parent, {path.name: content})
        return
    from automl.training import checkpoint

    checkpoint.save(path.parent, {path.name: content})


def _read(path: Path) -> dict[str, Any]:
    try:
        return content_of(path)
    except FileNotFoundError as error:
        raise AutoMLError(
            f"{path}: there is no such file, so that there is no model to keep. A function of your "
            f"own leaves a {BEST} where it gives a checkpoint with its reports."
        ) from error
    except ValueError as error:
        raise AutoMLError(f"{error} Remove its folder, and refit again.") from error


def _mean(states: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    if len(states) == 1:
        return states[0]
    first = states[0]
    assert all(map(is_model, states)), "only models of ours are averaged"
    shared = {
        name: value
        for name, value in first.items()
        if all(_is_same(value, state[name]) for state in states)
    }
    members = [{n: v for n, v in state.items() if n not in shared} for state in states]
    return shared | {MEMBERS: members}


def _is_same(a: Any, b: Any) -> bool:
    """Of plain values; what holds tensors (weights) is each model's own."""
    try:
        return bool(a == b)
    except (RuntimeError, ValueError):  # of tensors nothing tells in one word
        return False
