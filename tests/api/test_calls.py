"""Sweeps called from Python, in this process: what is refused, and who may call."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

import automl
from automl.cli import main

SPACE = {"lr": {"low": 0.1, "high": 1.0}}
LOCK = threading.Lock()
HERE = ["devices.only=cpu", "execution=inline"]
MODEL = Path(__file__).parents[1] / "stored_studies/studies/disc/checkpoints/trial-00000/best.pt"


def returns(lr: float) -> float:
    return lr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"train": 3, "space": SPACE}, r"automl\.sweep\(3\): give a function, not a int"),
        ({}, r"a new study needs a space, such as space=\{"),
        ({"from_": "prices"}, r"from_='prices': must be the address of a study of Optuna's: sqli"),
        ({"space": {"width": [1, 2]}}, r"space\.width: unknown here; the objective takes: lr"),
        ({"space": SPACE, "n_trials": 0}, r"study\.n_trials=0: must be at least 1"),
        ({"space": SPACE, "overrides": ["prunner=median"]}, r"prunner.*Did you mean pruner"),
        (
            {"space": SPACE, "name": "a", "overrides": ["++study.name=b"]},
            r"study\.name is given in two places, name='a' and overrides=\['\+\+study\.name=b'\]",
        ),
        (
            {"space": SPACE, "n_trials": 2, "overrides": [*HERE, "study.n_trials=3"]},
            r"study\.n_trials is given in two places, n_trials=2 and",
        ),
        ({"space": SPACE, "n_trails": 3}, r"sweep\(n_trails=3\).*Did you mean n_trials\?.*space, "),
        ({"space": SPACE, "time_limit": 60}, r"sweep\(time_limit=60\).*Did you mean timeout\?"),
        ({"space": SPACE, "repeats": 3}, r"is a setting: overrides=\{'study\.repeats': 3\}"),
        ({"space": SPACE, "timeout": "10 parsecs"}, r"timeout=10 parsecs: a duration is a number"),
        (
            {"space": SPACE, "timeout": "1min", "timeout_seconds": 60},
            r"timeout='1min' and timeout_seconds=60 say the same; leave timeout_seconds out",
        ),
        ({"space": SPACE, "lr": 3}, r"A param is an entry of the space: space=\{'lr': 3\}"),
        ({"space": SPACE, "sampler": 3}, r"sampler=3: must be a text, such as sampler='tpe'"),
        ({"space": SPACE, "direction": "max"}, r"study\.direction=max.*minimize"),
        (
            {"space": SPACE, "sampler": "tpe", "overrides": {"sampler": "grid"}},
            r"sampler is given in two places, sampler='tpe' and overrides=\['sampler=grid'\]",
        ),
        ({"space": {"x": [object()]}}, r"space\.x=<object.*: a value is a number, a text"),
        ({"space": SPACE, "name": "a b"}, r"study\.name=a b: a study name is"),
        (
            {"train": lambda lr, lock=LOCK: lr, "space": SPACE, "overrides": []},
            r"lambda cannot be sent to worker processes: default lock \(lock\)",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    folder: Path, arguments: dict[str, Any], message: str
) -> None:
    before = sorted(folder.rglob("*"))
    with pytest.raises(automl.AutoMLError, match=message):
        automl.sweep(**{"train": returns, "overrides": HERE, **arguments})
    assert sorted(folder.rglob("*")) == before


def test_names_that_are_no_pythons_and_odd_texts_reach_the_function(folder: Path) -> None:
    texts = ["x,y", "it's\n", "${oc.env:HOME}"]
    space = {"opt.lr": (0.5, 1.0), "a b": texts, "1st": 2}

    def train(trial: automl.TrialContext) -> float:
        assert trial.params["a b"] in texts
        return float(trial.params["opt.lr"] * trial.params["1st"])

    settings: Any = {"metric": "loss", "direction": "maximize", "sampler": "random"}
    study = automl.sweep(train, space, n_trials=2, name="odd", overrides=HERE, **settings)
    study = automl.sweep(train, n_trials=3, name="odd", overrides=HERE)
    trials = study.trials()
    assert trials["state"].tolist() == ["finished"] * 3
    assert study.best.value == max(trials["params.opt.lr"]) * 2


def test_params_that_are_trained_again_are_said_so_once(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    space = {"lr": [1e-3, 0.1]}
    automl.sweep(returns, space, n_trials=4, name="few", overrides=[*HERE, "sampler=random"])
    said = capfd.readouterr().out
    assert "lr: 0.001 and 0.1 are two choices, and nothing between is tried; a range is" in said
    assert "returns is judged by val_loss: the number it returns" in said
    assert said.count(" and trains them again, with its own seed") == 1
    automl.sweep(returns, n_trials=7, name="few", overrides=HERE)
    assert re.search(r"trial [456] has the params of trial [0-5] and", capfd.readouterr().out)


def test_that_a_returned_value_is_none_that_was_reported_is_said_once_and_shown(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def train(trial: automl.TrialContext) -> float:
        for step in range(3):
            trial.report(step, {"val_loss": 0.046 + trial.number})
        return 0.954 + trial.number

    words = [*HERE, "pruner=none"]
    study = automl.sweep(train, SPACE, n_trials=2, name="two", overrides=words)
    said = capfd.readouterr().out
    # Both trials run at once, so either may be told first.
    told = re.search(r"returned val_loss ([01])\.954, and its best report has \1\.046", said)
    assert told, said
    assert said.count("and its best report has") == 1
    assert main(["status", "study.name=two"]) == 0
    assert "best val_loss 0.954 (returned; reported 0.046) by trial 0" in capfd.readouterr().out
    assert "returned; reported 0.046" in repr(study)
    assert study.trials()["best_report"].tolist() == [0.046, 1.046]
    page = (study.path / "report.html").read_text("utf-8")
    assert "That value was returned; its best report has 0.046." in page
    assert "The value of 2 of the 2 finished ones was returned or told" in page
    assert "and is more than 1% from their best report." in page
    assert "is its best report" not in page
    automl.sweep(train, n_trials=3, name="two", overrides=words)
    assert "its best report has" not in capfd.readouterr().out, "the study was told of it"


def test_a_folder_is_found_however_it_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAB", "lab")
    for n_trials, study_dir in enumerate(("study.dir=lab", "++study.dir='${oc.env:LAB}'"), 1):
        overrides = [*HERE, study_dir]
        space = SPACE if n_trials == 1 else None
        study = automl.sweep(returns, space, n_trials=n_trials, name="it", overrides=overrides)
        assert len(study.trials()) == n_trials


def test_every_public_name_can_be_called_twice(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Once from a running event loop, as notebooks do, and once from a thread."""
    public = {name: getattr(automl, name) for name in automl.__all__}
    seen: list[float] = []

    @automl.objective(params=["lr"])
    def train(lr: float) -> dict[str, float]:
        seen.append(lr)  # the caller's own list: inline, nothing is pickled
        return {"val_loss": lr}

    def call(n_trials: int, changed: bool = False) -> Any:
        return automl.sweep(
            train, SPACE, n_trials=n_trials, name="twice", overrides=HERE, changed=changed
        )

    async def cell() -> Any:
        return call(2)

    assert asyncio.run(cell()).best.value == min(seen)
    assert "called from a thread" not in capfd.readouterr().out
    seen_before = len(seen)
    thread = threading.Thread(target=call, args=(3, True))  # `seen` is not what it was
    thread.start()
    thread.join()
    assert (seen_before, len(seen)) == (2, 3)
    said = capfd.readouterr().out
    assert "called from a thread: Ctrl-C and SIGTERM are not its business" in said
    for _ in range(2):
        assert len(automl.open_study("twice").trials()) == 3
        assert automl.load(MODEL).predict(np.zeros((1, 2))).shape == (1,)
        assert automl.objective(params=["lr"])(returns) is returns
        automl.register_configs()
        for name in ("TrialPruned", "TrialInterrupted", "AutoMLError"):
            assert str(getattr(automl, name)("why")) == "why"
    assert {name: getattr(automl, name) for name in automl.__all__} == public


def test_trials_that_no_signal_ends_are_said_to_run_on(folder: Path) -> None:
    over = threading.Event()

    def train(lr: float) -> float:
        os.kill(os.getpid(), signal.SIGINT)
        over.wait()
        return lr

    overrides = [*HERE, "study.grace_seconds=0", "admission.max_concurrent_trials=1"]
    try:
        with pytest.raises(automl.AutoMLError, match=r"study stuck: trials .* restart the kernel"):
            automl.sweep(train, SPACE, n_trials=1, name="stuck", overrides=overrides)
    finally:
        over.set()
    assert automl.open_study("stuck").trials()["state"].tolist() == ["interrupted"]


def test_the_link_follows_the_best_trial_while_the_sweep_runs(folder: Path) -> None:
    link, seen = folder / "studies" / "a" / "best.pt", []

    def reports(lr: float, *, trial: automl.TrialContext) -> None:
        seen.append(os.readlink(link) if link.is_symlink() else None)
        trial.report(0, {"val_loss": lr}, checkpoint=lambda: {"lr": lr})

    overrides = [
        *HERE,
        "admission.max_concurrent_trials=1",
        "study.enqueue=[{lr: 0.5},{lr: 0.2},{lr: 0.9}]",
    ]
    study = automl.sweep(
        reports, SPACE, name="a", n_trials=4, sampler="random", overrides=[*overrides]
    )
    first, second = (f"checkpoints/trial-0000{n}/best.pt" for n in (0, 1))
    assert seen == [None, first, second, second]
    best = study.best
    assert best.path is not None
    assert link.resolve() == best.path
    assert study.load() == {"lr": best.params["lr"]}


def test_what_trains_may_be_named_as_on_a_line(folder: Path) -> None:
    (folder / "named.py").write_text("def train(lr):\n    return lr * 2\n")
    study = automl.sweep("named.py:train", {"lr": "0.1..1"}, n_trials=2, name="n", overrides=HERE)
    assert study.best.value == 2 * float(str(study.best.params["lr"]))
    assert len(automl.sweep("named.py:train", n_trials=3, name="n", overrides=HERE).trials()) == 3


def asks_elsewhere(trial: Any) -> float:
    return squared(trial)


def squared(trial: Any) -> float:
    x: float = trial.suggest_float("x", -1, 1)
    return x**2


def test_an_objective_for_optuna_needs_no_space(folder: Path) -> None:
    call = partial(automl.sweep, asks_elsewhere, name="asked", verbose=False, overrides=HERE)
    assert call(n_trials=2).best.params.keys() == {"x"}
    trials = call(n_trials=4).trials()  # it goes on, by its name
    assert (trials["value"] == trials["params.x"] ** 2).all()
    assert len(trials) == 4


@pytest.mark.parametrize("of", ["an objective", "a function"])
def test_a_study_begins_with_the_trials_of_one_of_optunas(folder: Path, of: str) -> None:
    old = optuna.create_study(study_name="old", storage="sqlite:///old.db")
    old.optimize(squared, n_trials=3)
    train = squared if of == "an objective" else lambda x: x**2
    study = automl.sweep(train, from_="old.db", n_trials=5, verbose=False, overrides=HERE)
    trials = study.trials()
    assert [*trials["params.x"][:3]] == [trial.params["x"] for trial in old.trials]
    assert (trials["value"] == trials["params.x"] ** 2).all()
    assert len(trials) == 5


def test_an_optuna_study_without_trials_has_no_space_to_begin_with(folder: Path) -> None:
    optuna.create_study(study_name="new", storage="sqlite:///new.db")
    with pytest.raises(automl.AutoMLError, match=r"no trial of study new has params, which would"):
        automl.sweep(returns, from_="new.db", n_trials=5, verbose=False, overrides=HERE)
