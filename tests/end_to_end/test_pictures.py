"""Pictures of the work that nobody can take or see: the work itself is done all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Call
from tests.end_to_end.program import PATIENCE_SECONDS, Program
from tests.end_to_end.records import Records

WORDS = (
    "study.name=unseen",
    "study.n_trials=3",
    "training.epochs=1",
    "data.n_train=100",
    "data.n_validation=50",
    "sampler=random",
    "devices.only=cpu",
)


def unheard(program: Program, *words: str) -> tuple[int, str]:
    """The program's exit code and its stderr, when whoever reads its stdout has gone."""
    # Unbuffered, nothing would be left for the end of the interpreter to stumble upon.
    buffered = {k: v for k, v in program.environment.items() if k != "PYTHONUNBUFFERED"}
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "automl", *words],
        cwd=program.folder,
        env=buffered,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.slow
def test_a_sweep_that_nobody_can_look_at_ends_as_any_other(program: Program) -> None:
    records = Records(program.folder, "unseen")
    for name in ("status.json", "sweep.log"):  # what cannot be written by anyone
        (records.path / name / "in the way").mkdir(parents=True)
    assert unheard(program, *WORDS) == (0, "")
    records.check_exact(3, 1, ["train_loss", "val_loss"])
    assert not list(records.path.glob(".status.json.*")), "nothing is left beside"


def test_the_config_is_no_picture(folder: Path, call: Call) -> None:
    path = folder / "studies" / "unseen" / "config.yaml"
    (path / "in the way").mkdir(parents=True)
    refused = call(*WORDS)
    assert refused.code == 1
    assert f"{path} cannot be written (Is a directory)" in refused.stderr
    assert "give the same command again" in refused.stderr
    assert Records(folder, "unseen").events() == []


@pytest.mark.parametrize("words", [("devices", "devices.only=cpu"), ("--help",), ("--version",)])
def test_a_command_that_only_prints_ends_like_other_programs(
    words: tuple[str, ...], program: Program
) -> None:
    assert unheard(program, *words) == (141, "")
