"""What a trial keeps of its reports in its checkpoints: the best, and what it goes on from."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from automl.record.fence import Fence
from automl.record.files import LAST
from automl.training.reported import metric_name, number_of
from automl.trial import Verdict

logger = logging.getLogger(__name__)
GetState: TypeAlias = Callable[[], Mapping[str, Any]]
GetScores: TypeAlias = Callable[[], Mapping[str, float]]


@dataclass(frozen=True)
class Best:
    """The best report so far; `content` waits for `best.pt` to be written."""

    step: int
    value: float
    content: dict[str, Any] | None = None
    has_state: bool = False
    """It came with a state, written or not."""
    get_scores: GetScores | None = None
    """More of its metrics, to be told when `content` is written."""


class Getters(NamedTuple):
    """What a report gives its states by."""

    checkpoint: GetState | None = None
    own_best: GetState | None = None
    scores: GetScores | None = None

    @property
    def best(self) -> GetState | None:
        return self.own_best or self.checkpoint

    def or_else(self, earlier: Getters) -> Getters:
        """With those of an earlier part of the same report where this one has none."""
        return Getters(*(own or before for own, before in zip(self, earlier, strict=True)))


class CheckpointFiles(Protocol):
    """The module that knows a kind of checkpoint files: `checkpoint` or `plain_checkpoint`."""

    def snapshot(self, state: object) -> Any:
        """A copy that later training does not change. Raises TypeError."""

    def save(
        self, folder: Path, contents: Mapping[str, Mapping[str, Any]], fence: Fence | None = None
    ) -> None:
        """Write files into the folder, whole. Raises StorageError, OthersFolderError."""

    def load(self, path: Path) -> dict[str, Any]:
        """What a file holds. Raises FileNotFoundError, ValueError."""


def checkpoint_files(*, without_torch: bool) -> CheckpointFiles:
    """Loaded when there is a checkpoint: a program as objective has none."""
    name = "plain_checkpoint" if without_torch else "checkpoint"
    return cast(CheckpointFiles, importlib.import_module(f"automl.training.{name}"))


class Last(NamedTuple):
    """What a `last.pt` holds."""

    reports: dict[int, dict[str, float]]
    n_reports: int
    metric_names: frozenset[str]
    best: Best | None
    verdict: Verdict
    state: dict[str, Any]


def last_in(folder: Path, files: CheckpointFiles, trial: int) -> Last | None:
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
        return read_last(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        logger.warning(
            "trial %d starts anew: %s is no %s of automl (%s: %s)",
            *(trial, path, LAST, type(error).__name__, str(error)[:200]),
        )
        return None


def read_last(content: Mapping[str, Any]) -> Last:
    """Raises KeyError, TypeError, ValueError or AttributeError for what is no `last.pt`."""
    reports = {
        int(step): {metric_name(name): number_of(name, value) for name, value in metrics.items()}
        for step, metrics in content["reports"].items()
    }
    return Last(
        reports=reports,
        n_reports=int(content.get("n_reports", len(reports))),  # none before all were counted
        metric_names=frozenset(map(metric_name, content.get("metric_names", ()))),
        best=None if content["best"] is None else Best(*content["best"]),
        verdict=Verdict(str(content["verdict"])),
        state=content["state"],
    )
