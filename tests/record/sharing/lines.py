"""Logs of sweeps, written by hand."""

from __future__ import annotations

from pathlib import Path

from automl.record.event_log import encode_event
from automl.trial import Event


def write(path: Path, *events: tuple[Event, int | None]) -> None:
    """Append events with their attempts."""
    with path.open("ab") as file:
        for event, attempt in events:
            file.write(encode_event(event, attempt))
