"""Counts the failed trials of a study by cause, for what a sweep and its commands show."""

from __future__ import annotations

from collections.abc import Mapping

from automl.record.texts import fit_line, mask_varying
from automl.record.trial_record import TrialRecord
from automl.terminal.view import FailureRow
from automl.trial import FailedOutcome

MAX_CAUSES = 1_000
"""Largest number of causes counted apart. Failures of further causes appear only in the total."""
MAX_SHOWN = 5
_MAX_CHARACTERS = 300


class FailureCounts:
    """Counts failed trials by cause, in bounded memory. For one thread."""

    def __init__(self, earlier: Mapping[int, TrialRecord]) -> None:
        """Count the failed trials of earlier sweeps, given by number."""
        self._rows: dict[str, FailureRow] = {}
        """Rows by cause without what varies: numbers are often of a trial, a row or a size."""
        self._trials: set[int] = set()
        for trial in earlier.values():
            if isinstance(trial.outcome, FailedOutcome):
                self.add(trial.outcome)

    def add(self, failed: FailedOutcome) -> None:
        """Count a failed trial, unless it was counted already."""
        if failed.trial in self._trials:
            return
        self._trials.add(failed.trial)
        cause = fit_line(failed.cause, _MAX_CHARACTERS)
        key = mask_varying(cause)
        row = self._rows.get(key)
        if row is not None:
            self._rows[key] = FailureRow(row.n + 1, row.cause, row.first)
        elif len(self._rows) < MAX_CAUSES:
            self._rows[key] = FailureRow(1, cause, failed.trial)

    def rows(self) -> tuple[FailureRow, ...]:
        """Return the most frequent causes, most frequent first."""
        return tuple(sorted(self._rows.values(), key=lambda row: (-row.n, row.first))[:MAX_SHOWN])
