"""What an objective says of itself before the first trial."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Declaration:
    """What an objective takes and reports; None where it did not say."""

    params: tuple[str, ...] | None
    required: tuple[str, ...]
    """Those of `params` that must be in the space."""
    metrics: tuple[str, ...] | None
    always: tuple[str, ...] = ()
    """Those that every trial must have."""
