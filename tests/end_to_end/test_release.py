"""`release` from a study that was searched to a registered model, and after whatever ended it."""

from __future__ import annotations

import re
import shutil
import socket
from functools import partial
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient

import automl
from automl.record.studies import read_study
from automl.trial import ModelsEvaluated, refit_name, trial_name
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Program, Running
from tests.end_to_end.records import Records

pytest.importorskip("onnxruntime", reason="needs pip install 'automl-sweep[export]'")
NAME = "study.name=a"
MOVED = (NAME, "copy=false")
SMALL = (
    *(NAME, "devices.only=cpu", "sampler=random", "pruner=none", "study.n_trials=2"),
    *("training.epochs=15", "data.n_train=400", "data.n_validation=100", "execution=inline"),
    "space={depth: 1, width: 32, lr: 0.05, batch_size: 32}",
)
STEPS = ("evaluate", "refit", "evaluate the refit", "export", "register")


@pytest.fixture(scope="module")
def searched(module_program: Program) -> Path:
    done = module_program.start(*SMALL).wait()
    assert (done.code, done.stderr) == (0, "")
    return module_program.folder


@pytest.fixture
def study(searched: Path, folder: Path) -> Records:
    """The study, in a folder of the test's own."""
    return Records.copied(searched, folder, "a")


def check_registered(study: Records) -> Any:
    """One version, the champion, of the refit's own run, which has ended; and it comes back."""
    client = MlflowClient(f"sqlite:///{study.path.parents[1] / 'mlflow.db'}")
    (found,) = client.search_model_versions("name='a'")
    version = client.get_model_version("a", found.version)
    assert version.aliases == ["champion"]
    best = read_study(study.path).best()
    assert best is not None
    assert version.tags["automl.model"] == refit_name(best.number)
    run = client.get_run(str(version.run_id))
    assert run.data.tags["automl.kind"] == "refit"
    assert run.info.status == "FINISHED"
    assert run.outputs is not None
    assert len(run.outputs.model_outputs) == 1
    return version


def shown_steps(said: str) -> dict[str, str]:
    """The line of each step in the closing table."""
    lines = said.partition("\nstep ")[2].splitlines()[1:]
    cells = [re.split(r"  +", line.strip()) for line in lines]
    return {cell[0]: cell[1] for cell in cells if cell[0] in STEPS and len(cell) == 3}


@pytest.mark.slow
def test_a_registry_that_is_down_leaves_one_step_for_the_next_time(
    study: Records, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MLFLOW_REGISTRY_URI", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        first = call("release", *MOVED)
    assert first.code == 1
    assert "MLflow's model registry cannot be used" in first.stderr
    assert list(shown_steps(first.stdout)) == list(STEPS[:4])
    assert "go on with: python -m automl release a" in first.stdout
    number = read_study(study.path).ranking()[0].number
    scores = [event for event in study.events() if isinstance(event, ModelsEvaluated)]
    both = (refit_name(number), trial_name(number))
    assert [event.models for event in scores] == [both[1:], both]

    monkeypatch.delenv("MLFLOW_REGISTRY_URI")
    second = call("release", NAME)
    assert (second.code, second.stderr) == (0, "")
    steps = shown_steps(second.stdout)
    assert [name for name, line in steps.items() if line.endswith("(done before)")] == [*STEPS[:4]]
    assert steps["register"] == "version 1 of a, champion"
    check_registered(study)

    third = call("release", NAME)
    assert shown_steps(third.stdout)["register"] == "version 1 of a, champion"
    check_registered(study)
    assert len([event for event in study.events() if isinstance(event, ModelsEvaluated)]) == 2
    (study.path / "refit.pt").unlink()
    fourth = call("release", NAME)
    assert (fourth.code, fourth.stderr) == (0, "")
    assert "2 of 5: refit\n" in fourth.stdout, "it is not there any more"


@pytest.mark.slow
def test_a_refit_that_is_worse_stops_before_anything_is_exported(
    study: Records, call: Call
) -> None:
    few = ("rows=train", "hold_out=0.97")
    done = call("release", *MOVED, *few)
    assert done.code == 1
    assert "the refit is worse than the trial by more than chance: loss " in done.stderr
    number = read_study(study.path).ranking()[0].number
    assert f"export a format=registry which={number}\n" in done.stderr
    assert list(shown_steps(done.stdout)) == ["evaluate", "refit"]
    assert not (study.path / "exports").exists()
    client = MlflowClient(f"sqlite:///{study.path.parents[1] / 'mlflow.db'}")
    assert client.search_registered_models() == []
    again = call("release", NAME, *few)
    assert again.code == 1, "it is scored, and not let through the second time"


def said(running: Running, mark: str) -> bool:
    return mark in running.stdout


@pytest.mark.slow
def test_whoever_is_killed_in_a_step_goes_on_with_it(study: Records, program: Program) -> None:
    for place, step in ((2, "refit"), (5, "register")):
        running = program.start("release", *MOVED)
        mark = f"{place} of {len(STEPS)}: {step}\n"
        running.wait_until(partial(said, running, mark), mark)
        running.kill()
        assert place < 5 or "1 of 5: " not in running.stdout, "what was done is done"
    done = program.run("release", NAME)  # not forked: the tests' server has a part of MLflow only
    assert (done.code, done.stderr) == (0, "")
    steps = shown_steps(done.stdout)
    assert list(steps) == list(STEPS)
    assert [name for name, line in steps.items() if line.endswith("(done before)")] == [*STEPS[:4]]
    check_registered(study)


@pytest.mark.parametrize("word", ["which=refit", "which=0,1"])
def test_what_cannot_be_refitted_is_refused(word: str, study: Records, call: Call) -> None:
    done = call("release", *MOVED, word)
    assert done.code == 2
    assert f"{word}: release trains one trial or the ensemble again" in done.stderr
    assert not (study.path / "release.json").exists()


@pytest.mark.slow
def test_a_model_that_reads_texts_is_released_and_says_what_the_study_says(
    folder: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("quick delivery and fair price", "slow parcel and rude answer", "as described")
    rows = [f"{i % 7},{words[i % 3]} no {i},{i % 7 + i % 3}" for i in range(120)]
    (folder / "t.csv").write_text("\n".join(["x,review,y", *rows]))
    table = ("table=t.csv", "target=y", "data.columns.review=text", "model=linear", "n_trials=1")
    assert call(*table, NAME, "devices.only=cpu").code == 0
    done = call("release", NAME)
    assert (done.code, done.stderr) == (0, "")
    assert shown_steps(done.stdout)["register"] == "version 1 of a, champion"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
    served = mlflow.pyfunc.load_model("models:/a@champion")
    asked = pd.DataFrame({"x": [3, 3, 3], "review": ["rude answer", "quick delivery", None]})
    theirs = served.predict(asked).drop(columns="prediction").to_numpy()
    assert len({*theirs[:, 0].tolist()}) == 3, "it reads the words"
    ours = automl.load(folder / "studies" / "a" / "refit.pt").predict_probabilities(asked)
    np.testing.assert_allclose(theirs, ours, atol=1e-5)


@pytest.mark.slow
def test_a_copied_study_does_not_count_the_export_of_the_other(
    study: Records, call: Call, folder: Path
) -> None:
    assert call("release", *MOVED).code == 0
    shutil.copytree(study.path, study.path.with_name("b"))
    done = call("release", "study.name=b", "copy=true", "as=b")
    assert (done.code, done.stderr) == (0, "")
    assert "studies/b/exports/" in shown_steps(done.stdout)["export"]
    again = call("release", "study.name=b", "as=b", f"to={folder / 'e'}")
    assert shown_steps(again.stdout)["export"].startswith(str(folder / "e"))
    assert (folder / "e" / "schema.json").exists()
