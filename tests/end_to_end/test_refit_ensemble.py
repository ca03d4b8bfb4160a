"""`refit` of an ensemble: each member trained again, put together with the weight that it had."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import automl
from automl.models.predictor import load_table_model
from automl.record.studies import read_study
from automl.trial import EnsembleBuilt
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Program
from tests.end_to_end.records import Records
from tests.end_to_end.tables import AUTO, wine_like

pytestmark = pytest.mark.slow

NAME = "study.name=a"
MOVED = (NAME, "copy=false")
REFIT = ("refit", *MOVED)


@pytest.fixture(scope="module")
def searched(module_program: Program) -> Path:
    wine_like().to_csv(module_program.folder / "wine.csv", index=False)
    done = module_program.start(NAME, *AUTO).wait()
    assert (done.code, done.stderr) == (0, "")
    return module_program.folder


@pytest.fixture
def study(searched: Path, folder: Path) -> Records:
    """The study, in a folder of the test's own."""
    return Records.copied(searched, folder, "a")


def made(study: Records) -> EnsembleBuilt:
    """Trees and a network are in it."""
    found = read_study(study.path).best_ensemble
    assert found is not None
    assert {1, 3} <= set(found.members)
    return found


def refits(study: Records) -> list[Path]:
    return sorted((study.path / "refits").iterdir())


def refit_records(study: Records, folder: Path) -> Records:
    """Those of a refit."""
    found = Records(study.path.parents[1], "a")
    found.path = folder
    return found


def test_each_member_is_trained_again_and_keeps_its_weight(study: Records, call: Call) -> None:
    weights = made(study).members
    done = call(*REFIT)
    assert done.stderr == ""
    assert done.code == 0
    numbers = ", ".join(map(str, weights))
    said = " ".join(done.stdout.split())
    assert f"refit of the ensemble of study a, trials {numbers}: 240 rows (train+v" in said
    assert "best trials" not in said, "losses on rows that all train on are no ranking"
    assert re.search(r"trial family weight val_\w+ searched epochs time", said)
    file = study.path / "refit.pt"
    assert f"refitted model: studies/a/refit.pt ({file.stat().st_size:,} bytes)" in said
    (folder,) = refits(study)
    assert folder.name.startswith("ensemble-")
    before, again = read_study(study.path).trials, refit_records(study, folder)
    ended = read_study(folder).trials
    each = {}
    for number, trial in ended.items():
        (member,) = (n for n in weights if before[n].params == trial.params)
        path = folder / "checkpoints" / f"trial-{number:05d}" / "best.pt"
        each[member] = load_table_model(path).predict(wine_like())
        n_reports = len([key for key in again.losses() if key[0] == number])
        best = before[member].best_step
        assert best is not None
        if trial.params["family"] != "mlp":  # which takes as many steps, in fewer epochs
            assert n_reports == best + 1
    assert set(each) == set(weights)
    model = automl.load(file)
    assert model.params == {f"trial-{n:05d}": weight for n, weight in weights.items()}
    expected = np.average([each[n] for n in weights], axis=0, weights=list(weights.values()))
    np.testing.assert_allclose(model.predict(wine_like()), expected, rtol=1e-9)
    names = {str(run.info.run_name) for run in study.runs()}
    parent = f"refit-{folder.name}"
    assert {parent, *(f"{parent}-member-{number}" for number in ended)} <= names
    # Again is no second training, and what comes later takes it.
    n_lines = again.n_lines()
    assert call(*REFIT).code == 0
    assert again.n_lines() <= n_lines + 2
    done = call("evaluate", *MOVED)
    assert done.code == 0, done.stderr
    event = read_study(study.path).evaluations[-1]
    assert event.models == ("refit-ensemble", "ensemble")
    assert "refit of ensemble" in done.stdout


NETWORKS = (
    "{family: mlp, mlp_lr: 0.03, mlp_optimizer: adamw, mlp_weight_decay: 0.5, mlp_width: 64}",
    "{family: mlp, mlp_lr: 0.03, mlp_optimizer: adam, mlp_width: 32}",
)


def test_after_a_part_of_the_rows_its_networks_take_what_one_does_best_with(
    folder: Path, call: Call
) -> None:
    wine_like().to_csv("wine.csv", index=False)
    space = (
        "space={mlp_lr: {low: 0.02, high: 0.1}, mlp_width: [32, 64], mlp_depth: 1,"
        " mlp_optimizer: [adam, adamw], mlp_batch_size: 32,"
        " mlp_weight_decay: {low: 0.4, high: 1.0, when: {mlp_optimizer: adamw}}, linear_l2: 1.0}"
    )
    families = ("model.families=[linear,mlp]", "data.sweep_rows=0.5", space)
    words = [word for word in AUTO if "enqueue" not in word and "n_trials" not in word]
    points = f"study.enqueue=[{{family: linear}},{','.join(NETWORKS)}]"
    done = call(NAME, *words, *families, points, "study.n_trials=3")
    assert (done.code, done.stderr) == (0, "")
    study = Records(folder, "a")
    record = read_study(study.path)
    assert record.best_ensemble is not None
    networks = [
        n for n in record.best_ensemble.members if record.trials[n].params["family"] == "mlp"
    ]
    assert len(networks) == 2, "or the table has to be another"
    done = call(*REFIT)
    assert (done.code, done.stderr) == (0, "")
    said = " ".join(done.stdout.split())
    assert f"trial {networks[0]} was searched on a part of the rows: " in said
    assert f"the same for the other networks of the ensemble: trials {networks[1]}" in said
    assert said.count("if it is interrupted: python -m automl refit a ") == 2
    assert "refit.trial" not in said
    assert "with its params" not in said
    (check,) = (path for path in refits(study) if "check" in path.name)
    (again,) = (path for path in refits(study) if path.name.startswith("ensemble-"))
    assert check.name.startswith(f"trial-{networks[0]:05d}-check-")
    best = read_study(check).best()
    assert best is not None
    assert not (check / "ensemble.pt").exists()
    old, new = (read_study(path).trials.values() for path in (study.path, again))
    of_old = {t.params["mlp_width"]: t.params for t in old if t.params["family"] == "mlp"}
    of_new = {t.params["mlp_width"]: t.params for t in new if t.params["family"] == "mlp"}
    ratio = float(str(best.params["lr"])) / float(str(of_old[best.params["width"]]["mlp_lr"]))
    assert ratio == 0.5, "which the space does not have; or the table has to be another"
    for width, params in of_old.items():
        assert of_new[width]["mlp_lr"] == pytest.approx(ratio * float(str(params["mlp_lr"])))
    tried = of_new[best.params["width"]]
    assert {tried[f"mlp_{name}"] for name in best.params} == {*best.params.values()}
    # Again is neither a second check nor a second training; and it can be left out.
    n_lines = [refit_records(study, path).n_lines() for path in (check, again)]
    assert call(*REFIT).code == 0
    now = [refit_records(study, path).n_lines() for path in (check, again)]
    assert now[0] == n_lines[0]
    assert now[1] <= n_lines[1] + 2
    assert len(refits(study)) == 2
    said = call("refit", NAME, "check=false").stdout
    assert "members are trained with its params" in " ".join(said.split())


def test_the_best_trial_alone_where_that_is_wanted(study: Records, call: Call) -> None:
    best = read_study(study.path).best()
    assert best is not None
    assert call(*REFIT, "which=best").code == 0
    assert call(*REFIT, f"which={best.number}").code == 0
    (folder,) = refits(study)
    assert folder.name.startswith(f"trial-{best.number:05d}-")


def test_killed_in_the_middle_it_goes_on_with_what_is_left(
    study: Records, program: Program, call: Call
) -> None:
    running = program.start(*REFIT, "admission.max_concurrent_trials=1")
    running.wait_until(lambda: any((study.path / "refits").glob("*")), "a refit")
    again = refit_records(study, refits(study)[0])
    running.wait_until(lambda: len(again.outcomes()) >= 1, "a member")
    running.kill()
    assert not (study.path / "refit.pt").exists()
    ended = again.outcomes()
    done = call("refit", NAME)
    assert (done.code, done.stderr) == (0, "")
    assert refits(study) == [again.path]
    assert ended.items() <= again.outcomes().items(), "what had ended is not done again"
    killed = load_table_model(study.path / "refit.pt").predict(wine_like())
    shutil.rmtree(study.path / "refits")
    assert call("refit", NAME).code == 0
    whole = load_table_model(study.path / "refit.pt").predict(wine_like())
    np.testing.assert_array_equal(killed, whole)


def test_a_table_is_scored_by_the_heaviest_members_alone(study: Records, call: Call) -> None:
    first = next(iter(made(study).members))
    into = ("table=wine.csv", "to=said.csv")
    done = call("predict", *MOVED, *into, "members=1")
    assert (done.code, done.stderr) == (0, "")
    n_all = len(made(study).members)
    assert f"ensemble of a, by 1 of its {n_all} members, scores wine.csv" in done.stdout
    said = pd.read_csv("said.csv").prediction
    own = load_table_model(study.path / "checkpoints" / f"trial-{first:05d}" / "best.pt")
    np.testing.assert_allclose(said, own.predict(pd.read_csv("wine.csv")), rtol=1e-9)
    done = call("predict", NAME, *into, "members=9")
    assert f", by all of its {n_all} members, scores" in done.stdout
    done = call("predict", NAME, *into, "members=1", f"which={first}")
    assert done.code == 2
    assert f"members=1: trial-{first:05d} is no ensemble" in done.stderr
    assert call("predict", NAME, *into, "members=0").code == 2


def test_its_networks_may_compute_elsewhere(study: Records) -> None:
    """Beside trees, which do not; the model that was copied stays, whatever becomes of the copy."""
    made(study)
    model, table = load_table_model(study.path / "ensemble.pt"), wine_like()
    said = model.predict(table)
    assert model.model is None, "not all of its members are networks"
    assert model.has_network
    with pytest.raises(NotImplementedError):
        model.copied_to("meta").predict(table)  # a device whose tensors have no content
    np.testing.assert_array_equal(model.copied_to("cpu").predict(table), said)
    np.testing.assert_array_equal(model.predict(table), said)
    trees = load_table_model(study.path / "checkpoints" / "trial-00002" / "best.pt")
    assert not trees.has_network


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("parallel=ddp", "parallel=ddp: members of an ensemble are trained as they"),
        ("refit.devices=2", "refit.devices=2: this is no setting any more"),
        ("which=some", "names no some"),
        ("which=refit", "which=refit: refit trains one trial or the ensemble again"),
    ],
)
def test_what_is_refused(word: str, said: str, study: Records, call: Call) -> None:
    done = call(*REFIT, word)
    assert done.code == 2
    assert said in done.stderr
    assert not (study.path / "refits").exists()
