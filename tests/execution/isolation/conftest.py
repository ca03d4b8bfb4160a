"""Real workers that carry out `objectives.py`, one trial after another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from automl.config import ObjectiveConfig, ObjectiveKind
from automl.execution.executor import TrialFeed
from automl.execution.worker_process import WorkerLimits
from automl.execution.workers_executor import WorkersExecutor
from automl.objectives.training_plan import SessionSetup
from automl.trial import (
    FailedOutcome,
    FinishedOutcome,
    ProcessEntry,
    TrialEvent,
    TrialOutcome,
    TrialSpec,
    Verdict,
)
from tests.execution.isolation import objectives
from tests.fork_server import fork_server_with
from tests.models.conftest import make_plan, make_spec
from tests.places import ON_HOST


def of_objectives() -> SessionSetup:
    target = f"{objectives.HERE}:train"
    return SessionSetup(
        make_plan(objective=ObjectiveConfig(kind=ObjectiveKind.python, target=target))
    )


class Trials:
    """Carried out in the order that they are asked for."""

    def __init__(
        self,
        folder: Path,
        recycle_after_trials: int = 1000,
        timeout_seconds: float | None = None,
        setup: SessionSetup | None = None,
    ) -> None:
        self.folder = folder
        self.executor = WorkersExecutor(
            ProcessEntry(
                "automl.objectives.training_session:open_session", setup or of_objectives()
            ),
            folder / "logs",
            WorkerLimits(
                max_workers=1,
                recycle_after_trials=recycle_after_trials,
                trial_timeout_seconds=timeout_seconds,
            ),
        )
        self._n = 0

    def spec(self, act: str) -> TrialSpec:
        self._n += 1
        return make_spec(self.folder, {"act": act}, self._n - 1)

    def run(self, *acts: str) -> Sequence[int | str]:
        """The pid of each trial's process, or what it failed with."""
        ended = []
        for act in acts:
            [outcome] = self.execute(TrialFeed([self.spec(act)], lambda taken: None))
            ended.append(_said(outcome))
        return ended

    def execute(self, feed: TrialFeed) -> Sequence[TrialOutcome]:
        events: list[TrialEvent] = []

        def on_events(new: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
            events.extend(new)
            return {}

        self.executor.execute(feed, ON_HOST, on_events)
        return [event for event in events if isinstance(event, TrialOutcome)]

    def printed(self, number: int) -> str:
        return (self.folder / "logs" / f"trial-{number:05}.log").read_text()


def _said(outcome: TrialOutcome) -> int | str:
    if isinstance(outcome, FinishedOutcome):
        return int(outcome.value)
    return outcome.cause if isinstance(outcome, FailedOutcome) else repr(outcome)


@pytest.fixture(scope="package", autouse=True)
def _server_with_torch() -> None:
    fork_server_with("tests.execution.isolation.preloaded")


@pytest.fixture
def trials(tmp_path: Path) -> Iterator[Trials]:
    made = Trials(tmp_path)
    yield made
    made.executor.close()
