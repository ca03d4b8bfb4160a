"""Every bad input: one message that names key, value and remedy, exit 2, and nothing written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Call, snapshot
from tests.end_to_end.program import OBJECTIVES, Program

ANNOUNCEMENT = re.compile(r"(loading|reading) .*\n")
"""Of a step that comes before the check of what is wrong."""
HEADER = "a,b,y\n"
ROWS = "".join(f"{i},{i % 7},{'yes' if i % 2 else 'no'}\n" for i in range(60))
FILES = {
    "good.csv": (HEADER + ROWS).encode(),
    "empty.csv": b"",
    "header.csv": HEADER.encode(),
    "one_class.csv": (HEADER + ROWS.replace("no", "yes")).encode(),
    "latin1.csv": (HEADER + ROWS.replace("yes", "s\xed")).encode("latin-1"),
    "twice.csv": b"a,a,y\n" + ROWS.encode(),
    "broken.py": b"raise RuntimeError('the driver is too old')\n",
    "no_function.py": b"def train(trial):\n    return 0.0\n",
    "two_arguments.py": b"def train(trial, rate):\n    return 0.0\n",
    "not_yaml/space/odd.yaml": b"lr: {low: 1\n",
}


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with tables and modules; a refused sweep leaves nothing in it."""
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = snapshot(tmp_path)
    yield tmp_path
    left = {path for path in snapshot(tmp_path) if not path.startswith("__pycache__")}
    assert sorted(left - {"studies"}) == sorted(before)


def write_files(folder: Path) -> None:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


CSV = "data=csv data.path=good.csv data.target=y"
PYTHON = "objective=python objective.target"

BAD = {
    # types and keys
    "a word for a number": ("study.n_trials=many", "study.n_trials=many", "int"),
    "a number for a list": ("devices.only=3", "devices.only", ""),
    "an unknown key": ("study.n_trialz=3", "study.n_trialz", "Did you mean study.n_trials?"),
    "an unknown option": ("sampler=rnd", "sampler=rnd", "grid, nsga2, nsga3, qmc, random, tpe"),
    "an unknown group": ("samplr=random", "samplr", "Did you mean sampler?"),
    "an unknown command": ("swep", "swep", "Did you mean sweep? Commands: "),
    "an unknown flag": ("--fast", "--fast", "--help"),
    "an enum": ("study.direction=up", "study.direction=up", "minimize"),
    "a size without a unit": ("admission.request=3 giga", "admission.request=3 giga", "3GiB"),
    "a lookahead below 0": ("admission.lookahead=-1", "admission.lookahead=-1", "none or a whole"),
    "a lookahead in words": ("admission.lookahead=far", "admission.lookahead=far", "whole number"),
    "more memory than there is": ("admission.request=999TiB", "admission.request", "at most"),
    # numbers
    "no trials": ("study.n_trials=0", "study.n_trials=0", "at least 1"),
    "no trial on a device": (
        "admission.max_trials_per_device=0",
        "admission.max_trials_per_device=0",
        "at least 1",
    ),
    "a negative time": ("study.timeout_seconds=-1", "study.timeout_seconds=-1", "greater than 0"),
    "no epochs": ("training.epochs=0", "training.epochs=0", "at least 1"),
    # space
    "low above high": ("space.lr='interval(1,0.1)'", "space.lr", "low"),
    "a log range from 0": ("space.lr='tag(log,interval(0,1))'", "space.lr", "above 0"),
    "a log range from below": ("space.lr={low: -1, high: 1, log: true}", "space.lr", "above 0"),
    "no choices": ("space.depth={choices: []}", "space.depth", "choice"),
    "repeated choices": ("space.depth=2,2,3", "space.depth", "2"),
    "an unknown condition": (
        "space.dropout={low: 0, high: 0.5, when: {optimiser: sgd}}",
        "optimiser",
        "space",
    ),
    "a grid of a range": ("sampler=grid", "space.", "step"),
    "a param it does not take": ("space.depht=3", "space.depht", "Did you mean depth?"),
    "a value it does not take": ("space.optimizer=lion", "optimizer", "sgd, adam, adamw"),
    "a file that is no YAML": ("--config-dir not_yaml space=odd", "odd.yaml", "not valid YAML"),
    "a first trial outside": ("study.enqueue=[{depth: 99}]", "study.enqueue[0]", "99"),
    # study
    "a metric it does not report": ("study.metric=acc", "study.metric=acc", "val_error"),
    "a name with a slash": ("study.name=../x", "study.name=../x", "letters, digits"),
    "an unusable storage": ("study.storage=oracle://x", "study.storage=oracle://x", ""),
    "a storage that is a folder": ("study.storage=sqlite:////proc", "study.storage", ""),
    "a folder that cannot be": (
        "study.dir=/proc/studies",
        "study.dir=/proc/studies",
        "study.dir=…",
    ),
    "an unusable tracking URI": ("tracking.uri=ftp://x", "tracking.uri=ftp://x", "sqlite:///"),
    "a store where none can be": (
        "tracking.uri=sqlite:////proc/x.db",
        "tracking.uri=sqlite:////proc/x.db",
        "another folder",
    ),
    "a server that is not there": (
        "tracking.uri=http://127.0.0.1:1",
        "tracking.uri=http://127.0.0.1:1",
        "start that server",
    ),
    # tables
    "no path": ("data=csv", "data.path=none", "table=FILE"),
    "no file": ("data=csv data.path=no.csv data.target=y", "data.path=no.csv", ""),
    "a folder": ("data=csv data.path=. data.target=y", "data.path=.", ""),
    "an empty file": ("data=csv data.path=empty.csv data.target=y", "data.path=empty.csv", ""),
    "no rows": ("data=csv data.path=header.csv data.target=y", "data.path=header.csv", ""),
    "no such column": (f"{CSV} data.target=z", "data.target=z", "a, b, y"),
    "one class": ("data=csv data.path=one_class.csv data.target=y", "data.target=y", "yes"),
    "not UTF-8": ("data=csv data.path=latin1.csv data.target=y", "data.path=latin1.csv", "UTF-8"),
    "a header twice": ("data=csv data.path=twice.csv data.target=y", "data.path=twice.csv", "a"),
    "too few rows": (f"{CSV} model=mlp space.batch_size=64,128", "space.batch_size", "64"),
    "text for a number": (f"{CSV} data.task=regression", "data.task=regression", ""),
    # objectives
    "no target": ("objective=python space={x: 1}", "objective.target", "module:function"),
    "a target of another form": (f"{PYTHON}=train", "objective.target=train", "module:function"),
    "no such module": (f"{PYTHON}=nowhere:train", "objective.target=nowhere:train", "PYTHONPATH"),
    "no such function": (f"{PYTHON}=no_function:fit", "objective.target=no_function:fit", "train"),
    "a module that fails": (
        f"{PYTHON}=broken:train",
        "objective.target=broken:train",
        "RuntimeError: the driver is too old",
    ),
    "an argument that is no param": (f"{PYTHON}=two_arguments:train", "space: rate", "requires"),
    "a param it did not declare": (
        f"{PYTHON}={OBJECTIVES}:declared space={{lr: 1, width: 2}}",
        "space.width",
        "lr",
    ),
    "a declared param that is missing": (
        f"{PYTHON}={OBJECTIVES}:declared space={{}}",
        "lr",
        "space.lr",
    ),
    "a metric it did not declare": (
        f"{PYTHON}={OBJECTIVES}:declared space={{lr: 1}} study.metric=loss",
        "study.metric=loss",
        "val_loss, acc",
    ),
    # networks
    "no network": ("model=python", "model.target", "module:function"),
    "no such network": ("model=python model.target=nowhere:build", "model.target", "PYTHONPATH"),
    "a network of another form": (
        "model=python model.target=tests.models.networks:too_few space={lr: 1}",
        "model.target=tests.models.networks:too_few",
        "build(n_inputs, n_outputs, **params)",
    ),
    "a param the network does not take": (
        "model=python model.target=tests.models.networks:normed space={depth: 3}",
        "space.depth",
        "width, lr, batch_size",
    ),
    # devices
    "a device that is not there": ("devices.only=[GPU-0]", "devices.only", "GPU-0"),
}


def split(line: str) -> list[str]:
    """At blanks outside of brackets and quotes, as the table above is written."""
    words, depth = [""], 0
    for letter in line:
        depth += (letter in "{[(") - (letter in "}])")
        if letter == " " and depth == 0 and not words[-1].startswith("admission"):
            words.append("")
        else:
            words[-1] += letter
    return words


@pytest.mark.parametrize(("line", "key", "remedy"), BAD.values(), ids=BAD.keys())
def test_it_is_refused(line: str, key: str, remedy: str, inside: Path, call: Call) -> None:
    refused = call(*split(line))
    assert refused.code == 2, refused.stdout
    assert refused.stderr.startswith("automl: ")
    assert key in refused.stderr
    assert remedy in refused.stderr
    assert "Traceback" not in refused.stderr
    assert ANNOUNCEMENT.sub("", refused.stdout) == ""


@pytest.mark.slow
def test_a_process_says_at_once_what_it_does_and_once_what_is_wrong(program: Program) -> None:
    write_files(program.folder)
    refused = program.run(*split(f"{PYTHON}=broken:train"))
    assert (refused.code, ANNOUNCEMENT.sub("", refused.stdout)) == (2, "")
    assert refused.stdout.startswith("loading Optuna, PyTorch and MLflow\n")
    assert refused.stderr.startswith("automl: objective.target=broken:train")
    assert refused.stderr.count("\n") == 1
    assert not (program.folder / "studies").exists()
