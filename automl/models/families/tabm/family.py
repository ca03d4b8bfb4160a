"""The light side of batch ensembles of networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from automl.config import TrainingConfig, check
from automl.models.families.mlp.family import Growth, LayersFamily, MLPParams
from automl.trial import Params

MAX_MEMBERS = 1024
"""More do not fit what a batch may take."""


@dataclass
class TabMFamily(LayersFamily):
    """Members that share the weights of each layer, and have scales of their own for what goes in
    and comes out of it (TabM, Gorishniy et al., 2024, https://arxiv.org/abs/2410.24210)."""

    heavy = "automl.models.families.tabm.heavy"
    says_length = True

    members: int = 16
    """Each is trained by its own loss; a prediction is the mean of theirs."""

    def __post_init__(self) -> None:
        n = self.members
        rule = f"must be from 1 to {MAX_MEMBERS}."
        check(1 <= n <= MAX_MEMBERS, "model.members", n, rule)

    @property
    def n_members(self) -> int:
        return self.members

    def hidden_widths(self, params: MLPParams) -> tuple[int, ...]:
        return params.hidden_widths(Growth.constant)

    def n_weights(self, widths: Sequence[int]) -> int:
        """The shared ones; of each member two scales, a bias, and a last layer."""
        own = sum(a + 2 * b for a, b in pairwise(widths)) + widths[-2] * widths[-1]
        return super().n_weights(widths) + self.members * own

    def pack_key(self, params: Params, training: TrainingConfig, *, on_host: bool) -> None:
        """Its members fill a device as the lanes of a pack do."""
        return None

    def identity(self) -> Mapping[str, Any]:
        return {"family": "tabm", "members": self.members}
