"""A study whose files belong to somebody else: each command says which file it may not use."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from automl.cli.arguments import parse_command_line
from automl.cli.command_steps import compose_command
from automl.terminal.view import SweepView, write_view
from tests.end_to_end.program import PATIENCE_SECONDS, Done, Program

pytestmark = pytest.mark.slow


@pytest.fixture
def study(program: Program) -> Path:
    """What a sweep that was killed has left, as far as these commands look at it."""
    path = program.folder / "studies" / "theirs"
    path.mkdir(parents=True)
    view = SweepView("theirs", str(path), time.time(), 20, "val_loss", {"finished": 3})
    write_view(path / "status.json", view)
    stored = compose_command(parse_command_line(["study.name=theirs"])).stored_config
    (path / "config.yaml").write_text(stored)
    for name in ("lock", "events.log", "delivery.log"):
        (path / name).touch()
    return path


def as_a_user(program: Program, *words: str) -> Done:
    """The program without root's right to every file."""
    done = subprocess.run(
        [*without_roots_rights(), sys.executable, "-m", "automl", *words],
        cwd=program.folder,
        env=program.environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def without_roots_rights() -> Sequence[str]:
    if os.geteuid() != 0:
        return ()
    if (setpriv := shutil.which("setpriv")) is None:
        pytest.skip("root may use every file, and there is no setpriv to do without that right")
    return (setpriv, "--bounding-set=-all", "--inh-caps=-all", "--")


@pytest.mark.parametrize(
    ("command", "name", "code"),
    [
        ("status", "status.json", 2),
        ("resume", "config.yaml", 2),
        ("sync", "delivery.log", 2),
        ("sync", "events.log", 1),
    ],
)
def test_a_file_that_may_not_be_used_is_named(
    command: str, name: str, code: int, study: Path, program: Program
) -> None:
    (study / name).chmod(0)
    refused = as_a_user(program, command, "study.name=theirs")
    assert refused.code == code
    assert refused.stderr.startswith("automl: ")
    assert str(Path("studies", "theirs", name)) in refused.stderr
    assert "Permission denied" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_a_folder_that_may_not_be_looked_into_is_named(study: Path, program: Program) -> None:
    study.parent.chmod(0)
    refused = as_a_user(program, "status", "study.name=theirs")
    study.parent.chmod(0o700)
    assert (refused.code, refused.stderr.count("\n")) == (2, 1)
    assert refused.stderr.startswith("automl: ")
    assert "Permission denied" in refused.stderr


def test_a_lock_that_may_not_be_looked_at_hides_nothing_else(study: Path, program: Program) -> None:
    (study / "lock").chmod(0)
    done = as_a_user(program, "status", "study.name=theirs")
    assert (done.code, done.stderr) == (0, "")
    assert "3 finished" in done.stdout
    assert "whether a sweep still works on it cannot be seen" in done.stdout
    assert "Permission denied" in done.stdout
