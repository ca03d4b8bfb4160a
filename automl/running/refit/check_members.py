"""An ensemble of a search on a part of the rows: what is found for one network, for each. Pure.

Two or three trials of each member were a search again. What more rows change is much the same for
networks of one table: so the one with the largest weight is tried (`check.py`), and each network
takes the change that was best for it, as a ratio: of the learning rate, of the weight decay, and of
the steps to the best epoch. Models of other kinds stay as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from automl.config import Config
from automl.record.trial_record import TrialRecord
from automl.running.refit.batch import batch_size_of
from automl.running.refit.begin import Begun
from automl.running.refit.check import LR, is_due
from automl.running.refit.derive import Sizes, epochs_of, of_its_family
from automl.training.family import Family
from automl.training.network_family import NetworkFamily
from automl.trial import Params, ParamValue


@dataclass(frozen=True)
class Change:
    """What was found for one network, as ratios of what it was."""

    lr: float
    weight_decay: float
    steps: float
    """To its best epoch."""


def to_check(config: Config, members: Sequence[TrialRecord]) -> TrialRecord | None:
    """The network among them, the heaviest first, that stands for all; None: there is none, or
    nothing to check."""
    due = (one for one in members if is_due(of_its_family(config, one)[0]))
    return next(due, None)


def change_of(before: TrialRecord, now: TrialRecord, sizes: Sizes) -> Change:
    """From a network as it was searched to what was found, on rows of these sizes."""
    assert before.best_step is not None, "the built-in training reports"
    assert now.best_step is not None, "likewise"
    back = Sizes(before=sizes.now, now=sizes.before)
    epochs = epochs_of(now.best_step, back, batch_size_of(before.params))  # of the search's rows
    return Change(
        _ratio(before.params, now.params, "lr", LR),
        _ratio(before.params, now.params, "weight_decay", 0.0),
        epochs / (before.best_step + 1),
    )


def changed(begun: Begun, change: Change) -> Begun:
    """The ensemble with each network so, in a space that has their params."""
    members = [_changed(begun.config, member, change) for member in begun.members]
    pairs = list(zip(begun.members, members, strict=True))
    names = {n for old, new in pairs for n in new.params if new.params[n] != old.params.get(n)}
    space = {n: _entry(begun.config.space.get(n), n, members) for n in sorted(names)}
    config = replace(begun.config, space={**begun.config.space, **space})
    return replace(begun, config=config, members=members)


def others_said(begun: Begun, checked: int) -> str:
    """Which members take what was found for another, for people; empty: none."""
    networks = (one.number for one in begun.members if _is_network(begun.config, one.params))
    others = ", ".join(str(number) for number in networks if number != checked)
    return f"the same for the other networks of the ensemble: trials {others}" if others else ""


def _changed(config: Config, member: TrialRecord, change: Change) -> TrialRecord:
    if not _is_network(config, member.params):
        return member
    assert isinstance(config.model, Family), "Hydra makes it by its schema"
    assert member.best_step is not None, "trials_of has looked"
    _, own = config.model.of(member.params)
    found = dict(_times(own, "lr", LR, change.lr))
    found |= dict(_times(own, "weight_decay", 0.0, change.weight_decay))
    epochs = max(1, round((member.best_step + 1) * change.steps))
    params = config.model.with_own(member.params, found)
    return replace(member, params=params, best_step=epochs - 1)


def _is_network(config: Config, params: Params) -> bool:
    assert isinstance(config.model, Family), "Hydra makes it by its schema"
    return isinstance(config.model.of(params)[0], NetworkFamily)


def _ratio(before: Params, now: Params, name: str, default: float) -> float:
    old = _number(before, name, default)
    return _number(now, name, default) / old if old else 1.0


def _times(
    own: Params, name: str, default: float, ratio: float
) -> Iterable[tuple[str, ParamValue]]:
    """The param times the ratio, where that changes it."""
    value = _number(own, name, default)
    if value and ratio != 1.0:
        yield name, value * ratio


def _number(params: Params, name: str, default: float) -> float:
    value = params.get(name, default)
    assert isinstance(value, int | float), "checked by the family"
    return float(value)


def _entry(before: Any, name: str, members: Sequence[TrialRecord]) -> Mapping[str, Any]:
    """Of the space: the values that the members have, where the param was there."""
    values = {member.params[name]: None for member in members if name in member.params}
    entry: dict[str, Any] = {"choices": [*values]}
    when = before.get("when") if isinstance(before, Mapping) else None
    return entry if when is None else {**entry, "when": when}
