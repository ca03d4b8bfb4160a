"""The values of a trial's further metrics: those besides the one that its reports are judged by.

A report of several metrics may come in parts, and some are known only at the end. Nothing is
emitted or written here; `trial_reports.py` does that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from automl.config.metrics import MEASURED_METRICS, MEMORY_PEAK, MODEL_BYTES, TRAIN_SECONDS


@dataclass
class FurtherMetrics:
    """The further metrics of one trial, with what is known of each; `names` is empty for a study of
    one metric."""

    names: tuple[str, ...]
    newest: dict[str, float] = field(default_factory=dict)
    """The newest finite value of each metric."""
    returned: dict[str, float] = field(default_factory=dict)
    """The finite metrics that the objective returned, by name."""
    own: set[str] = field(default_factory=set)
    """Names of measured metrics that the objective reports itself."""
    seconds_before: float = 0.0
    """Seconds that the trial had trained before an interruption."""

    def take(self, metrics: Mapping[str, float]) -> None:
        """Keep the finite values of a report, or of a part of one."""
        for name in self.names:
            if math.isfinite(value := metrics.get(name, math.nan)):
                self.newest[name] = value

    def value(self, name: str, best_report: Mapping[str, float]) -> float | None:
        """Return the trial's value of a metric; None: it has none.

        It is the returned one, or that of the report that counts, or else the newest. What the
        trial measures itself is measured to its end.
        """
        return self.returned.get(name, self.reported(name, best_report))

    def reported(self, name: str, best_report: Mapping[str, float]) -> float | None:
        """Return the value of a metric from the reports alone; None: it has none."""
        value = best_report.get(name, math.nan)
        is_measured = name in MEASURED_METRICS - self.own or not math.isfinite(value)
        return self.newest.get(name) if is_measured else value

    def measured(
        self, seconds: float, peak_bytes: float | None, model: Path | None
    ) -> dict[str, float]:
        """Return the metrics that the trial measures itself, where the objective reports none.

        `seconds` are those since the trial began or continued, `model` is its `best.pt`.
        """
        found = {
            TRAIN_SECONDS: self.seconds_before + seconds,
            MEMORY_PEAK: peak_bytes,
            MODEL_BYTES: None if model is None else float(model.stat().st_size),
        }
        asked = self.names and set(self.names) - self.own
        return {n: value for n, value in found.items() if n in asked and value is not None}
