"""`gain`: a table and a sentence, and what it cannot time."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import automl.commands.gain
from automl.cli import main
from automl.cli.arguments import parse_command_line
from automl.cli.command_steps import compose_command
from tests.end_to_end.conftest import snapshot
from tests.running.trials import timed_objectives


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def store_study(folder: Path, *words: str) -> Path:
    """What a sweep of these words leaves of its config."""
    path = folder / "studies" / "a"
    path.mkdir(parents=True)
    stored = compose_command(parse_command_line(["study.name=a", *words])).stored_config
    (path / "config.yaml").write_text(stored)
    return path


@pytest.mark.slow
def test_a_study_is_timed_by_its_own_config_and_keeps_its_files(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(automl.commands.gain, "WAY_SECONDS", 0.1)
    store_study(folder, "space={depth: 1, width: 16, batch_size: 64, lr: 0.01}", "devices.only=cpu")
    before = snapshot(folder)
    assert main(["gain", "study.name=a"]) == 0
    assert snapshot(folder) == before
    out = capsys.readouterr().out
    assert "all alike: depth 1, width 16, batch_size 64, lr 0.01\n" in out
    assert re.search(r"^device +size +way +ms/step +gain +fixed +trial$", out, re.MULTILINE)
    assert re.search(r"^cpu +all alike +1 thread, float32 +[\d.e-]+ +1\.00 ", out, re.MULTILINE)
    assert "pack of 32" in out
    assert "only a new study can change" in out
    advice = out.splitlines()[-1]
    given = re.findall(r"\w+\.\w+=\w+", advice)
    assert any(word.startswith("execution.pack=") for word in given)
    compose_command(parse_command_line(["resume", "study.name=a", *given]))


@pytest.mark.parametrize(
    "word",
    [
        "execution.threads_per_trial=2",
        "execution.pack=auto",
        "execution.pack=off",
        "training.precision=bfloat16",
        "training.precision=float64",
        "devices.only=cpu",
        "devices.only=auto",
    ],
)
def test_a_sweep_takes_what_may_be_advised(word: str) -> None:
    compose_command(parse_command_line([word]))


def test_a_function_that_fails_is_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["objective=python", f"objective.target={timed_objectives.HERE}:raises", "space={x: 1}"]
    assert main(["gain", *words, "devices.only=cpu"]) == 1
    found = capsys.readouterr()
    advice, error = found.err.splitlines()
    assert advice == "automl: gain is now written: automl plan measure=true"
    assert error == "automl: gain: nothing could be timed: ValueError: the rows are odd."
    assert "1 thread, float32: ValueError" in found.out


def test_an_empty_space_is_one_message(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store_study(folder, "space=empty")
    for words in (["gain", "space=empty"], ["gain", "study.name=a"]):
        assert main(words) == 2
        found = capsys.readouterr()
        assert found.out == ""
        _, error = found.err.splitlines()
        assert error.startswith("automl: space: it is empty, so that there is no trial to time")


def test_a_study_that_is_not_there_is_said_as_resume_says_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store_study(folder)
    said = []
    for command in ("resume", "gain"):
        assert main([command, "study.name=b"]) == 2
        said.append(capsys.readouterr().err.splitlines()[-1])
    assert said[0] == said[1]
    assert "no such study. Studies in studies: a." in said[1]


def test_a_program_shows_no_steps(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gain", "objective=command", "objective.command=ls", "space={x: 1}"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("automl: objective=command: gain times single steps, and a program show")
