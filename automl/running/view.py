"""What a sweep looks like at one moment, and the commands that print it.

The sweep writes the view to `status.json` about once a second; `status` reads it from any other
process, and sees by the study's lock whether the sweep that wrote it still lives.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from automl.config import Config
from automl.errors import ConfigError
from automl.record.directory import command_line, existing, is_held
from automl.record.disk import write_atomically
from automl.record.files import STATUS, StudyFiles
from automl.trial import Params, TrialState


@dataclass(frozen=True)
class RunningRow:
    """A trial that runs."""

    number: int
    device: str
    params: Params
    seconds: float
    step: int | None
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class WaitingRow:
    """A trial that waits, or the next one that is not asked for yet (number None)."""

    number: int | None
    reason: str


@dataclass(frozen=True)
class BestRow:
    number: int
    value: float
    params: Params


@dataclass(frozen=True)
class FailureRow:
    """Trials that failed for one cause."""

    n: int
    cause: str
    """Of the first of them, whose number is:"""
    first: int


@dataclass(frozen=True)
class SweepView:
    """All that the live table, `status.json` and the plain lines are made from."""

    study: str
    directory: str
    time: float
    n_trials: int
    metric: str
    counts: Mapping[str, int] = field(default_factory=dict)
    """Trials by state (`TrialState.value`)."""
    best: BestRow | None = None
    running: tuple[RunningRow, ...] = ()
    waiting: tuple[WaitingRow, ...] = ()
    failures: tuple[FailureRow, ...] = ()
    """The most frequent causes; `counts` has the number of all that failed."""
    seconds: float = 0.0
    """Since this sweep began."""
    seconds_left: float | None = None
    """Estimate from the trials that this sweep ended; None before the first."""
    n_undelivered: int = 0
    """Events that MLflow has not confirmed yet."""
    trouble: str | None = None
    """What keeps events from MLflow."""
    ended: str | None = None
    """How the sweep ended; None while it runs."""

    @property
    def n_ended(self) -> int:
        final = (TrialState.FINISHED, TrialState.PRUNED, TrialState.FAILED)
        return sum(self.counts.get(state.value, 0) for state in final)


def write_view(path: Path, view: SweepView) -> None:
    write_atomically(path, json.dumps(asdict(view), default=str) + "\n")


def read_view(path: Path) -> SweepView:
    """Raises ConfigError when the file is missing or not ours."""
    try:
        plain: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        best = plain.pop("best")
        return SweepView(
            **plain
            | {
                "best": None if best is None else BestRow(**best),
                "running": tuple(RunningRow(**row) for row in plain["running"]),
                "waiting": tuple(WaitingRow(**row) for row in plain["waiting"]),
                "failures": tuple(FailureRow(**row) for row in plain.get("failures", ())),
            }
        )
    except FileNotFoundError:
        raise ConfigError(f"{path}: no status yet; the sweep has not begun.") from None
    except OSError as error:
        raise ConfigError(_not_allowed(path, error)) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} cannot be read ({error}); a running sweep rewrites it."
        ) from error


def find_study(config: Config) -> Path:
    """The directory of `study.name`, or of the newest study. Raises ConfigError when none."""
    try:
        return _find_study(config)
    except OSError as error:
        raise ConfigError(_not_allowed(Path(config.study.dir), error)) from error


def _not_allowed(path: Path, error: OSError) -> str:
    return (
        f"{path} cannot be read ({error.strerror}); ask its owner for the right to, or name "
        "another study with study.dir=… study.name=…"
    )


def _find_study(config: Config) -> Path:
    folder = Path(config.study.dir)
    if config.study.name is not None:
        path = folder / config.study.name
        if path.is_dir():
            return path
        raise ConfigError(
            f"study.name={config.study.name}: there is no such study in {folder}; "
            f"{existing(folder)}."
        )
    studies = sorted(folder.glob(f"*/{STATUS}"), key=lambda p: p.stat().st_mtime)
    if not studies:
        raise ConfigError(f"study.dir={folder}: holds no study yet; start one: python -m automl")
    return studies[-1].parent


def print_status(config: Config) -> int:
    """Print a study's view, from any process. Returns the exit code."""
    from automl.running.display import print_view

    path = find_study(config)
    # It may have been moved or renamed since.
    view = replace(read_view(StudyFiles(path).status), study=path.name, directory=str(path))
    print_view(view, None if view.ended is not None else _note(view, path, config))
    return 0


def _note(view: SweepView, path: Path, config: Config) -> str | None:
    """What became of a sweep that has not told its end; None: it goes on."""
    age = f"{time.time() - view.time:.0f} s ago"
    try:
        if is_held(path):
            return None
    except OSError as error:
        return (
            f"as of {age}; whether a sweep still works on it cannot be seen "
            f"({StudyFiles(path).lock}: {error.strerror})"
        )
    again = command_line("resume", replace(config.study, name=view.study))
    return f"interrupted {age}; go on with: {again}"


def print_devices(config: Config) -> int:
    """Print what admission sees of every device. Returns the exit code."""
    from automl.running.display import print_accounts
    from automl.running.sweep import device_accounts

    print_accounts(device_accounts(config))
    return 0
