"""`status`: how the sweep of a study stands, seen from another process."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from automl.commands.status import print_view, run
from automl.record.directory import StudyDirectory
from automl.running.view import BestRow, RunningRow, write_view
from tests.commands.conftest import config
from tests.running.test_view import VIEW


def test_a_dead_sweep_is_told_apart(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_view(study / "status.json", replace(VIEW, time=time.time()))
    assert run(config(study.parent), "") == 0
    said = capsys.readouterr().out
    assert "8/20" in said
    assert "interrupted" in said.splitlines()[-1]
    assert "python -m automl resume study.name=brave-otter" in said


def test_a_living_sweep_is_not(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_view(study / "status.json", replace(VIEW, time=time.time()))
    with StudyDirectory.open(config(study.parent, study.name).study, must_exist=True):
        assert run(config(study.parent), "") == 0
    assert "resume" not in capsys.readouterr().out


def test_an_ended_sweep_says_how(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_view(study / "status.json", replace(VIEW, time=time.time(), ended="done"))
    assert run(config(study.parent), "") == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("done, ")


def test_what_a_stranger_wrote_is_neither_markup_nor_an_order_to_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    odd = BestRow(3, 0.5, {"how": "[/b] :smile: \x1b[2J"})
    row = RunningRow(1, "cpu", odd.params, 12.0, None, {})
    print_view(replace(VIEW, metric="[bold]loss", best=odd, running=(row,)), None)
    shown = capsys.readouterr().out
    assert shown.count("how [/b] :smile: �[") == 2
    assert "[bold]loss" in shown
    assert "\x1b" not in shown
