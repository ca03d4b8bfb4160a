"""Values that a trial stores in its checkpoints: the best report, and the state to continue from.

It reads the content of a `last.pt` and chooses the module for its file format. The formats are in
`torch_checkpoint.py` and `plain_checkpoint.py`.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from automl.in_trial.reports.report_values import parse_metric_name, parse_metric_value
from automl.record.lease import TrialFolderFence
from automl.record.study_files import LAST_CHECKPOINT_FILE, PREVIOUS_CHECKPOINT_FILE
from automl.trial import Verdict

logger = logging.getLogger(__name__)
GetState: TypeAlias = Callable[[], Mapping[str, Any]]
GetScores: TypeAlias = Callable[[], Mapping[str, float]]


@dataclass(frozen=True)
class BestReport:
    """The best report so far. `content` is kept until `best.pt` is written."""

    step: int
    value: float
    content: dict[str, Any] | None = None
    has_state: bool = False
    """The report came with a state, whether that is written yet or not."""
    get_scores: GetScores | None = None
    """Returns more metrics of the report, which are logged when `content` is written."""


class ReportGetters(NamedTuple):
    """The functions that return the states and scores of a report, called only when needed."""

    checkpoint: GetState | None = None
    own_best: GetState | None = None
    scores: GetScores | None = None

    @property
    def best(self) -> GetState | None:
        return self.own_best or self.checkpoint

    def or_else(self, earlier: ReportGetters) -> ReportGetters:
        """Return these getters, completed by the ones of an earlier part of the same report."""
        return ReportGetters(*(own or before for own, before in zip(self, earlier, strict=True)))


class CheckpointFiles(Protocol):
    """A module for one format of checkpoint files: `torch_checkpoint` or `plain_checkpoint`."""

    def snapshot(self, state: object) -> Any:
        """Return a copy that later training does not change. Raises TypeError."""

    def save(
        self,
        folder: Path,
        contents: Mapping[str, Mapping[str, Any]],
        fence: TrialFolderFence | None = None,
    ) -> None:
        """Write files, each whole or not at all. Raises StorageError and FolderTakenOverError."""

    def load(self, path: Path) -> dict[str, Any]:
        """Return the content of a file. Raises FileNotFoundError and ValueError."""


def checkpoint_files(*, without_torch: bool) -> CheckpointFiles:
    """Return the module for a format, which is imported only when there is a checkpoint."""
    name = "plain_checkpoint" if without_torch else "torch_checkpoint"
    return cast(CheckpointFiles, importlib.import_module(f"automl.in_trial.checkpoints.{name}"))


class LastCheckpoint(NamedTuple):
    """The content of a `last.pt`, checked."""

    reports: dict[int, dict[str, float]]
    n_reports: int
    metric_names: frozenset[str]
    best: BestReport | None
    verdict: Verdict
    state: dict[str, Any]


def find_last_checkpoint(folder: Path, files: CheckpointFiles, trial: int) -> LastCheckpoint | None:
    """Return what a trial's `last.pt` holds; where it is damaged, what the one before it held.

    A warning names the damaged file. None: there is no `last.pt`, or neither can be read.
    """
    last, previous = folder / LAST_CHECKPOINT_FILE, folder / PREVIOUS_CHECKPOINT_FILE
    with suppress(FileNotFoundError):
        try:
            return _load(last, files)
        except ValueError as error:
            damage = error
        with suppress(FileNotFoundError, ValueError):
            content = _load(previous, files)
            os.replace(previous, last)  # else the next one would keep the damaged one
            logger.warning("trial %d goes on from the checkpoint before: %s", trial, damage)
            return content
        logger.warning("trial %d starts anew: %s", trial, damage)
    return None


def _load(path: Path, files: CheckpointFiles) -> LastCheckpoint:
    """Return the content of a `last.pt`. Raises FileNotFoundError and ValueError."""
    content = files.load(path)
    try:
        return read_last_checkpoint(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        cause = f"{type(error).__name__}: {str(error)[:200]}"
        raise ValueError(f"{path} is no {LAST_CHECKPOINT_FILE} of automl ({cause})") from error


def keep_previous(folder: Path, *, goes_on: bool) -> None:
    """Give a trial's `last.pt` a second name, which it keeps when the next one replaces it.

    A trial that does not go on keeps none of before.
    """
    previous = folder / PREVIOUS_CHECKPOINT_FILE
    with suppress(OSError):  # there is no `last.pt` yet, or the disk has no hard links
        previous.unlink(missing_ok=True)
        if goes_on:
            os.link(folder / LAST_CHECKPOINT_FILE, previous)


def read_last_checkpoint(content: Mapping[str, Any]) -> LastCheckpoint:
    """Return the content of a `last.pt`. Raises KeyError, TypeError, ValueError, AttributeError."""
    reports = {
        int(step): {
            parse_metric_name(name): parse_metric_value(name, value)
            for name, value in metrics.items()
        }
        for step, metrics in content["reports"].items()
    }
    return LastCheckpoint(
        reports=reports,
        # Files of earlier versions have no "n_reports": all their reports are in the file.
        n_reports=int(content.get("n_reports", len(reports))),
        metric_names=frozenset(map(parse_metric_name, content.get("metric_names", ()))),
        best=None if content["best"] is None else BestReport(*content["best"]),
        verdict=Verdict(str(content["verdict"])),
        state=content["state"],
    )
