"""Promotes the paused trials of a sweep, and prunes those that are left at its end.

The study decides which trial goes on (`search/trial_standings.py`), the loop when there is a place.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from automl.record.study_files import StudyFiles
from automl.running.loop.messages import LoopSnapshot, PlannedTrial, StopReason
from automl.search.study import Study
from automl.trial import CheckpointKind, PrunedOutcome


class TrialPromotions:
    """Hands out the trials that are promoted. For the main thread."""

    def __init__(
        self,
        study: Study,
        files: StudyFiles,
        say: Callable[[str], None],
        *,
        sees_states: bool,
        value_at_end: bool,
    ) -> None:
        """`sees_states`: what trials keep of their state lies in `files`. `value_at_end`: a trial
        has no value before its end."""
        self._study, self._files, self._say = study, files, say
        self.may_promote = study.pauses.may_promote
        self._sees_states, self._value_at_end = sees_states, value_at_end
        """Whether a trial without a checkpoint here has no state, which is told once."""

    def promote(self, *, grows: bool) -> PlannedTrial | None:
        """Return the paused trial that goes on now, or None. `grows`: new trials may still come."""
        study = self._study
        number = study.pauses.promote(grows=grows)
        if number is None:
            return None
        if self._sees_states and not self._has_checkpoint(number):
            self._sees_states = False
            self._say(
                f"trial {number} is promoted and begins again, since it has no checkpoint, and so "
                "will others: report a state (trial.report(step, metrics, checkpoint=…)), or take "
                "pruner=halving, which never goes on with a trial"
            )
        return PlannedTrial(number, study.params(number))

    def prune_rest(
        self, loop: LoopSnapshot, end: Callable[[PlannedTrial, PrunedOutcome], None]
    ) -> None:
        """Prune the paused trials of a sweep that came to its end; the next sweep promotes those of
        any other. `end` records and tells the end of a trial."""
        if loop.error is not None or loop.stop not in (None, StopReason.TIMEOUT):
            return
        study = self._study
        for number, (step, value) in sorted(study.pauses.all().items()):
            value = math.nan if self._value_at_end else value
            trial = PlannedTrial(number, study.params(number))
            end(trial, PrunedOutcome(number, time.time(), step, value))

    def _has_checkpoint(self, number: int) -> bool:
        return self._files.checkpoint(number, CheckpointKind.LAST).exists()
