"""`automl.fit`: a table in, the best model out."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import automl
from automl.api.fit_call import OWN_ROWS_NOTE
from automl.errors import ConfigError
from automl.models.predictor import load_table_model
from tests.manuals import section

FEW = (*("devices.only=cpu", "training.epochs=2", "pruner=none", "model.families=[mlp]"),)


def table(n: int = 300) -> pd.DataFrame:
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(draw.standard_normal((n, 3)), columns=["a", "b", "c"])
    frame["kind"] = np.where(frame.a + frame.b > 0, "up", "down")
    return frame


@pytest.mark.slow
def test_a_frame_becomes_a_model(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    frame = table()
    study = automl.fit(frame, "kind", n_trials=3, name="kinds", overrides=FEW)
    said = capfd.readouterr().out
    assert "if it is interrupted: the same call with name='kinds'\n" in said
    assert "choosing an ensemble from 3 models" in said
    assert set(study.predict(frame)) == {"up", "down"}
    shares = study.predict_probabilities(frame)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert np.array_equal(study.predict_proba(frame), shares)
    assert (folder / "studies" / "kinds" / "ensemble.pt").exists()
    board = study.leaderboard()
    assert board.index[0] == "ensemble"
    assert board.index[-1] == "majority", "the baseline"
    trials = board.dropna(subset="family")
    assert list(trials.family) == ["mlp"] * 3
    assert trials.value.is_monotonic_increasing
    assert trials.weight.sum() == pytest.approx(1)
    scores = board.loc["majority", ["value", "loss", "auc"]]
    assert list(scores) == [scores.value, scores.value, 0.5], "as the sweep prints it"
    costs = board[:-1][["seconds", "rows_per_second", "size_bytes", "loss", "error", "auc"]]
    assert (costs > 0).all(axis=None)
    assert board.test.isna().all()
    assert study.score(frame) == study.model.score(frame, frame.kind)
    assert study.model.leaderboard().equals(board)
    assert automl.open_study("kinds").leaderboard().equals(board)
    capfd.readouterr()
    assert set(study.explain(frame).index) == {"a", "b", "c"}
    assert OWN_ROWS_NOTE not in capfd.readouterr().out
    own = study.explain()
    assert OWN_ROWS_NOTE in capfd.readouterr().out, "the rows that judged the trials"
    assert set(own.index) == {"a", "b", "c"}
    assert own.index[-1] == "c", "of which the kind knows nothing"
    with pytest.raises(ConfigError, match="targets without their rows"):
        study.explain(y=frame.kind)
    saved = study.save(folder / "model.pt")
    np.testing.assert_array_equal(automl.load(saved).predict(frame), study.predict(frame))
    with pytest.raises(automl.AutoMLError, match="lies in no study"):
        load_table_model(saved).leaderboard()


@pytest.mark.slow
def test_the_same_frame_goes_on_and_another_is_refused(folder: Path) -> None:
    frame = table()
    automl.fit(frame, "kind", n_trials=2, name="kinds", overrides=FEW)
    study = automl.fit(frame, "kind", n_trials=3, name="kinds")
    assert len(study.trials()) == 3
    (written,) = (folder / "studies").rglob("*.parquet")
    assert written.parent == study.path
    with pytest.raises(ConfigError, match="data"):
        automl.fit(frame[:200], "kind", n_trials=4, name="kinds")
    with pytest.raises(ConfigError, match=r"data\.target"):
        automl.fit(frame, "a", n_trials=3, name="kinds")
    assert len(automl.open_study("kinds").trials()) == 3


def test_the_manuals_example_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    below = section("One call from Python")
    example = below.split("```python\n", 1)[1].split("```", 1)[0]
    short = example.replace('timeout="1min"', f"n_trials=2, overrides={list(FEW)}")
    assert short != example
    table().rename(columns={"kind": "quality"}).to_csv("wine.csv", index=False)
    exec(compile(short, "README.md", "exec"), {})
    assert (folder / "wine.pt").exists()
    assert "rows_per_second" in capsys.readouterr().out


def test_a_file_is_read_where_it_lies(folder: Path) -> None:
    table().to_csv("kinds.csv", index=False)
    study = automl.fit("kinds.csv", "kind", n_trials=2, overrides=FEW)
    assert len(study.trials()) == 2
    assert not list((folder / "studies").rglob("*.parquet"))


def test_a_frame_that_no_file_can_hold_is_refused(folder: Path) -> None:
    frame = table()
    with pytest.raises(ConfigError, match="two of its columns are called a"):
        automl.fit(pd.concat([frame, frame[["a"]]], axis=1), "kind", n_trials=1)
    odd: list[Any] = [{1}, 2j] * 150
    frame["odd"] = odd
    with pytest.raises(ConfigError, match="column odd holds complex numbers"):
        automl.fit(frame, "kind", n_trials=1)
    with pytest.raises(ConfigError, match="table: a ndarray; give a pandas DataFrame, or the path"):
        automl.fit(frame[["a"]].to_numpy(), "a")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="price"):
        automl.fit(frame[["a"]], "price", n_trials=1)
    assert not list((folder / "studies").glob("*")), "nothing is left"


def test_what_is_wrong_with_a_frame_is_said_of_the_frame(folder: Path) -> None:
    rule = r"^target=knid: must be a column of the frame\. Did you mean 'kind'\? Its columns: a, b"
    with pytest.raises(ConfigError, match=rule):
        automl.fit(table(), "knid", n_trials=2)
    with pytest.raises(ConfigError, match=r"^target=kind: there is one class only"):
        automl.fit(table().assign(kind="up"), "kind", n_trials=2)
    table().to_csv("kinds.csv")
    with pytest.raises(ConfigError, match=r"data\.path=kinds\.csv"):
        automl.fit("kinds.csv", "knid", n_trials=2)
    with pytest.raises(ConfigError, match=r"fit\(metrik='val_auc'\).*Did you mean metric\?"):
        automl.fit("kinds.csv", "kind", metrik="val_auc")
    assert not (folder / "studies").exists() or not list((folder / "studies").iterdir())


def test_a_study_is_loaded_by_its_folder(folder: Path) -> None:
    shutil.copytree(Path(__file__).parents[1] / "stored_studies" / "studies", folder / "studies")
    best = automl.open_study("disc").best.path
    model = automl.load("studies/disc")
    assert model.path.absolute() == best
    assert automl.open_study("disc").load().path == best
    own = r"there is no such file\. Load the study of that name by its folder: "
    with pytest.raises(automl.AutoMLError, match=rf"{own}automl\.load\('studies/disc'\)"):
        automl.load("disc")
    with pytest.raises(automl.AutoMLError, match=r"^absent: there is no such file"):
        automl.load("absent")
    (folder / "empty").mkdir()
    with pytest.raises(automl.AutoMLError, match=r"^empty: is a folder, and no study"):
        automl.load("empty")
