"""Which steps of a release are done: `release.json` in the study.

    {"refit": {"key": "3f…", "result": "…", "seconds": 12.3, "made": {"refit.pt": "9a…"}}, …}

A step counts as done while what decides it has the same digest, its key, and what it made is still
there as it was. The file is replaced whole after each step, so that who is killed has lost one step
at most, and each goes on where it was by itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from automl.record.disk import write_durably

Made = Mapping[str, str]
"""What a step made, by name, as texts that tell whether it is still the same."""


@dataclass(frozen=True)
class Done:
    """A step that is done."""

    key: str
    result: str
    """For people."""
    seconds: float
    made: Made


class Ledger:
    """The file, for one release at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._steps = _read(path)

    def find(self, step: str, key: str) -> Done | None:
        """The step, if it was done with this key."""
        done = self._steps.get(step)
        return done if done is not None and done.key == key else None

    def keep(self, step: str, done: Done) -> None:
        """Write it down; on disk when this returns. Raises OSError."""
        self._steps[step] = done
        text = json.dumps({name: asdict(each) for name, each in self._steps.items()}, indent=1)
        write_durably(self._path, text + "\n")


def key_of(**decides: Any) -> str:
    """One digest of all that decides a step."""
    text = json.dumps(decides, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _read(path: Path) -> dict[str, Done]:
    """What cannot be read is not done."""
    try:
        steps = json.loads(path.read_bytes())
        return {
            str(name): Done(
                str(step["key"]),
                str(step["result"]),
                float(step["seconds"]),
                {str(k): str(v) for k, v in step["made"].items()},
            )
            for name, step in steps.items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
