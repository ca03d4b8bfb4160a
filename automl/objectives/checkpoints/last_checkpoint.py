"""What a trial keeps of its reports in its checkpoints: the best, and what it goes on from."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from automl.objectives.reports.report_values import parse_metric_name, parse_metric_value
from automl.record.lease import TrialFolderFence
from automl.record.study_files import LAST
from automl.trial import Verdict

logger = logging.getLogger(__name__)
GetState: TypeAlias = Callable[[], Mapping[str, Any]]
GetScores: TypeAlias = Callable[[], Mapping[str, float]]


@dataclass(frozen=True)
class BestReport:
    """The best report so far; `content` waits for `best.pt` to be written."""

    step: int
    value: float
    content: dict[str, Any] | None = None
    has_state: bool = False
    """It came with a state, written or not."""
    get_scores: GetScores | None = None
    """More of its metrics, to be told when `content` is written."""


class ReportGetters(NamedTuple):
    """What a report gives its states by."""

    checkpoint: GetState | None = None
    own_best: GetState | None = None
    scores: GetScores | None = None

    @property
    def best(self) -> GetState | None:
        return self.own_best or self.checkpoint

    def or_else(self, earlier: ReportGetters) -> ReportGetters:
        """With those of an earlier part of the same report where this one has none."""
        return ReportGetters(*(own or before for own, before in zip(self, earlier, strict=True)))


class CheckpointFiles(Protocol):
    """The module that knows a kind of checkpoint files: `checkpoint` or `plain_checkpoint`."""

    def snapshot(self, state: object) -> Any:
        """A copy that later training does not change. Raises TypeError."""

    def save(
        self,
        folder: Path,
        contents: Mapping[str, Mapping[str, Any]],
        fence: TrialFolderFence | None = None,
    ) -> None:
        """Write files into the folder, whole. Raises StorageError, OthersFolderError."""

    def load(self, path: Path) -> dict[str, Any]:
        """What a file holds. Raises FileNotFoundError, ValueError."""


def checkpoint_files(*, without_torch: bool) -> CheckpointFiles:
    """Loaded when there is a checkpoint: a program as objective has none."""
    name = "plain_checkpoint" if without_torch else "torch_checkpoint"
    return cast(CheckpointFiles, importlib.import_module(f"automl.objectives.checkpoints.{name}"))


class LastCheckpoint(NamedTuple):
    """What a `last.pt` holds."""

    reports: dict[int, dict[str, float]]
    n_reports: int
    metric_names: frozenset[str]
    best: BestReport | None
    verdict: Verdict
    state: dict[str, Any]


def find_last_checkpoint(folder: Path, files: CheckpointFiles, trial: int) -> LastCheckpoint | None:
    """What the `last.pt` of a trial holds; None: there is none of ours, which is said."""
    path = folder / LAST
    try:
        content = files.load(path)
    except FileNotFoundError:
        return None
    except ValueError as error:
        logger.warning("trial %d starts anew: %s", trial, error)
        return None
    try:
        return read_last_checkpoint(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        logger.warning(
            "trial %d starts anew: %s is no %s of automl (%s: %s)",
            *(trial, path, LAST, type(error).__name__, str(error)[:200]),
        )
        return None


def read_last_checkpoint(content: Mapping[str, Any]) -> LastCheckpoint:
    """Raises KeyError, TypeError, ValueError or AttributeError for what is no `last.pt`."""
    reports = {
        int(step): {
            parse_metric_name(name): parse_metric_value(name, value)
            for name, value in metrics.items()
        }
        for step, metrics in content["reports"].items()
    }
    return LastCheckpoint(
        reports=reports,
        n_reports=int(content.get("n_reports", len(reports))),  # none before all were counted
        metric_names=frozenset(map(parse_metric_name, content.get("metric_names", ()))),
        best=None if content["best"] is None else BestReport(*content["best"]),
        verdict=Verdict(str(content["verdict"])),
        state=content["state"],
    )
