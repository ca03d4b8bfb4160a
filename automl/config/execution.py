"""In which thread or process trials run."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Any

from automl.config.checks import check, check_positive, parse_bytes


class ExecutionKind(enum.Enum):
    auto = "auto"
    inline = "inline"
    workers = "workers"
    ray = "ray"


@dataclass
class ExecutionConfig:
    """In which thread or process trials run."""

    kind: ExecutionKind = ExecutionKind.auto
    """auto: workers."""
    pack: Any = "auto"
    """Small trials of one shape train as one batched model: auto, off, or the most in a pack."""
    threads_per_trial: int = 1
    """torch's threads in a trial; by default as many trials at once as the cores then allow."""
    trial_timeout_seconds: float | None = None
    """A trial that takes longer has failed, others of its pack go on alone (not inline); none: no
    limit."""
    silence_timeout_seconds: float | None = None
    """A trial that reports nothing for so long has failed (not inline); none: no limit."""
    recycle_after_trials: int = 1000
    """A worker process is replaced after this many trials."""
    recycle_growth: str = "2GiB"
    """A worker process is replaced when its memory grew by this much and stayed."""

    def __post_init__(self) -> None:
        if self.pack is False or self.pack == 1:  # YAML reads a bare `off` as false
            self.pack = "off"
        whole = isinstance(self.pack, int) and not isinstance(self.pack, bool)
        check(
            self.pack in ("auto", "off") or (whole and self.pack >= 2),
            "execution.pack",
            self.pack,
            "must be auto, off, or the most trials in a pack (a whole number from 2).",
        )
        for key in ("threads_per_trial", "recycle_after_trials"):
            check(getattr(self, key) >= 1, f"execution.{key}", getattr(self, key), "must be ≥ 1.")
        for key in ("trial_timeout_seconds", "silence_timeout_seconds"):
            value = getattr(self, key)
            check_positive(f"execution.{key}", value)
            check(
                value is None or self.kind is not ExecutionKind.inline,
                f"execution.{key}",
                value,
                "a trial in a thread cannot be ended; use execution=workers.",
            )
        parse_bytes("execution.recycle_growth", self.recycle_growth)

    @property
    def here(self) -> ExecutionConfig:
        """The same on this machine, for what knows no other."""
        on_ray = self.kind is ExecutionKind.ray
        return replace(self, kind=ExecutionKind.auto) if on_ray else self

    @property
    def recycle_growth_bytes(self) -> int:
        return parse_bytes("execution.recycle_growth", self.recycle_growth)
