"""By what a study asks and judges, and what may not change while it lasts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from automl.search.identity import Identity
from automl.search.pruners.pruner import Pruner
from automl.search.samplers.sampler import Sampler
from automl.search.space import Space
from automl.trial import Params, ParamValue


@dataclass(frozen=True)
class Rules:
    """Of one study, as its config has them."""

    space: Space
    sampler: Sampler
    pruner: Pruner
    identity: Identity
    asks_for_params: bool = False
    """Whether trials may have other params than those of the space: the objective asks for them."""
    choice: str | None = None
    """The param that says what kind a trial is of: each is judged among its own."""
    pruners: Mapping[ParamValue, Pruner] = field(default_factory=dict)
    """By which each kind is judged; those that are not here by `pruner`."""
    portfolio: Sequence[Params] = ()
    """Tried after what is enqueued, as far as the space has it."""
