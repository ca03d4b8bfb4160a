"""What stops bad trials early."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class PrunerConfig:
    """What stops bad trials early: one subclass per option of `pruner=`, in `search/pruners/`."""
