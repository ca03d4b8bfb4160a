"""`model=linear|trees|boosting` from the command line: swept, killed, gone on with, and used."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import automl
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Program
from tests.end_to_end.records import Records
from tests.models.tables import TARGET, mixed_frame

TABLE = ("data=csv", "data.path=table.csv", f"data.target={TARGET}")
REFUSED = """
from pathlib import Path
Path({marker!r}).touch()
raise ImportError("torch is not wanted")
"""


@pytest.fixture
def table(folder: Path) -> Path:
    """In the test's folder."""
    mixed_frame(2).to_csv(folder / "table.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def story_with_trees(module_program: Program) -> Path:
    """A folder with a study of trees, `t`. Other families go the same way, and have their suites
    of families, exports and refits."""
    mixed_frame(2).to_csv(module_program.folder / "table.csv", index=False)
    inline = ("devices.only=cpu", "execution=inline", "sampler=random", "pruner=none")
    words = ("model=trees", "study.name=t", "study.n_trials=2", "training.epochs=3")
    assert module_program.call(*words, *TABLE, *inline).code == 0
    return module_program.folder


@pytest.fixture
def swept(story_with_trees: Path, folder: Path) -> Path:
    """The test's own folder, with that study in it."""
    shutil.copytree(story_with_trees, folder, dirs_exist_ok=True)
    return folder


@pytest.mark.slow
def test_no_process_of_a_sweep_loads_torch(table: Path, program: Program) -> None:
    """Whoever looks for torch finds one that leaves a mark and cannot be had."""
    marker, package = table / "looked-for", table / "first" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(REFUSED.format(marker=str(marker)))
    program.environment["PYTHONPATH"] = f"{table / 'first'}:{program.environment['PYTHONPATH']}"
    families = ("model=auto", "model.families=[linear,trees,boosting]", "space=auto")
    words = ("study.name=t", "study.n_trials=3", "training.epochs=3", *TABLE)
    done = program.run(*families, *words, "devices.only=cpu", "execution=workers")
    assert (done.code, done.stderr) == (0, "")
    assert not marker.exists()
    params = Records(table, "t").params()
    assert {p["family"] for p in params.values()} == {"linear", "trees", "boosting"}
    done = program.run("predict", "study.name=t", "to=said.csv", "table=table.csv")
    assert (done.code, done.stderr) == (0, "")
    assert not marker.exists()


@pytest.mark.slow
def test_a_killed_sweep_goes_on_as_if_it_never_was(table: Path, program: Program) -> None:
    words = (
        *("model=trees", "study.n_trials=2", "training.epochs=12", *TABLE),
        *("pruner=none", "sampler=random", "devices.only=cpu", "execution=workers"),
        *("training.checkpoint_every_seconds=0", "admission.max_concurrent_trials=1"),
    )
    killed, whole = Records(table, "killed"), Records(table, "whole")
    sweep = program.start(*words, "study.name=killed")
    sweep.wait_until(lambda: len(killed.of_trial(0)) > 6, "some reports")
    sweep.kill()
    done = program.start("resume", "study.name=killed").wait()
    assert (done.code, done.stderr) == (0, "")
    assert program.start(*words, "study.name=whole").wait().code == 0
    assert killed.losses() == whole.losses()


@pytest.mark.slow
def test_a_model_is_scored_explained_and_trained_again(swept: Path, call: Call) -> None:
    moved = ("study.name=t", "copy=false")
    done = call("evaluate", *moved)
    assert (done.code, done.stderr) == (0, "")
    assert "loss" in done.stdout
    best, records = automl.open_study("t").best, Records(swept, "t")
    model = best.load()
    assert model.model is None
    assert list(model.explain(mixed_frame(2, seed=1)).index)[-1] == "b"
    done = call("refit", *moved, "seeds=2")
    assert (done.code, done.stderr) == (0, "")
    refitted = automl.load(swept / "studies" / "t" / "refit.pt")
    frame = mixed_frame(2, seed=2)
    assert (refitted.predict(frame) == model.predict(frame)).mean() > 0.8
    (name_of_refit,) = (path.name for path in (swept / "studies" / "t" / "refits").iterdir())
    again = Records(swept, "t")
    again.path = swept / "studies" / "t" / "refits" / name_of_refit
    n_steps = {trial: 0 for trial, _ in again.losses()}
    for trial, _ in again.losses():
        n_steps[trial] += 1
    losses = {s: m["val_loss"] for (t, s), m in records.losses().items() if t == best.number}
    n_best = min(losses, key=lambda step: losses[step]) + 1
    assert n_steps == {0: n_best, 1: n_best}, "as long as the trial trained to its best"


def test_a_model_is_exported_and_registered(swept: Path, call: Call) -> None:
    moved = ("study.name=t", "copy=false")
    pytest.importorskip("onnxruntime", reason="needs pip install 'automl-sweep[export]'")
    done = call("export", *moved, "format=torch")
    assert done.code == 2
    assert "format=torch: models of this family have these: onnx" in done.stderr
    done = call("export", *moved, "to=out")
    assert (done.code, done.stderr) == (0, "")
    assert "all labels the same" in done.stdout
    done = call("export", "format=registry", *moved)
    assert (done.code, done.stderr) == (0, "")
    assert "version 1 of the registered model t" in done.stdout
    assert "champion" in done.stdout


@pytest.mark.slow
def test_what_several_families_found_is_exported_and_released(table: Path, call: Call) -> None:
    """Trials of folds, and their ensemble."""
    pytest.importorskip("onnxruntime", reason="needs pip install 'automl-sweep[export]'")
    words = ("model=auto", "study.name=t", "study.n_trials=3", "training.epochs=3", *TABLE)
    folds = ("data.folds=3", "model.families=[linear,trees]", "space=auto", "pruner=none")
    done = call(*words, *folds, "devices.only=cpu", "execution=inline")
    assert (done.code, done.stderr) == (0, "")
    done = call("export", "study.name=t", "which=ensemble", "to=out")
    assert (done.code, done.stderr) == (0, "")
    assert "all labels the same" in done.stdout
    done = call("release", "study.name=t")
    assert (done.code, done.stderr) == (0, "")
    assert "version 1 of t" in done.stdout


def test_what_asks_for_gpus_is_refused(table: Path, call: Call) -> None:
    words = ("model=trees", "study.name=t", *TABLE)
    for setting in ("devices.only=nvml", "devices.only=gpu"):
        done = call(*words, setting)
        assert done.code == 2
        assert f"{setting}: model=trees trains on the CPU alone: leave it out." in done.stderr
    done = call(*words, "training.schedule=cosine")
    assert "training.schedule=cosine: it is about how networks are trained" in done.stderr
