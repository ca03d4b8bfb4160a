"""Studies on disk, opened and reopened; each is checked for what must always hold at the end."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from automl.config import (
    StudyConfig,
)
from automl.search.earlier_trials import EarlierTrials
from automl.search.edited_space import edited_space
from automl.search.optuna_trials import NO_TRIALS, BegunTrials
from automl.search.pruners.none import NoPruner
from automl.search.pruners.pruner import Pruner
from automl.search.samplers.random import IndependentSampler
from automl.search.samplers.sampler import Sampler
from automl.search.search_space import parse_space
from automl.search.study import AskedTrial, Study
from automl.search.study_identity import StudyIdentity, StudyRules
from automl.trial import (
    FinishedOutcome,
    MetricsReported,
    Params,
    StudyEdited,
    TrialState,
    Verdict,
)

ENTRIES = {
    "depth": {"low": 2, "high": 8},
    "lr": {"low": 1e-4, "high": 1e-1, "log": True},
    "optimizer": {"choices": ["sgd", "adam"]},
    "momentum": {"low": 0.0, "high": 0.9, "when": {"optimizer": "sgd"}},
    "dropout": 0.1,
}


class Studies:
    """Opens studies in one folder, and closes and checks them all."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.space = parse_space(ENTRIES)
        self._open: list[Study] = []

    def rules(
        self,
        *,
        entries: Mapping[str, Any] | None = None,
        sampler: Sampler | None = None,
        pruner: Pruner | None = None,
        identity: Mapping[str, Any] | None = None,
        defaults: Mapping[str, Any] | None = None,
        may_change: str | None = None,
        asks_for_params: bool = False,
        choice: str | None = None,
        slow_kinds: Collection[str] = (),
        portfolio: Sequence[Params] = (),
        earlier: EarlierTrials | None = None,
        edits: Sequence[StudyEdited] = (),
    ) -> StudyRules:
        space = self.space if entries is None else parse_space(entries)
        return StudyRules(
            space=space,
            sampler=sampler or IndependentSampler(),
            pruner=pruner or NoPruner(),
            identity=StudyIdentity(
                {"space": space.plain()} if identity is None else identity,
                defaults or {},
                may_change,
                edited_space(edits),
            ),
            asks_for_params=asks_for_params,
            choice=choice,
            slow_kinds=slow_kinds,
            portfolio=portfolio,
            edits=edits,
            read_earlier=lambda: earlier or EarlierTrials(),
        )

    def open(
        self, *, directory: Path | None = None, begun: BegunTrials = NO_TRIALS, **settings: Any
    ) -> Study:
        """Open a study; `settings` are those of `rules` and of the study."""
        of_rules = {name: settings.pop(name) for name in _RULES if name in settings}
        study = Study.open(
            StudyConfig(**{"name": "toy"} | settings),
            self.rules(**of_rules),
            directory or self.directory,
            begun=begun,
        )
        self._open.append(study)
        return study

    def reopen(self, study: Study, **settings: Any) -> Study:
        study.close()
        return self.open(**settings)

    def close_and_check(self) -> None:
        for study in self._open:
            check(study)
        self.close()

    def close(self) -> None:
        for study in self._open:
            study.close()


_RULES = tuple(inspect.signature(Studies.rules).parameters)[1:]


def check(study: Study) -> None:
    """What must always hold of a study."""
    counts = study.counts()
    assert sum(counts.values()) == study.n_asked
    assert counts[TrialState.INTERRUPTED] == 0
    ranked = study.ranking(study.n_asked)
    assert len({trial.number for trial in ranked}) == len(ranked)
    for trial in ranked:
        if trial.number not in study.by_request.values():  # these may lie outside
            study._history.at(trial.number).check(trial.params)
    best = study.best()
    assert best is None or best == ranked[0]
    assert best is not None or not any(trial.state is TrialState.FINISHED for trial in ranked)


@pytest.fixture
def studies(tmp_path: Path) -> Iterator[Studies]:
    with warnings.catch_warnings():  # opening a study sets filters for the whole process
        opened = Studies(tmp_path)
        yield opened
        opened.close_and_check()


def ask(study: Study) -> AskedTrial:
    asked = study.ask()
    assert asked is not None
    return asked


def report(study: Study, number: int, step: int, value: float) -> Verdict:
    return study.report([MetricsReported(number, 0.0, step, {"val_loss": value})])[number]


def finish(study: Study, number: int, value: float = 1.0) -> None:
    study.tell(number, FinishedOutcome(number, 0.0, value))


def value_of(asked: AskedTrial) -> float:
    """A made-up result that depends on the params alone."""
    lr, depth = asked.params["lr"], asked.params["depth"]
    assert isinstance(lr, float)
    assert isinstance(depth, int)
    return (lr - 0.01) ** 2 + depth / 100


def run(study: Study, n_trials: int, sign: int = 1) -> list[AskedTrial]:
    """Ask and finish trials until the study has `n_trials`; `sign` -1 for one that maximises."""
    trials = []
    while study.n_asked < n_trials:
        asked = ask(study)
        report(study, asked.number, 0, sign * value_of(asked) + 1)
        finish(study, asked.number, sign * value_of(asked))
        trials.append(asked)
    return trials
