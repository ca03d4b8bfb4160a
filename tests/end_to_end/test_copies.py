"""A study's folder renamed, moved and copied: whose runs are whose in MLflow."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import Call, snapshot
from tests.end_to_end.program import Program, objective_words
from tests.end_to_end.records import Records

LOSSES = ["train_loss", "val_loss"]
WORDS = ("devices.only=cpu", "execution=inline", "pruner=none", *objective_words("reports_thrice"))


def copied(records: Records, to: Path) -> Path:
    shutil.copytree(records.path, to)
    return to


def shown(records: Records) -> dict[str, dict[Any, Any]]:
    """All that MLflow says of the study's runs."""
    return {run.info.run_id: run.to_dictionary() for run in records.runs()}


def uuids(records: Records) -> set[str]:
    return {run.data.tags["automl.study"] for run in records.runs()}


@pytest.mark.slow
def test_a_copy_is_asked_for_and_then_has_runs_of_its_own(folder: Path, call: Call) -> None:
    first, second = Records(folder, "first"), Records(folder, "second")
    assert call("study.name=first", "study.n_trials=2", *WORDS).code == 0
    before, n_lines = shown(first), first.n_lines()
    copied(first, second.path)
    untouched = snapshot(second.path)
    for command in ("resume", "sync"):
        asked = call(command, "study.name=second")
        assert asked.code == 2
        for word in ("moved or copied", "copy=true", "copy=false", "second", "first"):
            assert word in asked.stderr
        assert {**snapshot(second.path), "lock": b""} == {**untouched, "lock": b""}

    synced = call("sync", "study.name=second", "copy=true")
    assert synced.code == 0, synced.stderr
    assert f"delivered events: {n_lines}\n" in synced.stdout
    (own,) = uuids(second)
    assert own not in uuids(first)
    assert second.n_lines() == n_lines, "only MLflow was told"
    second_runs = {run.info.run_id for run in second.runs()}
    assert len(second_runs) == 3

    assert call("resume", "study.name=second", "study.n_trials=3").code == 0
    assert uuids(second) == {own}, "asked once, taken once"
    assert second_runs < {run.info.run_id for run in second.runs()}
    assert second.parent().info.run_name == "second"
    assert set(second.trial_runs()) == {0, 1, 2}
    for run in second.trial_runs().values():
        assert second.steps(run, "val_loss") == [0, 1, 2]
        assert run.data.tags["mlflow.parentRunId"] == second.parent().info.run_id
    assert shown(first) == before, "no old run is touched"
    (second.path / "place.json").unlink()  # the journal says which study it is, too
    assert call("resume", "study.name=second", "copy=false").code == 0
    assert uuids(second) == {own}
    assert shown(first) == before
    assert call("resume", "study.name=first", "study.n_trials=3").code == 0
    assert uuids(first).isdisjoint({own})
    first.check_exact(3, 3, LOSSES)


@pytest.mark.slow
def test_a_renamed_study_keeps_its_runs_and_its_experiment(folder: Path, call: Call) -> None:
    old, new = Records(folder, "old"), Records(folder, "new")
    assert call("study.name=old", "study.n_trials=2", *WORDS).code == 0
    runs, whose = set(shown(old)), uuids(old)
    (experiment,) = {run.info.experiment_id for run in old.runs()}
    os.rename(old.path, new.path)
    done = call("resume", "study.name=new", "study.n_trials=3")
    assert done.code == 0, done.stderr
    assert uuids(new) == whose
    assert runs < set(shown(new))
    assert {run.info.experiment_id for run in new.runs()} == {experiment}
    assert set(new.trial_runs()) == {0, 1, 2}

    moved = Records(folder, "new")
    moved.path = copied(new, folder / "elsewhere" / "new")
    shutil.rmtree(new.path)
    runs = set(shown(new))
    words = ("resume", "study.dir=elsewhere", "study.name=new", "study.n_trials=4")
    assert call(*words).code == 2, "it may be a copy: the original could be on another machine"
    assert call(*words, "copy=false").code == 0
    assert uuids(moved) == whose
    assert runs < set(shown(moved))
    assert call(*words).code == 0, "asked once"
    assert set(shown(moved)) == {run.info.run_id for run in moved.runs()}
    assert set(moved.trial_runs()) == {0, 1, 2, 3}


@pytest.mark.slow
def test_a_copy_killed_while_it_becomes_a_study_of_its_own_becomes_one(
    program: Program, folder: Path, call: Call
) -> None:
    first = Records(folder, "first")
    assert call("study.name=first", "study.n_trials=3", *WORDS).code == 0
    before = shown(first)
    place = copied(first, folder / "elsewhere" / "first") / "place.json"
    kept = place.read_bytes()
    words = ("resume", "study.dir=elsewhere", "study.name=first", "study.n_trials=4")
    for _ in range(2):  # in its first moments, and later; only the first one has to be told
        told = ("copy=true",) if place.read_bytes() == kept else ()
        running = program.start(*words, *told)
        running.wait_until(lambda: place.read_bytes() != kept, "a place of its own")
        running.kill()
    assert call(*words).code == 0
    runs = shown(first)
    assert {run_id: runs[run_id] for run_id in before} == before, "no old run is touched"
    (whose,) = {run["data"]["tags"]["automl.study"] for run in before.values()}
    own = [run["data"]["tags"] for run_id, run in runs.items() if run_id not in before]
    assert len({tags["automl.study"] for tags in own} | {whose}) == 2
    assert sorted(tags.get("automl.trial", "parent") for tags in own) == [*"0123", "parent"]
