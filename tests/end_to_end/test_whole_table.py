"""`data=csv` by itself: all rows train and judge, and what is said of a model that saw them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from automl.record.studies import read_study
from automl.trial import ModelsEvaluated, RowsKind, TrialState
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Program
from tests.end_to_end.records import Records
from tests.models.tables import TARGET, mixed_frame

pytest.importorskip("onnxruntime", reason="needs pip install 'automl-sweep[export]'")
TABLE = ("data=csv", "data.path=table.csv", f"data.target={TARGET}")
WORDS = (
    *("model.families=[linear,trees]", "training.epochs=2", "study.n_trials=3"),
    *("pruner=none", "devices.only=cpu", "execution=inline"),
)


@pytest.fixture(scope="module")
def searched(module_program: Program) -> Path:
    """A folder with a study `t`, of which nobody chose model, folds or test rows."""
    mixed_frame(2, n_rows=240).to_csv(module_program.folder / "table.csv", index=False)
    done = module_program.start("study.name=t", *TABLE, *WORDS).wait()
    assert (done.code, done.stderr) == (0, "")
    (module_program.folder / "said.txt").write_text(done.stdout)
    return module_program.folder


@pytest.fixture
def study(searched: Path, folder: Path) -> Records:
    """The study, in a folder of the test's own."""
    return Records.copied(searched, folder, "t")


def rows_of(said: str) -> dict[tuple[str, str], list[str]]:
    """The scores that a sweep ends with, by rows and model; with blank cells as above."""
    lines = said.partition("\nrows ")[2].splitlines()[1:5]
    where, found = "", {}
    for line in (line for line in lines if re.search(r" \d\S*$", line)):
        cells = re.split(r"  +", line)
        where = cells[0] or where
        found[where, cells[1]] = cells[2:]
    return found


def test_all_rows_train_and_judge_and_the_score_is_called_out_of_fold(study: Records) -> None:
    said = (study.path.parents[1] / "said.txt").read_text()
    assert "240 train and judge, none kept for a test" in said
    assert "best trials, val_loss out-of-fold" in said
    record = read_study(study.path)
    assert record.settings["model"] == "auto"
    assert record.ensemble is not None
    found = rows_of(said)
    assert set(found) == {("240 out-of-fold", "ensemble"), ("240 out-of-fold", "majority")}
    assert found["240 out-of-fold", "ensemble"][0] == f"{record.ensemble.scores['loss']:.5g}"
    own, constant = (float(scores[0]) for scores in found.values())
    assert own < constant


def test_a_test_part_is_kept_and_scored_where_it_is_asked_for(study: Records, call: Call) -> None:
    kept = ("data.test=0.25", "model.families=[linear]", "study.n_trials=1")
    done = call("study.name=kept", *TABLE, *WORDS, *kept)
    assert (done.code, done.stderr) == (0, "")
    assert "180 train and judge, 60 test" in done.stdout
    found = rows_of(done.stdout)
    assert list(found) == [
        *(("180 out-of-fold", name) for name in ("trial 0", "majority")),
        *(("60 test", name) for name in ("trial 0", "majority")),
    ]
    assert call("evaluate", "study.name=kept").code == 0
    events = Records(study.path.parents[1], "kept").events()
    (event,) = (event for event in events if isinstance(event, ModelsEvaluated))
    assert f"{event.scores['trial-00000']['loss'].value:.5g}" == found["60 test", "trial 0"][0]
    best = read_study(study.path.parent / "kept").best()
    assert best is not None
    assert f"{best.value:.5g}" == found["180 out-of-fold", "trial 0"][0]


def test_a_release_goes_on_with_the_out_of_fold_score(study: Records, call: Call) -> None:
    first = call("release", "study.name=t", "copy=false")
    assert (first.code, first.stderr) == (0, "")
    best = read_study(study.path).best()
    assert best is not None
    assert f"it has seen all rows: val_loss {best.value:.5g} out-of-fold" in first.stdout
    assert f"not compared: trial-{best.number:05d}'s loss stands for it" in first.stdout
    assert re.search(r"linear is (worse|may be chance|better), majority is worse", first.stdout)
    assert "version 1 of t, champion" in first.stdout
    assert "there is no champion yet to compare it with; there are no rows" in first.stdout
    assert "2 of 5: refit" not in call("release", "study.name=t").stdout, "done before"
    # Rows that come later compare the two.
    mixed_frame(2, n_rows=80, seed=5).to_csv("late.csv", index=False)
    late = call("release", "study.name=t", "data.test=late.csv")
    assert (late.code, late.stderr) == (0, "")
    assert "version 1 of t, champion" in late.stdout
    kinds = [event.kind for event in study.events() if isinstance(event, ModelsEvaluated)]
    assert kinds == [RowsKind.OUT_OF_FOLD, RowsKind.GIVEN, RowsKind.GIVEN]
    assert "refit.pt" in call("evaluate", "study.name=t").stdout


def test_a_study_of_before_keeps_its_model(study: Records, call: Call) -> None:
    before = ("study.name=old", *TABLE, "devices.only=cpu", "execution=inline", "training.epochs=1")
    assert call(*before, "model=mlp", "study.n_trials=1").code == 0
    again = call(*before, "study.n_trials=2")
    assert again.code == 2
    assert "go on with its own settings: python -m automl resume" in again.stderr
    assert call("resume", "study.name=old", "study.n_trials=2").code == 0
    record = read_study(study.path.parent / "old")
    assert record.counts()[TrialState.FINISHED] == 2
    assert record.settings["model"] == "mlp"


def test_the_time_is_the_studys(study: Records, call: Call) -> None:
    """And not its last trial's, which goes on with `resume`."""
    words = (*TABLE, *WORDS, "model.families=[linear,mlp]", "training.epochs=1000000")
    for_ever = ("training.patience_epochs=1000000", "study.n_trials=2")
    done = call("study.name=timed", *words, *for_ever, "study.timeout_seconds=1")
    assert (done.code, done.stderr) == (0, "")
    record = read_study(study.path.parent / "timed")
    assert [trial.state for trial in record.trials.values()] == [
        *(TrialState.FINISHED, TrialState.INTERRUPTED),
    ]
    assert set(rows_of(done.stdout)) == {
        ("240 out-of-fold", "trial 0"),
        ("240 out-of-fold", "majority"),
    }
    assert "go on with: python -m automl resume timed" in done.stdout
    assert "no trial ended" not in done.stdout
    again = call("resume", "study.name=timed", "study.timeout_seconds=0.5")
    assert (again.code, again.stderr) == (0, "")
    said = (
        r"no trial ended in time: study\.timeout_seconds=0\.5 counts from the call on, and loading "
        r"took \d+\.\d s; give it more"
    )
    assert re.search(said, again.stdout)
