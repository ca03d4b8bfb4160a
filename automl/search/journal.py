"""The study's journal: an append-only file in the format of Optuna's own journal backend.

Optuna's own one loses a study to a torn last line, since its next append glues onto it, and leaves
a lock behind when it is killed within an append; what this one does instead stands in
`record/append_only.py`. Optuna's dashboard and stock backend read the same file; a line's checksum
is a key more to them.

A line reaches the disk within 50 ms of the next `sync`: should the power fail before, the event log
still holds how trials ended, and a trial whose asking is lost is asked for again with the same
number and seed. One line is one fact: a trial is created with all its params at once.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from optuna.storages.journal import BaseJournalBackend

from automl.errors import StorageError
from automl.record.append_only import AppendOnlyFile, cannot
from automl.record.sealed import is_damaged, seal

_CHUNK_BYTES = 64 * 1024


class LockedJournal(BaseJournalBackend):
    """Use it for a journal that one process writes at a time.

    Optuna's JournalStorage reads and appends under a lock of its own.
    """

    def __init__(self, path: Path) -> None:
        """Open or create `path`. Raises StudyInUseError, or StorageError when it cannot be."""
        self._path = path
        self._n_read = 0
        """Lines handed out so far, which end at byte `_read_bytes`."""
        self._read_bytes = 0
        self._file = AppendOnlyFile.open(path)
        try:
            # Optuna's own writers leave it behind when killed, and the next one waits 30 s for it.
            Path(f"{path}.lock").unlink(missing_ok=True)
        except OSError as error:
            self._file.close()
            raise StorageError(cannot(path, "opened", error)) from error

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """The lines that were appended, by anyone, since the last call."""
        assert log_number_from == self._n_read, "one storage reads a journal, line after line"
        n_bytes = _CHUNK_BYTES
        while data := self._file.read(n_bytes, self._read_bytes):
            lines, newline, _ = data.rpartition(b"\n")
            if not newline:
                if len(data) < n_bytes:
                    return  # a foreign writer is not done with its line
                n_bytes *= 2
                continue
            split = lines.split(b"\n")
            # Optuna counts a line before it applies it, which may raise: hence by the line here.
            for log, line in zip(self._parse(split), split, strict=True):
                self._n_read += 1
                self._read_bytes += len(line) + 1
                yield log

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Write whole lines at once. Raises StorageError, and then for ever."""
        lines = [seal(json.dumps(log, separators=(",", ":")).encode()) for log in logs]
        self._file.append(b"".join(line + b"\n" for line in lines))

    def sync(self) -> None:
        """Have all lines on disk soon. Raises StorageError when an earlier flush failed."""
        self._file.check()
        self._file.flush_soon()

    def close(self) -> None:
        """Flush, and give the file back; later calls raise.

        Raises StorageError when a flush failed and nobody was told yet.
        """
        self._file.close()

    def damaged(self, number: int | None, cause: str) -> StorageError:
        """The error for a line (None: the last one read), after which the journal is of no use."""
        return self._file.fail(
            f"{self._path}: line {number or self._n_read} is damaged ({cause}); restore the file "
            "from a copy, or begin a new study.name."
        )

    def _parse(self, lines: list[bytes]) -> list[dict[str, Any]]:
        """Lines as values; all in one call, which halves the time to open a large study."""
        with contextlib.suppress(ValueError):
            logs: list[dict[str, Any]] = json.loads(b"[%b]" % b",".join(lines))
            if len(logs) == len(lines) and not any(map(is_damaged, lines)):
                return logs
        for number, line in enumerate(lines, self._n_read + 1):
            try:
                json.loads(line)
            except ValueError as error:
                raise self.damaged(number, str(error)) from error
            if is_damaged(line):
                raise self.damaged(number, "it is not what its checksum was made of")
        raise AssertionError("no line is damaged, but all together are")
