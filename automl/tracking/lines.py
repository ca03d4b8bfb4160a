"""Counts the lines of a growing file, reading each byte once."""

from __future__ import annotations

import os
from pathlib import Path

_CHUNK_BYTES = 1 << 20


class LineCounter:
    """Lines of `path` up to an offset. Not for several threads at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._n_lines = 0

    def count(self, offset: int | None = None) -> int:
        """Lines that end before `offset`, or before the end of the file; 0 where there is none."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return 0
        try:
            end = os.fstat(fd).st_size if offset is None else offset
            if end < self._offset:  # cut back, or delivered anew
                self._offset, self._n_lines = 0, 0
            while self._offset < end:
                chunk = os.pread(fd, min(_CHUNK_BYTES, end - self._offset), self._offset)
                if not chunk:
                    break
                self._offset += len(chunk)
                self._n_lines += chunk.count(b"\n")
        finally:
            os.close(fd)
        return self._n_lines
