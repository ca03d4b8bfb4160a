"""What the samplers are asked to make small: a network in training, and a bowl without noise."""

from __future__ import annotations

import math
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from automl.config import DataConfig, ObjectiveConfig, TrainingConfig
from automl.data.load import load_dataset
from automl.models.families.mlp.family import MLPFamily
from automl.models.family import PackKey, pack_size
from automl.objectives.training_plan import SessionSetup, TrainingPlan
from automl.objectives.training_session import open_session
from automl.search.search_space import parse_space
from automl.search.study import AskedTrial
from automl.trial import (
    LOCAL_HOST,
    DeviceShare,
    Direction,
    FinishedOutcome,
    Placement,
    TrialEvent,
    TrialOutcome,
    TrialSpec,
    Verdict,
)

SPACE = parse_space(
    {
        "depth": {"low": 2, "high": 6},
        "width": {"low": 8, "high": 64, "log": True},
        "lr": {"low": 1e-3, "high": 0.5, "log": True},
        "batch_size": {"choices": [50, 100, 200]},
        "optimizer": "sgd",
        "momentum": 0.0,
    }
)
"""That of 001-throughput."""
_HOST = Placement((DeviceShare(LOCAL_HOST, "CPU", reservation_bytes=0),))
_BATCH_PENALTIES = {50: 0.0, 100: 0.05, 200: 0.15}
"""In the bowl."""


class Objective(Protocol):
    """Carries trials out; what becomes of one does not depend on the others."""

    def __call__(self, study_seed: int, trials: Sequence[AskedTrial]) -> Mapping[int, TrialOutcome]:
        """The outcomes by trial number."""


class Disc:
    """The built-in MLP on the disc set, trained as a sweep trains it, in this process."""

    def __init__(self, n_epochs: int) -> None:
        self._plan = TrainingPlan(
            ObjectiveConfig(),
            DataConfig(),
            MLPFamily(),
            TrainingConfig(epochs=n_epochs),
            "val_loss",
            Direction.minimize,
        )
        self._session = open_session(SessionSetup(self._plan, load_dataset(self._plan.data)))

    def __call__(self, study_seed: int, trials: Sequence[AskedTrial]) -> Mapping[int, TrialOutcome]:
        """Pack by pack; a trial alone is a pack of one."""
        outcomes: dict[int, TrialOutcome] = {}

        def take(events: Sequence[TrialEvent]) -> Mapping[int, Verdict]:
            outcomes.update({e.trial: e for e in events if isinstance(e, TrialOutcome)})
            return {}

        by_key: dict[PackKey, deque[AskedTrial]] = {}
        for trial in trials:
            key = self._plan.pack_key(trial.params, on_host=True)
            assert key is not None, f"{trial.params} cannot be packed"
            by_key.setdefault(key, deque()).append(trial)
        with tempfile.TemporaryDirectory(prefix="asking-ahead-") as folder:
            for key, some in by_key.items():
                feed = _Queue(some, pack_size(key, "auto"), study_seed, folder)
                self._session.run_pack(feed, _HOST, take)
        return outcomes


class _Queue:
    """A `TrialSource` of trials that are all known."""

    def __init__(
        self, trials: deque[AskedTrial], n_lanes: int, study_seed: int, folder: str
    ) -> None:
        self.n_lanes = n_lanes
        self._trials, self._study_seed, self._folder = trials, study_seed, folder

    def next(self) -> TrialSpec | None:
        if not self._trials:
            return None
        trial = self._trials.popleft()
        checkpoint_dir = f"{self._folder}/{trial.number}"
        return TrialSpec(trial.number, trial.params, checkpoint_dir, self._study_seed)


class Bowl:
    """A function of the same params without noise: 0 at depth 4, width 24, lr 0.1, batch 50."""

    def __call__(self, study_seed: int, trials: Sequence[AskedTrial]) -> Mapping[int, TrialOutcome]:
        """The seed plays no part."""
        return {t.number: FinishedOutcome(t.number, time.time(), self._value(t)) for t in trials}

    def _value(self, trial: AskedTrial) -> float:
        """Quadratic in depth, log width and log lr, each over its range; deep wants a small lr."""
        depth, width, lr, batch_size = (
            float(trial.params[name] or 0) for name in ("depth", "width", "lr", "batch_size")
        )
        deep = (depth - 4) / (6 - 2)
        wide = math.log(width / 24) / math.log(64 / 8)
        fast = math.log(lr / 0.1) / math.log(0.5 / 1e-3)
        bowl = deep**2 + wide**2 + 4 * (fast + deep / 2) ** 2
        return bowl + _BATCH_PENALTIES[int(batch_size)]


def make_objective(name: str, n_epochs: int) -> Objective:
    """`disc` or `bowl`."""
    return Disc(n_epochs) if name == "disc" else Bowl()
