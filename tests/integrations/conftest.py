"""One trial at a time in a session, for functions that train with another library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

from automl.in_trial.trial_context import TrialContext
from automl.objectives.optuna_objective.optuna_trial import OptunaObjective
from automl.objectives.training_session import TrainingSession
from automl.trial import Direction, ParamAnswer, Question, Reply, SweepChannel, Verdict
from tests.models.conftest import HOST, Listener, make_plan, make_spec, one_thread

__all__ = ["one_thread"]


class Nobody:
    """A sweep that has nothing to say."""

    def ask(self, question: Question) -> Reply:
        return ParamAnswer()

    def verdict(self, trial: int) -> Verdict:
        return Verdict.GO_ON


class CarryOut(Protocol):
    """Carries one trial out, again in the same folder where it is called again."""

    def __call__(
        self,
        function: Callable[[Any], object],
        verdicts: Mapping[int, Verdict] | None = None,
        *,
        metric: str = "val_loss",
        direction: Direction = Direction.minimize,
        optunas: bool = False,
    ) -> Listener: ...


@pytest.fixture
def carry_out(tmp_path: Path, one_thread: None) -> CarryOut:
    def carry_out(
        function: Callable[[Any], object],
        verdicts: Mapping[int, Verdict] | None = None,
        *,
        metric: str = "val_loss",
        direction: Direction = Direction.minimize,
        optunas: bool = False,
    ) -> Listener:
        listener = Listener(dict(verdicts or {}))
        objective: Callable[[TrialContext], object] = function
        line: SweepChannel | None = None
        if optunas:
            objective, line = OptunaObjective(function), Nobody()
        session = TrainingSession(make_plan(metric=metric, direction=direction), objective)
        session.run(make_spec(tmp_path), HOST, listener, line)
        return listener

    return carry_out
