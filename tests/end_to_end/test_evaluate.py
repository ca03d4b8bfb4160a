"""`evaluate` on studies that were searched: shown, kept, delivered; and what it refuses."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import automl
from automl.config import StudyConfig, Task
from automl.config.metrics import METRICS_OF_TASK
from automl.models.predictor import load_table_model
from automl.record.studies import read_study
from automl.record.study_directory import StudyDirectory
from automl.trial import ModelsEvaluated, RowsKind
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Program, objective_words
from tests.end_to_end.records import Records

STORED = Path(__file__).parents[1] / "stored_studies"
FEW = (
    "study.n_trials=3",
    "training.epochs=4",
    "sampler=random",
    "pruner=none",
    "devices.only=cpu",
    "execution=inline",
    "admission.max_concurrent_trials=1",
)


def write_table(path: Path, seed: int = 0, n_rows: int = 500) -> pd.DataFrame:
    """`y` is 1 where `a` is large; one row in ten is a slip; `c` tells nothing."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=n_rows)
    y = (a > 0) ^ (rng.random(n_rows) < 0.1)
    frame = pd.DataFrame({"a": a, "c": rng.choice(["p", "q"], n_rows), "y": np.where(y, "u", "v")})
    frame.to_csv(path, index=False)
    return frame


@pytest.fixture(scope="module")
def searched(module_program: Program) -> Path:
    """A folder with a study `t` of a table."""
    write_table(module_program.folder / "table.csv")
    words = ("study.name=t", "data=csv", "model=mlp", "data.path=table.csv", "data.target=y")
    done = module_program.call(*words, "data.sweep_rows=0.5", *FEW)
    assert (done.code, done.stderr) == (0, "")
    return module_program.folder


@pytest.fixture
def study(searched: Path, folder: Path) -> Records:
    """The study, in a folder of the test's own."""
    return Records.copied(searched, folder, "t")


MOVED = ("study.name=t", "copy=false")


def evaluations(study: Records) -> list[ModelsEvaluated]:
    return [event for event in study.events() if isinstance(event, ModelsEvaluated)]


def test_scores_are_shown_kept_and_delivered(study: Records, call: Call) -> None:
    done = call("evaluate", *MOVED)
    assert (done.code, done.stderr) == (0, "")
    best = read_study(study.path).best()
    assert best is not None
    table = done.stdout[done.stdout.index("\nt: ") + 1 :]
    head, columns, first, *rows = table.splitlines()
    assert head == "t: 100 rows no sweep saw (kept from table.csv)"
    assert columns.split() == ["metric", "model", "score", "95", "%", "interval", "difference"]
    found = re.fullmatch(rf"loss +trial {best.number} +(\S+) +(\S+) to (\S+)", first)
    assert found is not None
    assert re.match(
        r" +linear +\S+ +\S+ to \S+ +-?\S+ \(\S+ to \S+\) +(worse|better|may be)", rows[0]
    )
    assert rows[1].split()[0] == "majority"

    (event,) = evaluations(study)
    assert (event.kind, event.n_rows, event.trials) == (RowsKind.KEPT, 100, (best.number,))
    scores = event.scores[f"trial-{best.number:05d}"]
    assert tuple(scores) == METRICS_OF_TASK[Task.classification]
    assert float(found[1]) == pytest.approx(scores["loss"].value, abs=1e-3)
    assert scores["loss"].low < scores["loss"].value < scores["loss"].high
    model = load_table_model(study.path / "checkpoints" / f"trial-{best.number:05d}" / "best.pt")
    run = study.trial_runs()[best.number]
    for metric, score in scores.items():
        for metrics in (run.data.metrics, study.parent().data.metrics):
            assert metrics[f"test_{metric}"] == pytest.approx(score.value)
            assert metrics[f"test_{metric}_low"] == pytest.approx(score.low)
    assert "test_loss_majority" in study.parent().data.metrics
    assert model.study == "t"
    assert model.metrics["val_loss"] == pytest.approx(best.value)


@pytest.mark.slow
def test_the_winner_is_scored_with_fresh_seeds(study: Records, call: Call) -> None:
    done = call("evaluate", *MOVED, "seeds=3")
    assert (done.code, done.stderr) == (0, "")
    (event,) = evaluations(study)
    assert f"trial {event.trials[0]} trained 3 times with fresh seeds" in done.stdout
    losses = event.repeated_scores["loss"]
    assert len({*losses, event.scores[event.models[0]]["loss"].value}) == 4
    mean = study.parent().data.metrics["test_loss_repeats"]
    assert mean == pytest.approx(sum(losses) / 3)
    assert study.trial_runs()[event.trials[0]].data.metrics["test_loss_repeats_se"] > 0


@pytest.mark.slow
def test_a_part_of_the_rows_is_compared_with_parts_of_it(study: Records, call: Call) -> None:
    done = call("evaluate", *MOVED, "which=2,0,1")
    assert (done.code, done.stderr) == (0, "")
    numbers = [trial.number for trial in read_study(study.path).ranking()]
    assert evaluations(study)[0].trials == tuple(numbers)
    said = done.stdout.partition("trained on fewer\n")[2].splitlines()
    assert said[0].split("  ")[1:] == [f"trial {number}" for number in numbers]
    assert [line.split()[0] for line in said[1:4]] == ["38", "75", "150"]
    losses = evaluations(study)[0].scores
    own = [losses[f"trial-{number:05d}"]["loss"].value for number in numbers]
    assert [float(word) for word in said[3].split()[2:]] == pytest.approx(own, abs=1e-3)
    assert said[1].split()[2:] != said[3].split()[2:]
    assert said[4].startswith(("their order", "trial ", "on 75 rows"))


@pytest.mark.slow
def test_a_table_that_comes_later_is_scored(study: Records, call: Call, folder: Path) -> None:
    frame = write_table(folder / "later.csv", seed=9, n_rows=80)
    done = call("evaluate", *MOVED, "data.test=later.csv")
    assert (done.code, done.stderr) == (0, "")
    assert "t: 80 rows no sweep saw (of later.csv)\n" in done.stdout
    (event,) = evaluations(study)
    best = study.path / "checkpoints" / f"trial-{event.trials[0]:05d}" / "best.pt"
    scored = load_table_model(best).score(frame)
    shown = {name: score.value for name, score in event.scores[best.parent.name].items()}
    assert scored == pytest.approx(shown)
    again = call("resume", "study.name=t", "study.n_trials=4")
    assert (again.code, again.stderr) == (0, ""), "it is still the same study"
    assert call("evaluate", "study.name=t", "data.test=later.csv", "to=parts").code == 0
    assert len(pd.read_csv(folder / "parts" / "left.csv")) == 150
    other = call("resume", "study.name=t", "study.n_trials=5", "data.sweep_rows=0.6")
    assert other.code == 2
    assert "data.sweep_rows: 0.5 in the study, 0.6 now" in other.stderr


def test_it_is_the_same_from_python(study: Records, folder: Path) -> None:
    with pytest.raises(automl.AutoMLError, match=r"copy=false"):
        automl.open_study("t").evaluate()
    frame = automl.open_study("t").evaluate([1, 0], overrides=["copy=false"])
    (event,) = evaluations(study)
    assert set(event.trials) == {0, 1}
    second = event.trials[1]
    row = dict(frame.loc[[("error", f"trial {second}")]].iloc[0])
    assert row["score"] == event.scores[f"trial-{second:05d}"]["error"].value
    assert row["verdict"] in ("better", "worse", "may be chance")
    assert row["rows"] == "100 rows no sweep saw"
    assert ("auc", "linear") in frame.index
    assert "test_auc" in study.trial_runs()[second].data.metrics


@pytest.mark.slow
def test_a_running_sweep_keeps_its_log_to_itself(study: Records, call: Call) -> None:
    call("sync", *MOVED)
    before = study.n_lines()
    with StudyDirectory.open(StudyConfig(name="t"), must_exist=True):
        done = call("evaluate", "study.name=t")
    assert done.code == 0
    assert "100 rows no sweep saw" in done.stdout
    assert "these scores are kept nowhere; after it: python -m automl evaluate t" in (done.stdout)
    assert study.n_lines() == before


def test_a_store_that_is_down_gets_them_later(study: Records, call: Call, folder: Path) -> None:
    (folder / "mlflow.db").rename(folder / "away.db")
    (folder / "mlflow.db").mkdir()
    done = call("evaluate", *MOVED)
    assert done.code == 1
    assert "100 rows no sweep saw" in done.stdout
    assert "the figures are kept in the study, and not yet in MLflow" in done.stderr
    assert "python -m automl sync t" in done.stderr
    (folder / "mlflow.db").rmdir()
    (folder / "away.db").rename(folder / "mlflow.db")
    assert call("sync", "study.name=t").code == 0
    assert "test_loss" in study.parent().data.metrics


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ("which=7",),
            "which=7: study t has no such trial. Those with a value, best first: ",
        ),
        (("which=1,1",), "which=1,1: names a model twice"),
        (("evaluate.n_resamples=10",), "evaluate.n_resamples=10: this is no setting any more"),
        (("data.split_seed=1",), "data.path=table.csv is not what trial"),
        (("data.test=absent.csv",), "data.test=absent.csv: there is no such file"),
        (("data.test=copy.csv",), "data.test=copy.csv: 250 of its 500 rows are rows"),
        (("data.test=short.csv",), "data.test=short.csv: The table lacks the columns c"),
    ],
)
def test_refused_before_anything_is_written(
    words: tuple[str, ...], problem: str, study: Records, call: Call, folder: Path
) -> None:
    shutil.copyfile(folder / "table.csv", folder / "copy.csv")
    frame = pd.read_csv(folder / "table.csv")
    frame.drop(columns="c").to_csv(folder / "short.csv", index=False)
    before = study.n_lines()
    done = call("evaluate", *MOVED, *words)
    assert done.code == 2
    assert problem in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert study.n_lines() == before


def test_a_table_that_has_changed_is_refused(study: Records, call: Call, folder: Path) -> None:
    with (folder / "table.csv").open("a") as table:
        table.write("0.5,p,u\n")
    done = call("evaluate", *MOVED)
    assert done.code == 2
    assert "nobody knows which rows no sweep saw" in done.stderr


def test_a_model_that_is_gone_is_named(study: Records, call: Call) -> None:
    shutil.rmtree(study.path / "checkpoints" / "trial-00001")
    done = call("evaluate", *MOVED, "which=1")
    assert done.code == 2
    assert "trial 1 has left no such file" in done.stderr


# --- studies of all kinds -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["disc", "network", "table"])
def test_a_study_of_an_earlier_version_is_scored(name: str, folder: Path, call: Call) -> None:
    shutil.copytree(STORED, folder, dirs_exist_ok=True)
    done = call("evaluate", f"study.name={name}")
    assert (done.code, done.stderr) == (0, "")
    assert re.search(rf"\n{name}: \d+ rows no sweep saw \(kept from \S+\)\n", done.stdout)
    assert call("status", f"study.name={name}").code == 0


def test_a_table_of_an_earlier_study_that_has_changed_is_seen(folder: Path, call: Call) -> None:
    shutil.copytree(STORED, folder, dirs_exist_ok=True)
    lines = (folder / "table.csv").read_text().splitlines()
    (folder / "table.csv").write_text("\n".join([*lines, lines[5], lines[6]]) + "\n")
    done = call("evaluate", "study.name=table")
    assert done.code == 2
    assert "data.path=table.csv is not what trial" in done.stderr


def test_a_users_function_is_scored_by_its_author(folder: Path, call: Call) -> None:
    assert call("study.name=f", *objective_words("gives_up_in_front"), *FEW).code == 0
    done = call("evaluate", "study.name=f")
    assert done.code == 2
    assert "evaluate needs a study of the built-in training (objective=builtin)" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_study_without_a_finished_trial_says_how_to_go_on(folder: Path, call: Call) -> None:
    shutil.copytree(STORED, folder, dirs_exist_ok=True)
    (folder / "studies" / "disc" / "events.log").write_bytes(b"")
    done = call("evaluate", "study.name=disc")
    assert done.code == 2
    assert "study.name=disc: no trial of it has ended with a value yet (it has none)" in done.stderr
    assert "python -m automl resume disc" in done.stderr


@pytest.mark.slow
def test_a_study_that_had_a_test_table_and_has_it_no_more(folder: Path, call: Call) -> None:
    write_table(folder / "table.csv")
    write_table(folder / "test.csv", seed=1, n_rows=60)
    words = ("study.name=t", "data=csv", "model=mlp", "data.path=table.csv", "data.target=y")
    assert call(*words, "data.test=test.csv", *FEW).code == 0
    assert "t: 60 rows no sweep saw (of test.csv)" in call("evaluate", "study.name=t").stdout
    done = call("evaluate", "study.name=t", "data.test=none")
    assert (done.code, done.stderr) == (0, "")
    assert "t: 100 rows of validation, by which trials were chosen" in done.stdout
    assert "the scores flatter them" in done.stdout
    record = read_study(folder / "studies" / "t")
    best = record.best()
    assert best is not None
    run = Records(folder, "t").trial_runs()[best.number]
    assert run.data.metrics["validation_loss"] == pytest.approx(best.value, rel=1e-4)
    assert "test_loss" in run.data.metrics
