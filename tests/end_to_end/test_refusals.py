"""A study that exists: what may not change is refused, with the differences and nothing written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Call, snapshot
from tests.end_to_end.program import Program
from tests.end_to_end.records import Records

WORDS = (
    "study.name=kept",
    "study.n_trials=2",
    "training.epochs=1",
    "data.n_train=100",
    "data.n_validation=50",
    "sampler=random",
    "devices.only=cpu",
)
WHO_WAS_HERE = ("studies/kept/lock", "studies/kept/events.delivered", "studies/kept/delivery.log")
"""They tell which process held or delivered the study last, and nothing of the study."""

CHANGES = [
    ("space.depth.high=6", ["space", "depth", "high", "4 in the study, 6 now"]),
    ("space.dropout=0.1", ["dropout", "not set in the study, 0.1 now"]),
    ("~space.width", ["width", "not set now"]),
    ("study.metric=val_error", ['study.metric: "val_loss" in the study, "val_error" now']),
    ("study.seed=1", ["study.seed: 0 in the study, 1 now"]),
    ("study.enqueue=[{lr: 0.01}]", ["study.enqueue: "]),
    ("training.epochs=2", ["training.epochs: 1 in the study, 2 now"]),
    ("training.precision=float64", ['"float32" in the study, "float64" now']),
    ("data.n_train=101", ["data.n_train: 100 in the study, 101 now", "data.digest: "]),
    ("data.split_seed=1", ["data.split_seed: 0 in the study, 1 now"]),
    ("model.growth=doubling space=doubling", ['model.growth: "constant" in the study']),
    (
        "objective=python objective.target=tests.end_to_end.objectives:counts",
        ['objective.kind: "builtin" in the study, "python" now'],
    ),
]


@pytest.fixture(scope="module")
def kept(module_program: Program) -> Program:
    assert module_program.call(*WORDS).code == 0
    return module_program


@pytest.fixture
def inside(kept: Program, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the finished study; a refused sweep changes no byte of what is in it."""
    monkeypatch.chdir(kept.folder)
    before = snapshot(kept.folder)
    yield kept.folder
    after = snapshot(kept.folder)
    for name in WHO_WAS_HERE:
        after[name] = before[name]
    assert [path for path in {**before, **after} if before.get(path) != after.get(path)] == []


@pytest.mark.parametrize(
    ("command", "change", "differences"),
    [
        *(("sweep", *one) for one in CHANGES),
        ("resume", *CHANGES[0]),
        *(pytest.param("resume", *one, marks=pytest.mark.slow) for one in CHANGES[1:]),
    ],
)
def test_what_may_not_change(
    command: str, change: str, differences: list[str], inside: Path, call: Call
) -> None:
    words = [command, "study.name=kept"] if command == "resume" else [command, *WORDS]
    refused = call(*words, *change.split(" ") if "{" not in change else [change])
    assert refused.code == 2
    assert refused.stderr.startswith("automl: study.name=kept was begun with other settings")
    assert "choose another study.name" in refused.stderr
    for said in differences:
        assert said in refused.stderr


def test_a_study_that_is_not_there(inside: Path, call: Call) -> None:
    refused = call("resume", "study.name=other")
    assert refused.code == 2
    assert "study.name=other: no such study" in refused.stderr
    assert "kept" in refused.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("tracking.uri=ftp://here", "tracking.uri=ftp://here"),
        ("tracking.uri=http://127.0.0.1:1", "start that server"),
        ("study.n_trials=0", "study.n_trials=0"),
    ],
)
def test_what_cannot_work(change: str, said: str, inside: Path, call: Call) -> None:
    refused = call("resume", "study.name=kept", change)
    assert refused.code == 2
    assert said in refused.stderr


def test_a_larger_total_goes_on_with_the_same_study(
    kept: Program, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(kept.folder)
    done = call(*WORDS, "study.n_trials=3")
    assert done.code == 0, done.stderr
    assert "kept: 3 finished" in done.stdout
    Records(kept.folder, "kept").check_exact(3, 1, ["train_loss", "val_loss"])
