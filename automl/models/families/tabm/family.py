"""Defines the light side of batch ensembles of networks.

It is a file of its own because every family has a light side that loads no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from automl.config import check_setting
from automl.models.families.mlp.family import Growth, LayersFamily, MLPParams

MAX_MEMBERS = 1024
"""Largest number of members; with more, a batch takes too much memory."""


@dataclass
class TabMFamily(LayersFamily):
    """Members that share the weights of each layer and have scales of their own for its inputs and
    outputs (TabM, Gorishniy et al., 2024, https://arxiv.org/abs/2410.24210)."""

    heavy = "automl.models.families.tabm.heavy"
    has_own_length = True

    members: int = 16
    """Number of members. Each is trained by its own loss; a prediction is the mean of theirs."""

    def __post_init__(self) -> None:
        n = self.members
        rule = f"must be from 1 to {MAX_MEMBERS}."
        check_setting(1 <= n <= MAX_MEMBERS, "model.members", n, rule)

    @property
    def n_members(self) -> int:
        return self.members

    def hidden_widths(self, params: MLPParams) -> tuple[int, ...]:
        return params.hidden_widths(Growth.constant)

    def n_weights(self, widths: Sequence[int]) -> int:
        """Return the number of shared weights, and of each member's scales, bias and last layer."""
        own = sum(a + 2 * b for a, b in pairwise(widths)) + widths[-2] * widths[-1]
        return super().n_weights(widths) + self.members * own
