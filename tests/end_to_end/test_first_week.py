"""The page of the first week: each of its commands works as it is written there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from automl.cli.arguments import parse_command_line
from automl.cli.command_steps import compose_command
from tests.manuals import ROOT

PAGE = (ROOT / "docs" / "start" / "first-week.md").read_text("utf-8")
AUTOML = Path(sys.executable).parent / "automl"
NEVER_ENDING = ("ui",)
NEEDS_RUNNING_SWEEP = ("stop",)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.mark.timeout(600)
def test_each_command_works_in_the_order_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = (text for text in blocks("python") if text.startswith("# my.py"))
    Path("my.py").write_text(program)
    rows = [f"{40 + n % 50},{n % 5},{100 * (n % 50) + 31 * (n % 5) + n % 3}\n" for n in range(200)]
    Path("houses.csv").write_text("size,rooms,price\n" + "".join(rows))
    Path("rows.csv").write_text("size,rooms\n50,3\n80,4\n")
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    assert len(lines) >= 12
    for line in lines:
        words = shlex.split(line)[1:]
        if words[0] in NEVER_ENDING + NEEDS_RUNNING_SWEEP:
            compose_command(parse_command_line(words))
            continue
        done = subprocess.run(
            [AUTOML, *words],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "MLFLOW_TRACKING_URI": "sqlite:///mlflow.db"},
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    assert Path("scores.csv").read_text().count("\n") == 3


def test_the_first_screen_of_help_has_the_words_of_the_page() -> None:
    done = subprocess.run([AUTOML, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.count("\n") <= 45
    assert len(done.stdout.split()) <= 350
    shown = set(re.findall(r"[\w.]+=|\bautoml \w+", done.stdout))
    page = set(re.findall(r"[\w.]+=|\bautoml \w+", PAGE))
    assert {word for word in page if word.startswith("automl ")} <= shown | {"automl help"}
    settings = ("n_trials=", "timeout=", "metric=", "sampler=", "pruner=", "seed=", "devices.only=")
    assert {*settings} <= shown & page
