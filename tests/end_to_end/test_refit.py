"""`refit`: from a study that is there to `refit.pt`, killed on the way, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import automl
from automl.in_trial.checkpoints import torch_checkpoint
from automl.record.studies import read_study
from automl.running.refit.refit_study import TrainRowCounts, epochs_for_steps
from automl.tracking.view.shared_view import VIEW_TAG
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Program, objective_words
from tests.end_to_end.records import Records

FEW = ("study.name=a", "devices.only=cpu", "sampler=random", "pruner=none")
SMALL = (*FEW, "study.n_trials=2", "training.epochs=4", "data.n_train=200", "data.n_validation=100")
REFIT = ("refit", "study.name=a")
OF_SWEPT = (*REFIT, "copy=false")


@pytest.fixture(scope="module")
def searched(module_program: Program) -> Path:
    """A folder with a study of `SMALL`."""
    assert module_program.call(*SMALL).code == 0
    return module_program.folder


@pytest.fixture
def swept(searched: Path, folder: Path) -> Path:
    """The test's own folder, with that study in it."""
    return Records.copied(searched, folder, "a").path.parents[1]


def study(folder: Path) -> Path:
    return folder / "studies" / "a"


def refits(folder: Path) -> list[str]:
    return sorted(path.name for path in (study(folder) / "refits").iterdir())


def records(folder: Path) -> Records:
    """Those of the one refit."""
    (name,) = refits(folder)
    found = Records(folder, "a")
    found.path = study(folder) / "refits" / name
    return found


def experiment_tags(name: str) -> dict[str, str]:
    from mlflow import MlflowClient

    experiment = MlflowClient("sqlite:///mlflow.db").get_experiment_by_name(name)
    assert experiment is not None
    return dict(experiment.tags)


def test_the_best_trial_is_trained_again_on_more_rows(swept: Path, call: Call) -> None:
    done = call(*OF_SWEPT)
    assert (done.code, done.stderr) == (0, "")
    best = automl.open_study("a").best
    assert f"refit of trial {best.number} of study a: 300 rows (train+validation)" in done.stdout
    assert "300 train, 0 validation" in done.stdout
    assert "refitted model: studies/a/refit.pt" in done.stdout
    model = automl.load("studies/a/refit.pt")
    assert model.params == best.params
    assert set(model.predict(np.array([[0.0, 0.0], [1.0, 1.0]]))) <= {0, 1}
    assert {tuple(r) for r in records(swept).losses().values()} == {("train_loss",)}
    # Again is no second training.
    n_lines = records(swept).n_lines()
    assert call(*OF_SWEPT, f"which={best.number}").code == 0
    assert records(swept).n_lines() <= n_lines + 2  # a sweep that begins and ends


def test_its_run_stands_beside_those_of_the_study(swept: Path, call: Call) -> None:
    call(*OF_SWEPT, "seeds=2")
    (name,) = refits(swept)
    runs = {str(run.info.run_name): run for run in Records(swept, "a").runs()}
    seeds = {f"refit-{name}-seed-0", f"refit-{name}-seed-1"}
    assert set(runs) == {"a", "trial-00000", "trial-00001", f"refit-{name}", *seeds}
    assert runs[f"refit-{name}"].data.tags["automl.kind"] == "refit"
    parent = runs[f"refit-{name}"].info.run_id
    for seed in seeds:
        assert runs[seed].info.status == "FINISHED"
        assert runs[seed].data.tags["mlflow.parentRunId"] == parent
        stands_among_trials = {"value", "best_val_loss"} & runs[seed].data.metrics.keys()
        assert not stands_among_trials
        assert "train_loss" in runs[seed].data.metrics
    view = experiment_tags("a")[VIEW_TAG]
    assert "params.`lr`" in view, "the view is the study's"


@pytest.mark.slow
def test_several_seeds_are_one_model_by_their_mean(swept: Path, call: Call) -> None:
    done = call(*OF_SWEPT, "seeds=3", "rows=all")
    assert (done.code, done.stderr) == (0, "")
    (name,) = refits(swept)
    points = np.random.default_rng(0).uniform(-1, 1, (50, 2))
    each = [
        automl.load(f"studies/a/refits/{name}/checkpoints/trial-{n:05d}/best.pt") for n in range(3)
    ]
    mean = np.mean([model.predict_probabilities(points) for model in each], axis=0)
    found = automl.load("studies/a/refit.pt").predict_probabilities(points)
    np.testing.assert_allclose(found, mean, rtol=1e-6)
    assert np.ptp([m.predict_probabilities(points) for m in each], axis=0).max() > 1e-4
    # More seeds are more of the same refit; other rows are another.
    assert call(*OF_SWEPT, "seeds=4", "rows=all").code == 0
    assert refits(swept) == [name]
    assert call(*OF_SWEPT, "rows=train").code == 0
    assert len(refits(swept)) == 2


def test_held_out_rows_tell_where_to_stop(swept: Path, call: Call) -> None:
    assert call(*OF_SWEPT, "hold_out=0.1").code == 0
    losses = {step: metrics for (_, step), metrics in records(swept).losses().items()}
    assert len(losses) == 4, "all epochs of the study's"
    best = min(losses, key=lambda step: losses[step]["val_loss"])
    assert torch_checkpoint.load(study(swept) / "refit.pt")["step"] == best


@pytest.mark.slow
def test_a_regression_from_a_table(folder: Path, call: Call) -> None:
    numbers = np.random.default_rng(1).normal(size=(120, 2))
    table = pd.DataFrame(numbers, columns=["a", "b"])
    table["y"] = 3 * table.a - table.b + 0.5
    table.to_csv("table.csv", index=False)
    data = ("data=csv", "model=mlp", "data.path=table.csv", "data.target=y")
    call(*FEW, *data, "study.n_trials=1", "training.epochs=3")
    assert call(*REFIT, "seeds=2", "rows=all").code == 0
    predicted = automl.load("studies/a/refit.pt").predict(table)
    (name,) = refits(folder)
    each = [
        automl.load(f"studies/a/refits/{name}/checkpoints/trial-{n:05d}/best.pt").predict(table)
        for n in range(2)
    ]
    np.testing.assert_allclose(predicted, np.mean(each, axis=0), rtol=1e-9)
    table.assign(y=table.y + 1).to_csv("table.csv", index=False)
    done = call(*REFIT)
    assert done.code == 2
    assert "data.digest" in done.stderr


@pytest.mark.slow
def test_the_winner_of_a_part_is_tried_on_all_that_train(folder: Path, call: Call) -> None:
    numbers = np.random.default_rng(1).normal(size=(200, 2))
    table = pd.DataFrame(numbers, columns=["a", "b"]).assign(y=numbers @ [3, -1] + 0.5)
    table.to_csv("table.csv", index=False)
    data = ("data=csv", "model=mlp", "data.path=table.csv", "data.target=y", "data.sweep_rows=0.25")
    space = "space={lr: {choices: [0.1, 0.05]}, weight_decay: 0.02, width: 8, depth: 1}"
    call(*FEW, *data, "study.n_trials=1", "training.epochs=3", space)
    best = automl.open_study("a").best.params
    done = call(*REFIT)
    assert (done.code, done.stderr) == (0, "")
    assert "trial 0 was searched on a part of the rows: 3 trials on all 120 that" in done.stdout
    said = " ".join(done.stdout.split())
    assert "checked on 120 training rows (the search had 30) by val_loss: as it was: " in said
    assert "160 rows (train+validation)" in said
    (check,) = (name for name in refits(folder) if "check" in name)
    assert check.startswith("trial-00000-check-")
    tried = Records(folder, "a")
    tried.path = study(folder) / "refits" / check
    lr = float(str(best["lr"]))
    found = {(p["lr"], p["weight_decay"]) for p in tried.params().values()}
    assert found == {(lr, 0.02), (lr, 0.005), (lr / 2, 0.005)}
    record = read_study(tried.path)
    taken = record.best()
    assert taken is not None
    assert automl.load("studies/a/refit.pt").params == taken.params
    # Again is no second check; and it can be left out.
    n_lines = tried.n_lines()
    assert call(*REFIT).code == 0
    assert (tried.n_lines(), len(refits(folder))) == (n_lines, 2)
    assert "checked on" not in call(*REFIT, "check=false").stdout
    assert automl.load("studies/a/refit.pt").params == best


@pytest.mark.slow
def test_the_winner_of_several_families_is_refitted_as_one_of_its_own(
    folder: Path, call: Call
) -> None:
    space = "space={mlp_lr: 0.01, mlp_batch_size: 20, mlp_width: 8, mlp_depth: 1}"
    assert call(*SMALL, "model=auto", "model.families=[mlp]", space).code == 0
    done = call(*REFIT, "which=best")
    assert (done.code, done.stderr) == (0, "")
    best = automl.open_study("a").best
    assert automl.load("studies/a/refit.pt").params == {
        **{"lr": 0.01, "batch_size": 20, "width": 8, "depth": 1}
    }
    step = read_study(study(folder)).trials[best.number].best_step
    assert step is not None
    epochs = epochs_for_steps(step, TrainRowCounts(200, 300), 20)
    assert len(records(folder).losses()) == epochs, "of batches of twenty rows"
    assert call(*REFIT, "which=best", "batch_size=40").code == 0
    assert automl.load("studies/a/refit.pt").params["batch_size"] == 40


def test_a_function_is_told_and_its_best_state_is_kept(folder: Path, call: Call) -> None:
    words = ("study.n_trials=2", *objective_words("learns_of_refit"), "execution=inline")
    assert call(*FEW, *words).code == 0
    done = call(*REFIT)
    assert (done.code, done.stderr) == (0, "")
    assert torch_checkpoint.load(study(folder) / "refit.pt")["state"] == {
        "refit": True,
        "devices": 1,
    }
    assert call(*REFIT, "seeds=2").code == 2


def test_what_asks_for_its_params_has_those_of_the_winner(folder: Path, call: Call) -> None:
    (folder / "killed").touch()  # else its second trial hangs
    target = "objective.target=tests.end_to_end.optunas:objective"
    words = ("objective=optuna", target, "study.n_trials=4", "execution=inline")
    assert call(*FEW, *words).code == 0
    done = call(*REFIT)
    assert (done.code, done.stderr) == (0, "")
    best = automl.open_study("a").best
    asked: dict[str, object] = {}
    for event in records(folder).of_trial(0):
        asked |= getattr(event, "params", {})
    assert asked == best.params


def test_a_program_is_told(folder: Path, call: Call) -> None:
    (folder / "program.sh").write_text("echo val_loss: 0.${AUTOML_REFIT:-5}$1\n")
    command = "objective.command='bash program.sh {n_devices}'"
    call(*FEW, "study.n_trials=1", "objective=command", command, "space={x: 1}")
    assert automl.open_study("a").best.value == 0.51
    done = call(*REFIT)
    assert (done.code, done.stderr) == (0, "")
    assert "there is no refit.pt" in done.stdout
    assert {m["val_loss"] for m in records(folder).losses().values()} == {0.11}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("which=9",),
            "which=9: study a has no such trial. Those with a value, best first: ",
        ),
        (("rows=most",), "rows=most: must be one of train, train+validation, all."),
        (("hold_out=0.999",), "hold_out=0.999: 300 rows leave too few to train on."),
        (("data.split_seed=7",), "data.split_seed: 0 in the study, 7 now"),
        (("seeds=0",), "seeds=0: must be at least 1."),
    ],
    ids=lambda value: str(value[0]),
)
def test_what_is_refused(words: tuple[str, ...], said: str, swept: Path, call: Call) -> None:
    done = call(*OF_SWEPT, *words)
    assert done.code == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) <= 5
    assert not (study(swept) / "refits").exists()


@pytest.mark.slow
def test_a_refit_that_failed_is_tried_again(folder: Path, call: Call) -> None:
    words = ("study.n_trials=1", *objective_words("refits_at_the_second_try"), "execution=inline")
    assert call(*FEW, *words).code == 0
    assert call(*REFIT).code == 1
    assert not (study(folder) / "refit.pt").exists()
    assert call(*REFIT).code == 0
    assert torch_checkpoint.load(study(folder) / "refit.pt")["state"] == {"again": True}


def test_a_refit_is_no_study_to_be_resumed(swept: Path, call: Call) -> None:
    call(*OF_SWEPT)
    (name,) = refits(swept)
    done = call("resume", f"study.name={name}", "study.dir=studies/a/refits")
    assert done.code == 2
    assert "is a refit; go on with it by: python -m automl refit a" in done.stderr


def test_a_study_without_a_winner_is_refused(folder: Path, call: Call) -> None:
    assert (
        call(*FEW, "study.n_trials=1", *objective_words("fails_soon"), "execution=inline").code == 1
    )
    done = call(*REFIT)
    assert done.code == 2
    assert "no trial of it has ended with a value yet (1 failed)" in done.stderr
    assert "python -m automl resume a" in done.stderr
