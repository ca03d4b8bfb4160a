"""What kind of model is trained."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class ModelConfig:
    """The family of models that the built-in objective trains: one subclass per option of `model=`,
    in `training/`."""
