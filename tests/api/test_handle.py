"""The handle of a study, on studies that were interrupted long ago."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import automl
from automl.api.study_handle import StudyHandle
from automl.record.event_log import encode_event
from automl.record.studies import read_study
from automl.report_page.fragment import SECTION_BY_PICTURE
from automl.trial import FinishedOutcome, MetricsReported, TrialStarted
from tests.manuals import ROOT
from tests.report.studies import BEGUN, SETTINGS, searched, write_study
from tests.report.test_page import HOSTILE, Page

STORED = Path(__file__).parents[1] / "stored_studies" / "studies"


def test_trials_are_a_frame_of_what_is_known_of_each() -> None:
    frame = automl.open_study("disc", dir=str(STORED)).trials()
    record = read_study(STORED / "disc")
    assert list(frame.index) == list(record.trials)
    assert frame.index.name == "trial"
    assert list(frame.columns[:2]) == ["state", "value"]
    for number, trial in record.trials.items():
        row = frame.loc[number]
        assert row["state"] == trial.state.value
        assert row["params.lr"] == trial.params["lr"]
        value = trial.value if trial.state.is_final else trial.best_value
        assert row["value"] == value or (value is None and np.isnan(row["value"]))
        assert row["started"].timestamp() == pytest.approx(trial.started, abs=0.001)
    assert "tags.x" not in frame


def test_the_best_trial_gives_its_model_or_its_state() -> None:
    disc = automl.open_study("disc", dir=str(STORED))
    best = read_study(STORED / "disc").best()
    assert best is not None
    assert (disc.best.number, disc.best.value) == (best.number, best.value)
    assert disc.best.params == best.params
    assert disc.best.load().predict(np.array([[0.0, 0.0], [1.0, 1.0]])).tolist() == [1, 0]
    function = automl.open_study("function", dir=str(STORED))
    assert set(function.best.load()) == {"epoch"}
    assert repr(function).startswith(
        "<study function, interrupted: 1 interrupted, 3 finished; best val_loss 0."
    )
    assert f" by trial {function.best.number} (" in repr(function)
    assert function.best.path == function.best.checkpoint_file()


def test_a_study_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(
        automl.AutoMLError, match=r"holds no study; in .*there are: any_family, disc, f"
    ):
        automl.open_study("dics", dir=str(STORED))


def test_what_is_not_there_yet_is_said(tmp_path: Path) -> None:
    shutil.copytree(STORED / "function", tmp_path / "new")
    study = automl.open_study("new", dir=str(tmp_path))
    (tmp_path / "new" / "checkpoints" / f"trial-{study.best.number:05d}" / "best.pt").unlink()
    assert study.best.path is None
    with pytest.raises(automl.AutoMLError, match=r"left no best\.pt: give one with its reports"):
        study.best.load()
    (tmp_path / "new" / "events.log").write_bytes(b"")
    with pytest.raises(automl.AutoMLError, match="study new: no trial has ended with a value yet"):
        study.best  # noqa: B018
    assert len(study.trials()) == 0


def test_a_cell_shows_the_verdict_the_best_trials_and_the_best_value_so_far(tmp_path: Path) -> None:
    write_study(tmp_path / "any", searched(30))
    study = automl.open_study("any", dir=str(tmp_path))
    html = study._repr_html_()
    shown = Page(html)
    assert f"The best trial is {study.best.number}" in shown.text
    assert "The best trials" in shown.text
    assert [a["aria-label"] for tag, a in shown.elements if tag == "svg" and "aria-label" in a] == [
        "val_loss over trials in the order of their ends"
    ]
    better = [
        TrialStarted(99, BEGUN + 900, {"lr": 0.01, "width": 8}, "cpu"),
        MetricsReported(99, BEGUN + 901, 0, {"val_loss": 0.001}),
        FinishedOutcome(99, BEGUN + 902, 0.001),
    ]
    with open(tmp_path / "any" / "events.log", "ab") as log:
        log.writelines(map(encode_event, better))
    assert "The best trial is 99" in study._repr_html_(), "each call reads the log anew"


def test_a_picture_in_a_notebook_changes_nothing_outside_of_it(tmp_path: Path) -> None:
    write_study(tmp_path / "any", searched(30))
    study = automl.open_study("any", dir=str(tmp_path))
    for name in SECTION_BY_PICTURE:
        html = study.plot(name)._repr_html_()
        shown = Page(html)
        assert shown.elements[0] == ("div", {"class": "automl-report"})
        tags = [tag for tag, _ in shown.elements]
        assert tags.count("style") == 1
        assert not {"script", "html", "body", "link"} & {*tags}
        assert not any("id" in a for _, a in shown.elements)
        style = html.partition("<style>")[2].partition("</style>")[0]
        assert style.startswith(".automl-report {")
        assert style.count("{") == style.count("}")
        assert style.rstrip().endswith("}")
        for selector in (":root", "\nbody"):
            assert selector not in style
        assert repr(study.plot(name)) in " ".join(shown.text.split())


def test_a_picture_that_there_is_not_names_those_that_are(tmp_path: Path) -> None:
    write_study(tmp_path / "any", [])
    study = automl.open_study("any", dir=str(tmp_path))
    known = "progress, importances, path, parallel, curves, timeline"
    with pytest.raises(automl.AutoMLError, match=f"no such picture; there are: {known}"):
        study.plot("importance")
    for name in SECTION_BY_PICTURE:
        assert repr(study.plot(name)) == "There is nothing to draw yet: no trial has begun."
        assert f"`{name}`" in (StudyHandle.plot.__doc__ or "")
    assert "No result yet" in study._repr_html_()


def test_names_cannot_become_part_of_a_notebook(tmp_path: Path) -> None:
    events = []
    for number in range(12):
        events += [
            TrialStarted(number, BEGUN + number, {HOSTILE: number / 10, "b": HOSTILE}, HOSTILE),
            MetricsReported(number, BEGUN + number, 0, {HOSTILE: 1.0 + number}),
            FinishedOutcome(number, BEGUN + number + 1, 1.0 + number),
        ]
    name = "<img src=x onerror=alert(3)>"
    write_study(tmp_path / name, events, {**SETTINGS, "study.metric": HOSTILE})
    study = automl.open_study(name, dir=str(tmp_path))
    for html in (study._repr_html_(), *(study.plot(n)._repr_html_() for n in SECTION_BY_PICTURE)):
        tags = {tag for tag, _ in Page(html).elements}
        assert not tags & {"script", "img"}


def test_the_report_is_written_and_its_path_returned(tmp_path: Path) -> None:
    write_study(tmp_path / "any", searched(5))
    path = automl.open_study("any", dir=str(tmp_path)).report()
    assert path == tmp_path / "any" / "report.html"
    assert "The best trial is" in path.read_text("utf-8")


# --- trials that run elsewhere --------------------------------------------------------------------


def test_trials_are_asked_for_and_told_from_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(automl.AutoMLError, match="holds no study"):
        automl.open_study("lab", dir=str(tmp_path))
    study = automl.open_study(
        "lab",
        dir=str(tmp_path),
        space={"x": (0.0, 1.0), "kind": ["a", "b"]},
        overrides=["study.metric=yield", "study.direction=maximize"],
    )
    first, second = study.ask(2, lease_seconds=None)
    assert (first.number, second.number, first.lease_until) == (0, 1, np.inf)
    assert set(first.params) == {"x", "kind"}
    assert not study.tell_step(first, 0, 0.5, metrics={"cost": 3})
    assert study.tell(first) == "finished"
    assert study.tell(1, 0.75, metrics={"cost": 2}) == study.tell(second, 0.75) == "finished"
    assert (study.best.number, study.best.value) == (1, 0.75)
    with pytest.raises(automl.AutoMLError, match="a trial that has ended stays as it is"):
        study.tell(second, 0.5)
    monkeypatch.chdir(tmp_path)
    again = automl.open_study("lab", dir=".", space={"x": (0.0, 1.0)})  # it is there: no space
    (third,) = again.ask()
    assert again.tell(third, state="failed", reason="x = 1") == "failed"
    assert list(again.trials()["state"]) == ["finished", "finished", "failed"]


def test_the_example_of_the_manual_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "how-to" / "outside.md").read_text("utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    exec(block, {})
    assert list(automl.open_study("outside").trials()["state"]) == ["finished"] * 4


def test_a_model_and_a_study_are_shown_in_one_line() -> None:
    study = automl.open_study("disc", dir=str(STORED))
    assert re.fullmatch(
        r"<study disc, \w+: .*finished; best val_loss .* by trial \d+ .*>", repr(study)
    )
    shown = repr(study.load())
    assert re.fullmatch(
        r"<model of study disc: mlp, classification; val_loss 0\.\d+; val_error 0\.\d+>", shown
    )
