"""`register` on studies that were searched: what MLflow has then, and what it serves over HTTP."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run, RunInfo

import automl
from automl.config import StudyConfig
from automl.record.studies import read_study
from automl.record.study_directory import StudyDirectory
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Done, Program
from tests.end_to_end.records import Records
from tests.end_to_end.served_model import RefusedError, ask, serve_champion

pytest.importorskip("onnxruntime", reason="needs pip install 'automl-sweep[export]'")
SPACE = "space={width: 16, depth: 1, batch_size: 32, lr: {choices: [0.05, 1e-6]}}"
FEW = (
    SPACE,
    "sampler=grid",
    "study.n_trials=2",
    "training.epochs=6",
    "pruner=none",
    "devices.only=cpu",
    "execution=inline",
    "admission.max_concurrent_trials=1",
)
MOVED = ("study.name=t", "copy=false")


def write_table(path: Path, seed: int = 0, n_rows: int = 400) -> pd.DataFrame:
    """`y` is u where `a` is large; whole numbers `n`, categories `k`; of `a` and `k` cells are
    missing."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n_rows)
    frame = pd.DataFrame(
        {
            "a": np.where(rng.random(n_rows) < 0.05, np.nan, a.round(3)),
            "n": pd.array(rng.integers(0, 90, n_rows), dtype="Int64"),
            "k": rng.choice(["p", "q", "1"], n_rows),
            "y": np.where((a > 0) ^ (rng.random(n_rows) < 0.1), "u", "v"),
        }
    )
    frame.loc[3, "k"] = "?"
    frame.to_csv(path, index=False)
    return frame


@pytest.fixture(scope="module")
def searched(module_program: Program) -> Path:
    """A folder with a study `t` of a table, one of whose trials learned nothing."""
    write_table(module_program.folder / "table.csv")
    words = ("study.name=t", "data=csv", "model=mlp", "data.path=table.csv", "data.target=y")
    done = module_program.call(*words, *FEW)
    assert done.code == 0
    return module_program.folder


@pytest.fixture
def study(searched: Path, folder: Path) -> Records:
    """The study, in a folder of the test's own."""
    return Records.copied(searched, folder, "t")


@dataclass(frozen=True)
class Registered:
    """A folder whose study has its best trial registered, as it went."""

    folder: Path
    run_before: RunInfo
    done: Done


@pytest.fixture(scope="module")
def registered(searched: Path, tmp_path_factory: pytest.TempPathFactory) -> Registered:
    study = Records.copied(searched, tmp_path_factory.mktemp("registered"), "t")
    program = Program(study.path.parents[1])
    assert program.call("sync", *MOVED).code == 0
    best, _ = best_and_other(study)
    before = study.trial_runs()[best].info
    return Registered(program.folder, before, program.call("export", "format=registry", *MOVED))


@pytest.fixture
def with_version(registered: Registered, folder: Path) -> Records:
    """The study and its registered version, in a folder of the test's own."""
    return Records.copied(registered.folder, folder, "t")


def client(study: Records) -> MlflowClient:
    return MlflowClient(f"sqlite:///{study.path.parents[1] / 'mlflow.db'}")


def versions(study: Records, name: str = "t") -> list[Any]:
    """With their aliases."""
    found = client(study).search_model_versions(f"name='{name}'")
    return sorted(
        (client(study).get_model_version(name, v.version) for v in found),
        key=lambda version: int(version.version),
    )


def shown_on(run: Run) -> list[Any]:
    """The models in the run's column *Models*."""
    return [] if run.outputs is None else list(run.outputs.model_outputs)


def best_and_other(study: Records) -> tuple[int, int]:
    best, other = (trial.number for trial in read_study(study.path).ranking())
    return best, other


def test_the_best_model_is_logged_on_its_run_and_registered_once(
    registered: Registered, with_version: Records, call: Call
) -> None:
    study, before, first = with_version, registered.run_before, registered.done
    best, other = best_and_other(study)
    again = call("export", "format=registry", *MOVED)
    assert [(done.code, done.stderr) for done in (first, again)] == [(0, "")] * 2
    assert f"trial-{best:05d} is version 1 of the registered model t\n" in first.stdout
    assert (
        "champion: there is no champion yet to compare it with; scored on 80 rows" in first.stdout
    )
    assert "models:/t@champion" in first.stdout
    assert "champion: as before" in again.stdout
    assert "format=onnx" not in again.stdout, "the export is there"

    (version,) = versions(study)
    assert version.aliases == ["champion"]
    run = study.trial_runs()[best]
    assert version.run_id == run.info.run_id
    assert (run.info.status, run.info.end_time) == (before.status, before.end_time)
    (shown,) = shown_on(run)
    model = client(study).get_logged_model(shown.model_id)
    assert json.loads(model.tags["mlflow.modelVersions"]) == [{"name": "t", "version": 1}]
    assert str(model.status) == "READY"
    assert model.tags["automl.digest"] == version.tags["automl.digest"]
    (rows,) = (text for key, text in version.tags.items() if key.startswith("automl.rows."))
    assert rows.startswith("80 rows no sweep saw (kept from table.csv): loss ")
    assert version.description.startswith("loss 0.")
    assert " on 80 rows no sweep saw.\n\n`trial-0000" in version.description
    assert f"`{model.tags['automl.digest']}`" in version.description
    measured = {metric.key: metric.value for metric in model.metrics or []}
    assert measured["test_loss"] == run.data.metrics["test_loss"]
    assert measured.keys() >= {"test_loss_low", "test_loss_high", "test_error"}
    assert shown_on(study.trial_runs()[other]) == []


@pytest.mark.slow
def test_a_worse_version_is_a_challenger(with_version: Records, call: Call) -> None:
    study = with_version
    _, other = best_and_other(study)
    done = call("export", "format=registry", *MOVED, f"which={other}")
    assert (done.code, done.stderr) == (0, "")
    assert f"trial-{other:05d} is version 2 of the registered model t\n" in done.stdout
    assert "challenger: loss +" in done.stdout
    assert "from that of version 1 on 80 rows no sweep saw" in done.stdout
    assert ": worse\n" in done.stdout
    assert [version.aliases for version in versions(study)] == [["champion"], ["challenger"]]


@pytest.mark.slow
def test_a_better_version_becomes_the_champion(study: Records, call: Call) -> None:
    _, other = best_and_other(study)
    assert call("export", "format=registry", *MOVED, f"which={other}").code == 0
    done = call("export", "format=registry", "study.name=t")
    assert ": better\n" in done.stdout
    assert [version.aliases for version in versions(study)] == [[], ["champion"]]


@pytest.mark.slow
def test_a_name_of_another_projects_is_left_alone(study: Records, call: Call) -> None:
    client(study).create_registered_model("theirs")
    client(study).create_registered_model("t", tags={"automl.study": "another"})
    for words, said in (
        ((), "the registered model of this name is of another study of automl (another)"),
        (("as=t",), "another study of automl (another), which shares it with none"),
        (("as=theirs",), "as=theirs: another project has a registered"),
    ):
        done = call("export", "format=registry", *MOVED, *words)
        assert done.code == 2
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert versions(study, "theirs") == versions(study) == []
    client(study).set_registered_model_tag("t", "automl.shared", "true")
    shared = call("export", "format=registry", "study.name=t", "as=t")
    assert (shared.code, shared.stderr) == (0, ""), "it was named"
    assert len(versions(study)) == 1


@pytest.mark.slow
def test_a_registry_that_is_down_is_gone_on_with(
    study: Records, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MLFLOW_REGISTRY_URI", f"http://127.0.0.1:{nobody.getsockname()[1]}")
        done = call("export", "format=registry", *MOVED)
    assert done.code == 1
    assert "MLFLOW_REGISTRY_URI=http://127.0.0.1:" in done.stderr
    assert "MLflow's model registry cannot be used" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert study.parent().info.status == "FINISHED"
    monkeypatch.delenv("MLFLOW_REGISTRY_URI")
    assert call("export", "format=registry", "study.name=t").code == 0
    assert [version.aliases for version in versions(study)] == [["champion"]]


@pytest.mark.parametrize("command", ["register", "release"])
def test_what_cannot_be_served_is_refused_before_anything(
    command: str, study: Records, call: Call
) -> None:
    done = call(command, *MOVED, "format=torch")
    assert done.code == 2
    assert "format=torch: is no setting, but an argument of export" in done.stderr
    assert not (study.path / "exports").exists()


@pytest.mark.slow
def test_one_registers_at_a_time(study: Records, call: Call) -> None:
    assert call("evaluate", *MOVED).code == 0
    with StudyDirectory.open(StudyConfig(name="t"), must_exist=True):
        done = call("export", "format=registry", "study.name=t")
    assert done.code != 0
    assert "another sweep works on this study" in done.stderr
    assert versions(study) == []


# --- served ---------------------------------------------------------------------------------------


@pytest.fixture
def served(with_version: Records, program: Program) -> str:
    """The address of the registered model."""
    return serve_champion(program, "t")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::automl.errors.UnreadableCellWarning")
def test_it_is_served_where_neither_automl_nor_torch_is_installed(
    served: str, with_version: Records
) -> None:
    study = with_version
    best, _ = best_and_other(study)
    rows: list[list[Any]] = [
        [0.5, 7, "p"],
        [1, 7.0, 1],  # whole numbers of either kind, and a category that is one
        [None, None, None],
        ["?", "", "NA"],
        ["-0.25", " 12 ", "emu"],  # a category of no training row
        [-3, 1e300, "q"],
    ]
    frame = pd.DataFrame(rows, columns=["a", "n", "k"], dtype=object)
    model = automl.load(study.path / "checkpoints" / f"trial-{best:05d}" / "best.pt")
    said = ask(served, ["a", "n", "k"], rows)
    expected = model.predict_probabilities(frame)
    given = [[row[f"probability_{label}"] for label in model.classes] for row in said]
    np.testing.assert_allclose(given, expected, atol=1e-6)
    assert [row["prediction"] for row in said] == list(model.predict(frame))
    whole = [[3, 4, 1], [2, 5, 1]]  # columns of integers alone
    assert ask(served, ["k", "n", "a"], [row[::-1] for row in whole]) == ask(
        served, ["a", "n", "k"], whole
    )
    for columns, row, problem in (
        (["a", "n"], [0.5, 7], "missing inputs ['k']"),
        (["a", "n", "k"], ["tall", 7, "1"], "a='tall': a number is needed, or nothing."),
    ):
        with pytest.raises(RefusedError) as refused:
            ask(served, columns, [row])
        status, said = refused.value.args
        assert status == 400
        assert problem in said
