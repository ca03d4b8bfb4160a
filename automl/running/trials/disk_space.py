"""Keeps the disk of a study from filling: removes files of worse trials, and holds trials back.

`CheckpointRetention` removes checkpoints beyond `tracking.keep_best`. Trials that have not ended
keep their files, from which they go on, and so do members of the ensemble. The event log says whose
files are removed before they are, so that MLflow removes its copies, too.

`StartConditions` lets no trial start below `study.min_free_space`, or while the user has paused the
sweep. Running trials go on, and what the others wait for is shown as it is for memory.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from automl.admission.refusals import AdmissionRefusal, RefusalKind, gib_text
from automl.config import StudyConfig
from automl.record.event_log import EventLog
from automl.record.study_directory import study_command
from automl.record.study_files import PREVIOUS_CHECKPOINT_FILE, StudyFiles
from automl.running.loop.messages import TrialStartsHeld
from automl.search.trial_standings import RankedTrial
from automl.trial import CheckpointKind, TrialFilesRemoved


class CheckpointRetention:
    """Keeps the files of the best trials that have ended. For the main thread of a sweep."""

    def __init__(
        self,
        n_best: int | None,
        ranking: Callable[[int], Sequence[RankedTrial]],
        log: EventLog,
        files: StudyFiles,
    ) -> None:
        """Keep the files of the `n_best` trials that `ranking` returns first; None: of all."""
        self._n_best, self._ranking, self._log, self._files = n_best, ranking, log, files
        ended = (n for n, trial in log.record.trials.items() if trial.state.is_final)
        self._holding = set() if n_best is None else {n for n in ended if any(self._paths(n))}
        """Trials that have ended and whose files are there."""

    def trial_ended(self, number: int) -> None:
        """Remove the files of the trials that are not among the best any more, perhaps those of
        this one. Raises StorageError."""
        self._holding.add(number)
        self.remove()

    def remove(self) -> None:
        """Remove the files of all ended trials but the best. Raises StorageError."""
        if self._n_best is None or len(self._holding) <= self._n_best:
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


def disk_refusal(study: StudyConfig, folder: Path) -> AdmissionRefusal | None:
    """Return why nothing starts while the disk of `folder` has less than `study.min_free_space`.

    None if it has more, or cannot be asked now.
    """
    least_bytes = study.min_free_bytes
    if least_bytes is None:
        return None
    try:
        disk = os.statvfs(folder)
    except OSError:  # whoever writes there meets the error
        return None
    free_bytes = disk.f_bavail * disk.f_frsize
    if free_bytes >= least_bytes:
        return None
    return AdmissionRefusal(
        f"waiting: the disk of {folder} has {gib_text(free_bytes)} free, and nothing starts below "
        f"study.min_free_space={study.min_free_space}",
        RefusalKind.HELD,
        for_devices=False,
    )


class StartConditions:
    """Tells the loop when a pause or a nearly full disk keeps trials from starting, and when no
    longer. For the main thread."""

    def __init__(
        self, study: StudyConfig, folder: Path, tell: Callable[[TrialStartsHeld, float], object]
    ) -> None:
        """`tell` has the loop handle a message at once, before any that waits."""
        self._study, self._folder, self._tell = study, folder, tell
        self._told: AdmissionRefusal | None = None
        self.is_paused = False
        """Whether the user has paused the sweep."""

    def look(self, now_seconds: float) -> None:
        """Look at the disk, and tell the loop what has changed. `now_seconds` is monotonic."""
        refusal = disk_refusal(self._study, self._folder)
        if self.is_paused:
            command = study_command("resume", self._study)
            reason = f"waiting: the sweep is paused; go on with: {command}"
            refusal = AdmissionRefusal(reason, RefusalKind.HELD, for_devices=False)
        if refusal != self._told:
            self._told = refusal
            self._tell(TrialStartsHeld(refusal), now_seconds)
