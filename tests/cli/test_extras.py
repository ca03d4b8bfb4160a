"""Every command answers with a line where an extra that it needs is not installed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from automl.cli.command_registry import COMMANDS
from tests.warm import usual_environment

EXTRAS = {
    "postgres": ("psycopg", "psycopg2"),
    "ray": ("ray", "aiohttp"),
    "export": ("onnx", "onnxscript", "onnxruntime"),
    "tensorrt": ("torch_tensorrt",),
    "lightgbm": ("lightgbm",),
    "catboost": ("catboost",),
    "tabicl": ("tabicl",),
    "tabpfn": ("tabpfn",),
    "xgboost": ("xgboost",),
    "lightning": ("lightning",),
    "transformers": ("transformers", "accelerate"),
    "skorch": ("skorch",),
}
CHILD = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout

absent, lines = json.load(sys.stdin)
sys.modules.update(dict.fromkeys(absent))  # none of them can be found or imported
from automl.cli import main

ended = []
for words in lines:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(words)
    ended.append((code, out.getvalue(), err.getvalue()))
json.dump(ended, sys.stdout)
"""
NEEDED = {
    "enqueue": ["params={x: 1}"],
    "stop": ["trial=1"],
    "tell": ["trial=1", "value=0.3"],
    "rename": ["name=b"],
    "clone": ["name=b"],
    "restore": ["file=x.tar.gz"],
    "edit": ["study.n_trials=50"],
    "predict": ["table=a.csv", "to=b.csv"],
    "delete": ["--yes"],
}
"""What a command cannot do without."""


@dataclass(frozen=True)
class Ended:
    """A command line that has ended, where extras are absent."""

    words: Sequence[str]
    code: int
    stdout: str
    stderr: str


def without_extras(folder: Path, lines: Sequence[Sequence[str]]) -> list[Ended]:
    """Run these command lines, one after another, in a process in which no extra can be imported.
    An exception that `main` lets pass fails the test."""
    absent = [name for names in EXTRAS.values() for name in names]
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=json.dumps([absent, [list(words) for words in lines]]),
        capture_output=True,
        cwd=folder,
        env=usual_environment(),
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [
        Ended(words, *ended) for words, ended in zip(lines, json.loads(done.stdout), strict=True)
    ]


LOCAL = ("devices", "list", "archive", "restore", "compare", "ui", "doctor", "report_optuna")
"""Commands that need no database of a study."""


def test_each_command_names_what_a_shared_study_needs(tmp_path: Path) -> None:
    where = ["study.name=a", "study.storage=postgresql://u@127.0.0.1:1/x"]
    lines = [[command, *where, *NEEDED.get(command, [])] for command in COMMANDS if command != "ui"]
    for ended in without_extras(tmp_path, lines):
        assert "Traceback" not in ended.stderr
        if ended.words[0] not in LOCAL:
            assert ended.code == 2, ended
            assert "pip install 'automl-sweep[postgres]'" in ended.stderr, ended


@pytest.mark.parametrize("name", ["lightgbm", "catboost", "tabicl", "tabpfn"])
def test_each_family_names_what_trains_it(name: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y\n1,2\n2,3\n3,4\n")
    words = [f"model={name}", "data=csv", "data.path=t.csv", "data.target=y"]
    (ended,) = without_extras(tmp_path, [words])
    assert ended.code == 2
    assert f"pip install 'automl-sweep[{name}]'" in ended.stderr
    assert ended.stdout == "", "nothing is loaded before"


def test_what_a_cluster_needs_is_named(tmp_path: Path) -> None:
    lines = [["execution=ray"], ["devices", "execution=ray"]]
    for ended in without_extras(tmp_path, lines):
        assert ended.code == 2
        assert "pip install 'automl-sweep[ray]'" in ended.stderr
        assert ended.stdout == "", "nothing is loaded before"


@pytest.mark.slow
def test_a_study_needs_no_extra_and_an_export_names_its_own(tmp_path: Path) -> None:
    small = ("study.n_trials=1", "training.epochs=1", "tracking.uri=none", "devices.only=cpu")
    study = "study.name=a"
    lines = [
        [study, *small, "execution=inline"],
        ["export", study],
        ["export", study, "format=tensorrt"],
        ["register", study, "tracking.uri=auto"],
        ["release", study, "tracking.uri=auto"],
    ]
    swept, *others = without_extras(tmp_path, lines)
    assert (swept.code, swept.stderr) == (0, "")
    for ended in others:
        extra = "tensorrt" if "format=tensorrt" in ended.words else "export"
        assert ended.code == 2
        assert f"pip install 'automl-sweep[{extra}]'" in ended.stderr, ended
