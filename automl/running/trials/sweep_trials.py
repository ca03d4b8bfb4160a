"""Hands the loop the trials of a sweep: new ones, and paused ones that are promoted.

The study decides what is tried and which trial goes on (`search/`), the loop when there is a place.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

from automl.config import ObjectiveKind
from automl.running.loop.messages import LoopSnapshot, PackKind, PlannedTrial, StopReason
from automl.running.opening.parts import SweepParts
from automl.trial import CheckpointKind, PrunedOutcome, TrialState


class SweepTrials:
    """Hands out the trials that the study wants run. For the main thread."""

    def __init__(
        self,
        parts: SweepParts,
        say: Callable[[str], None],
        trial_asked: Callable[[PlannedTrial], Iterable[str]],
    ) -> None:
        """`trial_asked` returns lines for people about a new trial."""
        self._parts, self._say, self._trial_asked = parts, say, trial_asked
        config = parts.config
        is_program = config.objective.kind is ObjectiveKind.command
        are_here = parts.machines.checkpoints_are_here and parts.stored is None
        self._sees_states = not is_program and are_here
        """Whether a trial without a checkpoint here has no state, which is told once."""

    def ask(self) -> PlannedTrial | None:
        """Return a new trial, or None when the search space is exhausted."""
        asked = None if self._parts.outside.only else self._parts.study.ask()
        if asked is None:
            return None
        trial = PlannedTrial(asked.number, asked.params)
        for line in self._trial_asked(trial):
            self._say(line)
        return trial

    def n_may_pend(self) -> int | None:
        """Return how many trials may pend without harm to the sampler. None allows any number."""
        counts = self._parts.study.counts()
        n_known = sum(n for s, n in counts.items() if s.is_final or s is TrialState.PAUSED)
        return self._parts.prepared.sampler.n_may_pend(n_known)

    def kind_of(self, trial: PlannedTrial, *, on_host: bool) -> PackKind | None:
        """Return the pack kind of the trial on the host or a GPU. None if it trains alone there."""
        if not self._parts.executor.can.packs:
            return None
        pack = self._parts.prepared.pack_of(trial.params, on_host=on_host)
        return None if pack is None else PackKind(*pack)

    def may_promote(self, *, grows: bool) -> bool:
        """Return whether a paused trial goes on now. `grows`: new trials may still come."""
        return self._parts.study.pauses.may_promote(grows=grows)

    def promote(self, *, grows: bool) -> PlannedTrial | None:
        """Return the paused trial that goes on now, or None. `grows`: new trials may still come."""
        study = self._parts.study
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
        study = self._parts.study
        for number, (step, value) in sorted(study.pauses.all().items()):
            value = math.nan if self._parts.prepared.plan.goal.value_at_end else value
            trial = PlannedTrial(number, study.params(number))
            end(trial, PrunedOutcome(number, time.time(), step, value))

    def _has_checkpoint(self, number: int) -> bool:
        return self._parts.directory.files.checkpoint(number, CheckpointKind.LAST).exists()
