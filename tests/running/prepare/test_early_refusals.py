"""What the settings and the disk tell is refused before any library is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from automl.cli import main

PYTHON = "objective=python space={lr: {low: 0.1, high: 1.0}} objective.target="
COMMAND = "objective=command space={lr: 0.1} objective.command="
REFUSED = {
    "data=csv data.path=none.csv data.target=y": "data.path=none.csv: there is no such file",
    "data=csv data.path=. data.target=y": "data.path=.: is a folder",
    "data=csv data.path=empty.csv data.target=y": "data.path=empty.csv: is empty",
    "data=csv data.path=t.csv data.target=y data.test=no.csv": "data.test=no.csv: there",
    f"{PYTHON}none.py:train": "objective.target=none.py:train: there is no file none.py",
    f"{PYTHON}no_such_module:train": "there is no module no_such_module",
    f"{COMMAND}no-such-program": "there is no program no-such-program on the PATH",
    f"{COMMAND}'python none.py'": "there is no none.py in",
    "model=python model.target=none.py:build": "model.target=none.py:build: there is no file",
    "training.loss=none.py:loss": "training.loss=none.py:loss: there is no file none.py",
    "data=python data.source=none.py:parts": "data.source=none.py:parts: there is no file none.py",
    "space.lr.low=1.0 space.lr.high=0.1": "space.lr=log:1.0..0.1: low=1.0 is above high=0.1; ex",
    "space.lr.low=0.0": "a log range must begin above 0",
    "study.metric=val_los": "study.metric=val_los: unknown here; the objective reports: train_loss",
    "study.metric=roc_auc": "Did you mean val_auc?",
    "study.metric=f1": "Did you mean val_f1?",
    "study.metric=[val_loss,val_los]": "study.metric=val_los: unknown here; the objective reports,",
    "study.metric=memory_peak": "a trial measures it by itself",
    "study.metric=[val_loss,val_error] sampler=cmaes": "it learns from one value",
    "study.metric=[val_loss,val_error] study.stop_value=0.1": "and it is the value of one: leave",
    "study.stop_value=inf": "study.stop_value=inf: must be a finite number",
    "undo=true": "undo=true: is no setting, but an argument of edit",
    "which=knee": "which=knee: is no setting, but an argument of evaluate, refit, export, ",
}
"""The beginning of what is said about the words of a sweep."""


@pytest.mark.parametrize("words", REFUSED)
def test_it_is_refused_before_anything_is_loaded_or_written(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("x,y\n1,2\n2,3\n3,4\n")
    (tmp_path / "empty.csv").touch()
    before = sorted(tmp_path.iterdir())
    assert main(split(words)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert REFUSED[words] in said.err
    key = REFUSED[words].partition(":")[0]
    assert said.err.count(key) == 1, "named once"
    assert sorted(tmp_path.iterdir()) == before


def split(words: str) -> list[str]:
    """Return the words of a line; a space within braces or quotes ends none."""
    found, depth, quoted = [""], 0, False
    for letter in words:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        quoted ^= letter == "'"
        if letter == " " and not depth and not quoted:
            found.append("")
        else:
            found[-1] += letter
    return found


def test_to_look_loads_none_of_them() -> None:
    heavy = ("torch", "optuna", "mlflow", "numpy", "pandas")
    source = f"""
import sys
import automl.running.prepare.early_refusals
sys.exit(" ".join(name for name in {heavy!r} if name in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.stderr.strip() == ""
