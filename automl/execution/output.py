"""What a trial printed, from its own file."""

from __future__ import annotations

from pathlib import Path

_MAX_BYTES = 8192


def last_lines(path: Path, n_lines: int) -> str:
    """The end of a file, at most 8 KiB of it; empty where there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _MAX_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-n_lines:])
