"""Keeps the disk of a study from filling: removes the files of all but the best trials.

Checkpoints beyond `study.keep_best` are removed. Trials that have not ended keep their files,
from which they go on, and so do members of the ensemble. The event log says whose files are removed
before they are, so that MLflow removes its copies, too.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from automl.record.event_log import EventLog
from automl.record.study_files import PREVIOUS_CHECKPOINT_FILE, StudyFiles
from automl.running.features.feature import SweepFeature, SweepSite
from automl.search.trial_standings import RankedTrial
from automl.trial import CheckpointKind, TrialFilesRemoved, TrialOutcome


class CheckpointRetention(SweepFeature):
    """Keeps the files of the best trials that have ended. For the main thread of a sweep."""

    def __init__(
        self,
        n_best: int,
        ranking: Callable[[int], Sequence[RankedTrial]],
        log: EventLog,
        files: StudyFiles,
    ) -> None:
        """Keep the files of the `n_best` trials that `ranking` returns first."""
        self._n_best, self._ranking, self._log, self._files = n_best, ranking, log, files
        ended = (n for n, trial in log.record.trials.items() if trial.state.is_final)
        self._holding = {n for n in ended if any(self._paths(n))}
        """Trials that have ended and whose files are there."""

    @classmethod
    def make(cls, site: SweepSite) -> CheckpointRetention | None:
        """Return what keeps the files of `study.keep_best` trials; None: of all."""
        n_best, study = site.prepared().config.study.keep_best, site.study
        if n_best is None:
            return None

        def ranking(n: int) -> Sequence[RankedTrial]:
            return study.ranking(max(n, len(study.front())))

        return cls(n_best, ranking, site.log, site.files)

    def begin(self) -> None:
        """Remove the files of all ended trials but the best. Raises StorageError."""
        self._remove()

    def trial_ended(self, outcome: TrialOutcome) -> tuple[str, ...]:
        """Remove the files of the trials that are not among the best any more, perhaps those of
        this one. Raises StorageError."""
        self._holding.add(outcome.trial)
        self._remove()
        return ()

    def _remove(self) -> None:
        if len(self._holding) <= self._n_best:
            return
        kept = {trial.number for trial in self._ranking(self._n_best)}
        if (ensemble := self._log.record.ensemble) is not None:
            kept |= ensemble.members.keys()
        removed = sorted(self._holding - kept)
        self._holding &= kept
        if removed:
            self._log.append(TrialFilesRemoved(time.time(), tuple(removed)))
        for path in (path for number in removed for path in self._paths(number)):
            with suppress(OSError):  # the next sweep tries again
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _paths(self, number: int) -> list[Path]:
        """Return the checkpoints and the folder of program files that the trial has."""
        checkpoints = (self._files.checkpoint(number, kind) for kind in CheckpointKind)
        previous = self._files.checkpoints(number) / PREVIOUS_CHECKPOINT_FILE
        paths = (*checkpoints, previous, self._files.program_files(number))
        return [path for path in paths if path.exists()]
