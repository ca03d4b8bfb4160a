"""Whose environment a program is of."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from automl.objectives.program.running_program import foreign_program

PYTHON = sys.executable


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The Python of another environment."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{PYTHON}" "$@"\n')
    python.chmod(0o755)
    return python


def test_a_program_of_this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(PYTHON).parent}:/usr/bin:/bin")
    for command in ([PYTHON], ["python"], ["env", "A=1", "python"], ["nice", "-n", "3", PYTHON]):
        assert foreign_program([*command, "train.py"]) is None, command


def test_a_program_of_another(other: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert foreign_program([str(other), "train.py"]) == other
    assert foreign_program(["env", "A=1", str(other), "train.py"]) == other
    assert foreign_program(["env", f"PATH={other.parent}", "python", "train.py"]) == other
    monkeypatch.setenv("PATH", f"{other.parent}:/usr/bin:/bin")
    assert foreign_program(["python", "train.py"]) == other
    assert foreign_program(["sh", "-c", f"{PYTHON} train.py"]) is not None
    assert foreign_program(["no-such-program"]) == Path("no-such-program")
