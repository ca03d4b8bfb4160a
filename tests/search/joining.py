"""Sweeps that join one study in PostgreSQL, each in a folder of its own as on its own machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from automl.config import StudyConfig
from automl.record.sharing.shared_record import SharedRecord
from automl.search.pruners.none import NoPruner
from automl.search.samplers.sampler import Sampler
from automl.search.search_space import parse_space
from automl.search.shared_study import SharedStudy, open_shared_storage
from automl.search.study_identity import StudyIdentity, StudyRules
from automl.trial import Params

SPACE = {
    "x": {"low": 0.0, "high": 1.0, "step": 0.25},
    "kind": {"choices": ["a", "b"]},
    "y": {"low": 1, "high": 3, "when": {"kind": "b"}},
}
N_COMBINATIONS = 5 * (1 + 3)
Join = Callable[..., SharedStudy]


def rules_of(sampler: Sampler) -> StudyRules:
    space = parse_space(SPACE)
    identity = StudyIdentity({"space": space.plain()}, {})
    return StudyRules(space=space, sampler=sampler, pruner=NoPruner(), identity=identity)


@pytest.fixture
def join(database: str, tmp_path: Path) -> Iterator[Join]:
    """Further sweeps of one study."""
    joined: list[SharedRecord] = []

    def one_more(
        sampler: Sampler,
        n_trials: int,
        enqueue: Sequence[Params] = (),
        rules: StudyRules | None = None,
    ) -> SharedStudy:
        (folder := tmp_path / str(len(joined))).mkdir()
        config = StudyConfig(
            name="a",
            dir=str(folder),
            storage=database,
            n_trials=n_trials,
            enqueue=[dict(params) for params in enqueue],
        )
        joined.append(shared := SharedRecord.open(config, folder))
        opened = open_shared_storage(shared, "config")
        return SharedStudy.open(config, rules or rules_of(sampler), folder, opened)

    yield one_more
    for shared in joined:
        shared.close()
