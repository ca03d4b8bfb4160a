"""Who may write into a trial's folder, where machines share a disk.

Whoever takes a trial over leaves a mark beside the folder before it begins, and who writes there
looks for a later one just before a file takes its place. So a sweep that slept through its lease,
by whatever clock, leaves the files alone of who has the trial now. Marks are made and never
changed, one for each attempt: in whatever order two of them come, the later attempt stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from automl.errors import StorageError
from automl.record.append_only import cannot
from automl.record.disk import flush_folder, make_folder


class OthersFolderError(Exception):
    """Raised where a trial's folder is a later attempt's."""


@dataclass(frozen=True)
class Fence:
    """Around the folder of a trial, for one of its attempts; 0: nobody else can have the trial."""

    folder: Path
    attempt: int

    def close(self) -> None:
        """To all earlier attempts. Raises StorageError."""
        if self.attempt < 2:
            return
        try:
            make_folder(self.folder.parent)
            for attempt in range(2, self.attempt + 1):
                self._mark(attempt).touch()
            flush_folder(self.folder.parent)
        except OSError as error:
            raise StorageError(cannot(self.folder.parent, "written", error)) from error

    def check(self) -> None:
        """Raises OthersFolderError."""
        if self.attempt and self._mark(self.attempt + 1).exists():
            raise OthersFolderError(f"{self.folder} is that of a later attempt")

    def _mark(self, attempt: int) -> Path:
        return self.folder.with_name(f"{self.folder.name}.attempt-{attempt}")
