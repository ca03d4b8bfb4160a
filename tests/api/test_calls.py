"""Sweeps called from Python, in this process: what is refused, and who may call."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import automl

SPACE = {"lr": {"low": 0.1, "high": 1.0}}
LOCK = threading.Lock()
HERE = ["devices=host", "execution=inline"]
MODEL = Path(__file__).parents[1] / "stored_studies/studies/disc/checkpoints/trial-00000/best.pt"


def returns(lr: float) -> float:
    return lr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"train": 3, "space": SPACE}, r"automl\.sweep\(3\): give a function, not a int"),
        ({}, r"a new study needs a space, such as space=\{"),
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
