"""What kind of model is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass
class ModelConfig:
    """The family of models that the built-in objective trains: one subclass per option of `model=`,
    in `training/`."""

    choice: ClassVar[str | None] = None
    """The param by which each trial says which family it is of; None: all are of this one."""
