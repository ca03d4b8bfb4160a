"""`export` and `predict` of studies that are there: what is written, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import automl
from automl.record.event_log import read_events
from automl.trial import ExportTuned
from tests.end_to_end.conftest import Call

STORED = Path(__file__).parents[1] / "stored_studies"


@pytest.fixture
def stored(folder: Path) -> Path:
    """Studies of an earlier version, the folder being the current one."""
    shutil.copytree(STORED, folder, dirs_exist_ok=True)
    (folder / "other.csv").write_text("size,price\n1,2.5\n2,3.5\n")
    return folder


def best_of(folder: Path, study: str, said: str) -> Path:
    found = re.search(r"^trial-(\d+) of ", said, re.MULTILINE)
    assert found is not None, said
    number = int(found[1])
    return folder / "studies" / study / "checkpoints" / f"trial-{number:05}" / "best.pt"


@pytest.mark.slow
@pytest.mark.parametrize("study", ["disc", "table"])
def test_the_best_trial_is_exported_into_the_study(stored: Path, call: Call, study: str) -> None:
    pytest.importorskip("onnxruntime", reason="needs pip install 'automl-sweep[export]'")
    done = call("export", f"study.name={study}")
    assert (done.code, done.stderr) == (0, "")
    (folder,) = (stored / "studies" / study / "exports").iterdir()
    schema = json.loads((folder / "schema.json").read_text())
    assert schema["study"] == study
    assert folder.name == f"trial-{schema['trial']:05}-onnx"
    best = automl.load(best_of(stored, study, done.stdout))
    assert list(best.classes) == schema["classes"]
    assert ("all labels the same" in done.stdout) is bool(best.classes)


@pytest.mark.slow
def test_the_fastest_way_is_measured_and_written(
    stored: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime", reason="needs pip install 'automl-sweep[export]'")
    monkeypatch.setattr("automl.measure.tuning.measurement.ONE_ROW_SECONDS", 0.01)
    monkeypatch.setattr("automl.measure.tuning.measurement.BATCH_SECONDS", 0.01)
    from torch._inductor import config

    # Inductor's own way, since monkeypatch would leave the option deleted in this process.
    with config.patch({"cpp.cxx": ("none-such",)}):  # nothing is compiled
        done = call("export", "study.name=table", "tune=true", "to=out")
    assert (done.code, done.stderr) == (0, "")
    tuned = json.loads((stored / "out" / "tune.json").read_text())
    schema = json.loads((stored / "out" / "schema.json").read_text())
    ways = {one["label"]: one for one in tuned["ways"]}
    why = {one["name"]: one["why_not"] for one in tuned["ways"]}
    assert why["torch.compile"] == "there is no C++ compiler"
    assert "install one" in why["aoti"]
    chosen = ways[tuned["chosen"]]
    fit = [one for one in ways.values() if one["within"] and one["is_file"]]
    assert chosen["timing"]["p50_seconds"] == min(o["timing"]["p50_seconds"] for o in fit)
    assert schema["threads"] == (chosen["threads"] if schema["format"] == "onnx" else 1)
    assert (stored / "out" / "tune.png").read_bytes().startswith(b"\x89PNG")
    assert f"chosen: {tuned['chosen']}" in done.stdout
    assert "the fastest for one row: " in done.stdout
    *_, (event, _) = read_events(stored / "studies" / "table" / "events.log")
    assert isinstance(event, ExportTuned)
    assert event.chosen == tuned["chosen"]


def test_ctrl_c_before_any_file_was_measured_is_no_failure(
    stored: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("automl.measure.tuning.measurement.ONE_ROW_SECONDS", 0.01)
    monkeypatch.setattr("automl.measure.tuning.measurement.BATCH_SECONDS", 0.01)
    monkeypatch.setattr("torch.export.export", interrupted)  # the first way that makes a file
    done = call("export", "study.name=table", "tune=true", "to=out")
    assert done.code == 130
    assert done.stderr == "automl: Ctrl-C: stopped before its end; give the same command again.\n"
    assert "interrupted before anything that could be written was measured" in done.stdout
    assert not (stored / "out").exists()


def test_a_trial_and_a_folder_are_chosen_and_a_network_of_the_users_is_built(
    stored: Path, call: Call
) -> None:
    to = stored / "out"
    words = ["study.name=network", "format=torch", "which=1", f"to={to}"]
    done = call("export", *words)
    assert (done.code, done.stderr) == (0, "")
    assert json.loads((to / "schema.json").read_text())["trial"] == 1
    assert (to / "model.pt2").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["study.name=function"], "needs a study of the built-in training"),
        (
            ["study.name=disc", "which=99"],
            "which=99: study disc has no such trial. Those with a value",
        ),
        (["study.name=disc", "format=jit"], "format=jit: must be onnx"),
        (["study.name=nobody"], "study.name=nobody: no such study"),
        (["study.name=table", "data.path=gone.csv"], "data.path=gone.csv: there is no such file"),
        (["study.name=table", "data.path=other.csv"], "The table lacks the columns colour"),
    ],
)
@pytest.mark.parametrize("command", ["export", "predict"])
def test_what_cannot_be_done_is_refused(
    stored: Path, call: Call, command: str, words: list[str], said: str
) -> None:
    if command == "predict":
        if "data.path" in words[-1] or "jit" in words[-1]:
            return  # it reads no table of the study's
        words = [w.replace("export.", "predict.") for w in words]
        words += ["table=table.csv", "to=scores.csv"]
        said = said.replace("export.", "predict.")
    done = call(command, *words)
    assert done.code == 2
    assert said in done.stderr
    assert not (stored / "scores.csv").exists()
    assert list(stored.rglob("exports")) == []


def test_a_study_in_which_nothing_ended_says_so(stored: Path, call: Call) -> None:
    (stored / "studies" / "disc" / "events.log").write_bytes(b"")
    done = call("export", "study.name=disc")
    assert done.code == 2
    assert "no trial of it has ended with a value yet" in done.stderr
    assert "resume disc" in done.stderr


@pytest.mark.parametrize("output", ["scores.csv", "scores.parquet"])
@pytest.mark.parametrize("given", ["rows.csv", "rows.parquet"])
def test_a_table_is_scored_as_automl_load_scores_it(
    stored: Path, call: Call, given: str, output: str
) -> None:
    frame = pd.read_csv(stored / "table.csv")
    frame.insert(0, "id", [f"{i:03}" for i in range(len(frame))])
    frame.insert(0, "number", range(len(frame)))
    frame.to_csv(given, index=False) if given.endswith("csv") else frame.to_parquet(given)
    words = [f"table={given}", f"to={output}", "keep=[id,number,size]"]
    done = call("predict", "study.name=table", *words)
    assert (done.code, done.stderr) == (0, "")
    scores = (
        pd.read_csv(output, dtype={"id": str})
        if output.endswith("csv")
        else pd.read_parquet(output)
    )
    model = automl.load(best_of(stored, "table", done.stdout))
    assert scores["id"].tolist() == frame["id"].tolist()
    assert scores["number"].astype(int).tolist() == frame["number"].tolist()
    sizes = pd.to_numeric(scores["size"], errors="coerce")  # a column that the model takes, too
    assert np.allclose(sizes, frame["size"], equal_nan=True)
    assert np.allclose(scores["prediction"], model.predict(frame), rtol=1e-12)
    assert f"{len(frame)} rows" in done.stdout
    assert not (stored / f"{output}.unread.csv").exists()


def test_classes_come_with_their_probabilities(stored: Path, call: Call) -> None:
    frame = pd.DataFrame({"x1": [0.0, 0.9, -0.2], "x2": [0.1, 0.9, None]})
    frame.to_csv("rows.csv", index=False)
    words = ["table=rows.csv", "to=scores.csv", "which=1"]
    done = call("predict", "study.name=disc", *words)
    assert (done.code, done.stderr) == (0, "")
    assert "trial-00001 of disc scores rows.csv" in done.stdout
    scores = pd.read_csv("scores.csv")
    model = automl.load(best_of(stored, "disc", done.stdout))
    assert scores["prediction"].tolist() == model.predict(frame).tolist()
    said = scores[["probability_0", "probability_1"]].to_numpy()
    assert np.allclose(said, model.predict_probabilities(frame), rtol=1e-12)


def test_rows_that_cannot_be_read_are_named_counted_and_empty(stored: Path, call: Call) -> None:
    (stored / "rows.csv").write_text("x1,x2\n1,2\n1,2,3\nbig,0\n0,0\n")
    words = ["table=rows.csv", "to=scores.csv"]
    done = call("predict", "study.name=disc", *words)
    assert (done.code, done.stderr) == (0, "")
    assert "line 3: cells: 3, and 2 columns" in done.stdout
    assert "2 of them cannot be read" in done.stdout
    scores = pd.read_csv("scores.csv", skip_blank_lines=False)
    assert scores["prediction"].notna().tolist() == [True, False, False, True]
    unread = pd.read_csv("scores.csv.unread.csv")
    assert unread["row"].tolist() == ["line 3", "line 4"]
    assert unread["reason"][1] == "x1='big' is no number"


@pytest.mark.parametrize(
    ("body", "words", "said"),
    [
        ("x1\n1\n", [], "lacks the columns x2"),
        ("x1,x2\n", [], "has a header and no rows"),
        ("x1,x2\n1,a\n", [], r"its only row cannot be read (line 2: x2='a' is no number)"),
        ("x1,x2\n1,2\n", ["to=rows.csv"], "is the table itself"),
        ("x1,x2\n1,2\n", ["to=gone/s.csv"], "a file in a folder that is there"),
        ("x1,x2\n1,2\n", ["to=/dev/null"], "this is a device, which no file"),
        ("x1,x2\n1,2\n", ["to=s.xlsx"], "must end in .csv or .parquet"),
        ("x1,x2\n1,2\n", ["keep=[id]"], "has no column id to keep; it has: x1, x2"),
        ("x1,x2\n1,2\n", ["table=null"], "table: must be given"),
    ],
)
def test_nothing_is_written_where_nothing_can_be_scored(
    stored: Path, call: Call, body: str, words: list[str], said: str
) -> None:
    (stored / "rows.csv").write_text(body)
    (stored / "scores.csv").write_text("of yesterday")
    given = ["table=rows.csv", "to=scores.csv", *words]
    done = call("predict", "study.name=disc", *given)
    assert done.code == 2
    assert said in done.stderr
    assert (stored / "scores.csv").read_text() == "of yesterday"
    assert (stored / "rows.csv").read_text() == body
    assert list(stored.glob("*.part")) == list(stored.glob("*.unread.csv")) == []
