"""Says when no new trial may start though some are wanted: the disk of the study is nearly full.

Running trials go on. What they wait for is shown as it is for memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from automl.admission.refusals import AdmissionRefusal, RefusalKind, gib_text
from automl.config import StudyConfig
from automl.running.loop.messages import StartsHeld


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


class StartHolds:
    """Tells the loop whether new trials may start, whenever that changes. For the main thread."""

    def __init__(
        self, study: StudyConfig, folder: Path, tell: Callable[[StartsHeld, float], object]
    ) -> None:
        """`tell` has the loop handle a message at once, before any that waits."""
        self._study, self._folder, self._tell = study, folder, tell
        self._told: AdmissionRefusal | None = None

    def look(self, now_seconds: float) -> None:
        """Look at the disk, and tell the loop what has changed. `now_seconds` is monotonic."""
        refusal = disk_refusal(self._study, self._folder)
        if refusal != self._told:
            self._told = refusal
            self._tell(StartsHeld(refusal), now_seconds)
