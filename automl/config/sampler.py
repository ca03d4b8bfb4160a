"""What proposes params."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class SamplerConfig:
    """What proposes params: one subclass per option of `sampler=`, in `search/samplers/`."""
