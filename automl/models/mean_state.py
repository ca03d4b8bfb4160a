"""Joins the states of several models into that of their mean, and leaves trees of forests out.

A state is the part of a checkpoint that makes a model (`model_file.py`). In that of a mean the
members stand in a list, and what all of them share stands once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from automl.models.family import ForestHeavySide, load_heavy_side
from automl.models.predictor import (
    MEMBER_SIZES_KEY,
    MEMBER_WEIGHTS_KEY,
    MEMBERS_KEY,
    family_class,
    is_model_state,
)

ModelState: TypeAlias = Mapping[str, Any]


def join_states(states: Sequence[ModelState], weights: Sequence[float] | None = None) -> ModelState:
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
    states: Sequence[ModelState], weights: Sequence[float]
) -> tuple[Sequence[ModelState], Sequence[float]]:
    """Replace each model that is a mean itself, as of a trial with folds, by its members."""
    members_with_weights: list[tuple[ModelState, float]] = []
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


def tree_shares(
    n_leaves: Mapping[int, int], weights: Mapping[int, float], max_leaves: int
) -> Mapping[int, float]:
    """Return the largest shares of trees, by trial, that are in proportion to the weights, at most
    1, and keep `max_leaves`."""
    for scale in np.geomspace(1 / min(weights.values()), 1e-6, 1_000):
        shares = {trial: min(1.0, scale * weight) for trial, weight in weights.items()}
        if sum(shares[trial] * n for trial, n in n_leaves.items()) <= max_leaves:
            break
    return shares


def member_states(state: ModelState) -> list[ModelState]:
    """Return the state of each model of a mean; of a single model, its own."""
    shared = {name: value for name, value in state.items() if name != MEMBERS_KEY}
    return [{**shared, **own} for own in state.get(MEMBERS_KEY, [{}])]


def count_leaves(state: ModelState) -> int:
    """Return the number of leaves of the forests of a model or a mean; 0: it has none."""
    return sum(map(_count_leaves, member_states(state)))


def _count_leaves(state: ModelState) -> int:
    side = load_heavy_side(family_class(state))
    return side.n_leaves(state) if isinstance(side, ForestHeavySide) else 0


def keep_trees(state: ModelState, share: float) -> ModelState:
    """Return the state of a forest, or of a mean of forests, with a share of each one's trees."""
    members = member_states(state)
    side = load_heavy_side(family_class(members[0]))
    assert isinstance(side, ForestHeavySide), "the caller has counted leaves"
    return join_states([side.first_trees(member, share) for member in members])
